#include "api/turn_wait.h"

#include <algorithm>
#include <string>
#include <utility>

#include "api/turns.h"

namespace weft::api {

// A wait without a turn for so long is logged.
static constexpr Duration stall_warning_after = 1s;
// A sleep of a thread that borrows the turns.
static constexpr Duration borrowed_wait_max = 10ms;
// A waiting thread tries again so often to borrow the turns.
static constexpr Duration borrow_retry_interval = 10ms;
// Between two turns of the thread's other contexts, which the wait does not watch.
static constexpr Duration unwatched_interval = 1ms;

// Those that this thread turned last, if it may turn them here.
static TurnSet own_contexts(const Commons& commons) {
    TurnSet own(commons);
    const bool may_turn =
        commons.options.manual && !commons.parts.advance_time && commons.nodes.size() > 1 &&
        std::ranges::none_of(commons.nodes, [](auto* one) { return one->context.is_entered(); });
    for (const Node* const one : commons.nodes) {
        if (may_turn && one->context.has_turned() && one->context.on_thread()) own.add(*one);
    }
    return own;
}

TurnWait::TurnWait(const char* call, Node& node, std::mutex& mutex,
                   std::condition_variable& changed, const bool& done)
    : call_(call),
      node_(node),
      mutex_(mutex),
      changed_(changed),
      done_(done),
      blocked_(call, node.context, mutex, done),
      turns_others_(!own_contexts(node.commons).is_empty()) {}

bool TurnWait::is_done() const {
    const std::lock_guard lock(mutex_);
    return done_;
}

bool TurnWait::may_borrow() const {
    // A simulation turns its hosts itself.
    return node_.commons.options.manual && !node_.context.has_turned() &&
           !node_.commons.parts.advance_time;
}

// Whether it is done, `longest` later at most. Two threads with a context each may wait for each
// other's: so each turns its own meanwhile.
bool TurnWait::await(Duration longest) const {
    const base::Clock& clock = *node_.commons.parts.clock;
    const TimePoint end = clock.now() + longest;
    while (true) {
        const TurnSet own = turns_others_ ? own_contexts(node_.commons) : TurnSet(node_.commons);
        const bool is_busy = own.turn(clock.now()) != 0;
        std::unique_lock lock(mutex_);
        const auto is_done = [&] { return done_; };
        if (own.is_empty()) return changed_.wait_for(lock, longest, is_done);
        if (changed_.wait_for(lock, is_busy ? 0ms : unwatched_interval, is_done)) return true;
        if (clock.now() >= end) return false;
    }
}

bool TurnWait::until_done() {
    while (true) {
        if (may_borrow() && !std::exchange(borrow_refused_, false)) return is_done();
        // Outside of the lock: after the end of the runtime post() may run work that takes it.
        if (node_.commons.options.manual && has_turned_->exchange(false)) {
            node_.context.post([has_turned = has_turned_] { *has_turned = true; });
        }
        const bool borrows = may_borrow();
        if (await(borrows ? borrow_retry_interval : stall_warning_after)) return true;
        // The end of another runtime's pool may wait for this thread; a callback may not expect a
        // throw.
        if (node_.commons.is_abandoned && !core::Context::is_any_entered())
            detail::throw_cancelled();
        if (borrows) continue;
        if (!node_.commons.options.manual) {
            for (Node* const one : node_.commons.nodes) one->check_for_stall();
        } else if (!*has_turned_ && !std::exchange(has_logged_, true)) {
            node_.commons.log.warning(
                std::string(call_) + " waits for a turn of " + node_.name_text() +
                " (RuntimeOptions::manual), and no thread has turned it for a second: turn it on "
                "the thread that did so last, or call turn() first on the thread that turns it "
                "from now on");
        }
    }
}

void TurnWait::borrow_turns() {
    while (!is_done()) {
        const OwnTurns turns(node_.commons);
        borrow_refused_ = !turns.has(node_);
        if (borrow_refused_) return;
        turns.turn_and_wait(borrowed_wait_max);
    }
}

}  // namespace weft::api
