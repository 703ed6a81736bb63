#include "api/turn_wait.h"

#include <string>
#include <utility>

namespace weft::api {

// Without a turn for so long something is said of it.
static constexpr Duration patience = 1s;
// Until a thread that waits looks whether it may borrow the turns now.
static constexpr Duration between_borrowers = 10ms;

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
    return node_.options.manual && !node_.context.has_turned() && !node_.parts.pass_time;
}

bool TurnWait::until_done() {
    while (true) {
        if (may_borrow() && !std::exchange(is_refused_, false)) return is_done();
        // Outside of the lock: at the end of the runtime it may run what takes that.
        if (node_.options.manual && has_turned_->exchange(false)) {
            node_.context.post([has_turned = has_turned_] { *has_turned = true; });
        }
        const bool borrows = may_borrow();
        {
            std::unique_lock lock(mutex_);
            const Duration time = borrows ? between_borrowers : patience;
            if (changed_.wait_for(lock, time, [&] { return done_; })) return true;
        }
        // The end of another runtime's pool may wait for this; a callback may not expect it.
        if (node_.is_left() && !core::Context::is_any_entered()) detail::throw_cancelled();
        if (borrows) continue;
        if (!node_.options.manual) {
            node_.look_for_stall();
        } else if (!*has_turned_ && !std::exchange(has_logged_, true)) {
            node_.log.warning(
                std::string(call_) +
                " waits for a turn of the runtime (RuntimeOptions::manual), and no thread has "
                "turned it for a second: turn it on the thread that did so last, or call turn() "
                "first on the thread that turns it from now on");
        }
    }
}

void TurnWait::borrow_turns() {
    while (!is_done()) {
        const core::OwnThread::Borrowed turns(node_.context);
        is_refused_ = !turns;
        if (is_refused_) return;
        node_.driver.turn_and_wait(10ms);
    }
}

}  // namespace weft::api
