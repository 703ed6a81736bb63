// Turns of several contexts of a runtime on one thread, with one sleep for all of them.
#pragma once

#include <cstdint>
#include <list>

#include "api/node.h"

namespace weft::api {

// Contexts of one runtime. The calling thread may turn each of them.
class TurnSet {
  public:
    explicit TurnSet(const Commons& commons) : commons_(commons) {}
    static TurnSet all(const Commons& commons);

    void add(const Node& node);
    bool has(const Node& node) const { return (nodes_ >> node.index & 1) != 0; }
    bool is_empty() const { return nodes_ == 0; }

    // One turn of each; returns the number of events.
    std::uint32_t turn(TimePoint now) const;
    // After turns at `now` without an event: sleeps until one of them has work.
    void wait(TimePoint now, Duration longest) const;
    // turn(), and wait() if it had no event.
    std::uint32_t turn_and_wait(Duration longest) const;

  private:
    template <class F>
    void for_each(const F& work) const;
    void wait_for_several(TimePoint now, Duration longest) const;

    const Commons& commons_;
    std::uint64_t nodes_ = 0;  // By their numbers.
    static_assert(na::contexts_max <= 64);
};

// While it lives, the calling thread, which is in no turn of the runtime, may turn these contexts:
// those that it turned last, and those that no thread has turned. With options.manual.
class OwnTurns {
  public:
    explicit OwnTurns(const Commons& commons);
    bool has(const Node& node) const { return set_.has(node); }
    bool is_empty() const { return set_.is_empty(); }
    std::uint32_t turn_and_wait(Duration longest) const { return set_.turn_and_wait(longest); }

  private:
    TurnSet set_;
    std::list<core::ThreadOwnership::BorrowedTurns> borrowed_;
};

// Wakes the event loops that drive contexts of this thread, after the program has turned these
// meanwhile.
class LoopNotifier {
  public:
    explicit LoopNotifier(const Commons& commons) : commons_(commons) {}
    ~LoopNotifier();
    LoopNotifier(const LoopNotifier&) = delete;
    LoopNotifier& operator=(const LoopNotifier&) = delete;

  private:
    const Commons& commons_;
};

}  // namespace weft::api
