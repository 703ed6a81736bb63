#include "api/turn_wait.h"

#include <string>
#include <utility>

namespace weft::api {

// Without a turn for so long something is said of it.
static constexpr Duration patience = 1s;

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

bool TurnWait::until_done() {
    const bool is_manual = node_.options.manual;
    while (true) {
        // Outside of the lock: at the end of the runtime it may run what takes that.
        if (is_manual && has_turned_->exchange(false)) {
            node_.context.post([has_turned = has_turned_] { *has_turned = true; });
        }
        {
            std::unique_lock lock(mutex_);
            if (changed_.wait_for(lock, patience, [&] { return done_; })) return true;
        }
        if (!is_manual) {
            node_.look_for_stall();
            continue;
        }
        // A simulation turns its hosts itself.
        const bool may_borrow = !node_.context.has_turned() && !node_.parts.pass_time;
        if (!*has_turned_ && (!may_borrow || is_refused_) && !std::exchange(has_logged_, true)) {
            node_.log.warning(
                std::string(call_) +
                " waits for a turn of the runtime (RuntimeOptions::manual), and no thread has "
                "turned it for a second: turn it on the thread that did so last, or call turn() "
                "first on the thread that turns it from now on");
        }
        if (may_borrow) return false;
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
