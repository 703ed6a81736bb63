// The state of a state machine, which moves only as its table of legal moves allows.
#pragma once

#include "base/assert.h"

namespace weft::base {

// `can_move(from, to)`, beside the enum, is the table. Reads as the enum itself.
template <class Enum>
class State {
  public:
    explicit constexpr State(Enum first) : now_(first) {}
    constexpr operator Enum() const { return now_; }
    void move_to(Enum next) {
        WEFT_ASSERT(can_move(now_, next));
        now_ = next;
    }
    // As move_to(), for the hot path: checked in debug builds only.
    void move_on_hot_path(Enum next) {
        WEFT_DCHECK(can_move(now_, next));
        now_ = next;
    }
    // The state of an object that is used anew, in the same memory.
    void restart(Enum first) { now_ = first; }

  private:
    Enum now_;
};

}  // namespace weft::base
