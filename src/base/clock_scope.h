// The clock of a simulation, for code of a program that runs outside of any turn.
#pragma once

#include "base/clock.h"

namespace weft::base {

// While it lives, weft::now() on this thread is the time of this clock, except inside a turn, where
// it is the time of the context. Scopes nest: the end of a scope restores the clock of the outer
// one. Lifetime: the clock outlives the scope.
class ClockScope {
  public:
    explicit ClockScope(const Clock& clock) : outer_(current_) { current_ = &clock; }
    ~ClockScope() { current_ = outer_; }
    ClockScope(const ClockScope&) = delete;
    ClockScope& operator=(const ClockScope&) = delete;

    // nullptr: this thread is in no scope.
    static const Clock* current() { return current_; }

  private:
    inline static constinit thread_local const Clock* current_ = nullptr;

    const Clock* const outer_;
};

}  // namespace weft::base
