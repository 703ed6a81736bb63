#include "api/turn_wait.h"

#include <algorithm>
#include <deque>
#include <string>
#include <utility>

namespace weft::api {

// The turns of all contexts of a runtime.
class BorrowedContexts {
  public:
    explicit BorrowedContexts(const Commons& commons) : commons_(commons) {
        for (Node* const node : commons.nodes) turns_.emplace_back(node->context);
    }
    explicit operator bool() const {
        return std::ranges::all_of(turns_, [](const auto& one) { return bool(one); });
    }
    // The contexts other than `node` are not watched during the sleep.
    void turn_and_wait(Node& node) const {
        for (Node* const other : commons_.nodes) {
            if (other != &node) other->context.turn(commons_.parts.clock->now());
        }
        node.driver.turn_and_wait(commons_.nodes.size() == 1 ? 10ms : 1ms);
    }

  private:
    const Commons& commons_;
    std::deque<core::ThreadOwnership::BorrowedTurns> turns_;
};

// A wait without a turn for so long is logged.
static constexpr Duration stall_warning_after = 1s;
// A waiting thread tries again so often to borrow the turns.
static constexpr Duration borrow_retry_interval = 10ms;

TurnWait::TurnWait(const char* call, Node& node, std::mutex& mutex,
                   std::condition_variable& changed, const bool& done)
    : call_(call),
      node_(node),
      mutex_(mutex),
      changed_(changed),
      done_(done),
      blocked_(call, node.context, mutex, done) {}

bool TurnWait::is_done() const {
    const std::lock_guard lock(mutex_);
    return done_;
}

bool TurnWait::may_borrow() const {
    // A simulation turns its hosts itself.
    return node_.commons.options.manual && !node_.context.has_turned() &&
           !node_.commons.parts.advance_time;
}

bool TurnWait::until_done() {
    while (true) {
        if (may_borrow() && !std::exchange(borrow_refused_, false)) return is_done();
        // Outside of the lock: after the end of the runtime post() may run work that takes it.
        if (node_.commons.options.manual && has_turned_->exchange(false)) {
            node_.context.post([has_turned = has_turned_] { *has_turned = true; });
        }
        const bool borrows = may_borrow();
        {
            std::unique_lock lock(mutex_);
            const Duration time = borrows ? borrow_retry_interval : stall_warning_after;
            if (changed_.wait_for(lock, time, [&] { return done_; })) return true;
        }
        // The end of another runtime's pool may wait for this thread; a callback may not expect a
        // throw.
        if (node_.commons.is_abandoned && !core::Context::is_any_entered())
            detail::throw_cancelled();
        if (borrows) continue;
        if (!node_.commons.options.manual) {
            node_.check_for_stall();
        } else if (!*has_turned_ && !std::exchange(has_logged_, true)) {
            node_.commons.log.warning(
                std::string(call_) +
                " waits for a turn of the runtime (RuntimeOptions::manual), and no thread has "
                "turned it for a second: turn it on the thread that did so last, or call turn() "
                "first on the thread that turns it from now on");
        }
    }
}

void TurnWait::borrow_turns() {
    while (!is_done()) {
        const BorrowedContexts turns(node_.commons);
        borrow_refused_ = !turns;
        if (borrow_refused_) return;
        turns.turn_and_wait(node_);
    }
}

}  // namespace weft::api
