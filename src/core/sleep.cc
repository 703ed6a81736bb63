#include <weft/sleep.h>

#include <new>
#include <optional>

#include "base/clock_scope.h"
#include "base/steady_clock.h"
#include "core/context.h"

namespace weft {

TimePoint now() {
    auto* const here = static_cast<core::Context*>(Executor::current());
    if (here) return here->clock().now();
    const base::Clock* const simulated = base::ClockScope::current();
    return simulated ? simulated->now() : base::SteadyClock().now();
}

namespace detail {

Status nowhere() {
    return fail(Code::failed_precondition,
                "made on a thread that turns no context: make it in the coroutine that awaits it, "
                "which Runtime::spawn or Runtime::block_on starts");
}

// While it sleeps it is deferred work of the context's end, afterwards of the next turn.
struct Alarm::Node : base::Timer, core::InScope, core::Deferred {
    explicit Node(Alarm& of) : alarm(of) {}
    core::Context& context() const { return static_cast<core::Context&>(*alarm.home_); }
    static void due(core::Deferred& work) {
        Node& due = static_cast<Node&>(work);
        due.context().timers().cancel(due);
        if (due.alarm.outcome_ == Outcome::none) due.alarm.outcome_ = Outcome::ended;
        due.alarm.finish();
    }
    Alarm& alarm;
};

Alarm::Node& Alarm::node() { return *std::launder(reinterpret_cast<Node*>(node_)); }

Alarm::Alarm() : home_(Executor::current()) {
    static_assert(sizeof(Node) <= node_bytes && alignof(Node) <= alignof(void*));
    Node& node = *::new (static_cast<void*>(node_)) Node(*this);
    if (!home_) return;
    if (core::Scope* const scope = node.context().scope()) scope->add(node);
    node.fire = [](base::Timer& timer, TimePoint) {
        Node& fired = static_cast<Node&>(timer);
        fired.context().undefer(fired);
        fired.alarm.outcome_ = fired.alarm.is_bounded_ ? Outcome::too_late : Outcome::over;
        fired.alarm.finish();
    };
    node.run = &Node::due;
}

// Its context may be gone: nothing of it is linked then.
Alarm::~Alarm() {
    Node& node = this->node();
    std::optional<core::OwnThread::Here> here;
    if (node.Timer::is_linked() || node.InScope::is_linked() || node.Deferred::is_linked()) {
        here.emplace(node.context().require_end_here("a sleep (weft::sleep_for())"));
    }
    if (node.Timer::is_linked()) node.context().timers().cancel(node);
    node.take_back();
    node.~Node();
}

// Inside of the context nothing is read of it.
void Alarm::require_home_thread(const char* call, const char* why) {
    if (is_homeless_ || Executor::current() == home_) return;
    node().context().require_thread(call, why);
}

void Alarm::arm(TimePoint at) {
    Node& node = this->node();
    node.context().timers().arm(node, at);
    node.context().rouse();
}

void Alarm::sleep(Duration time) {
    if (!home_ || node().context().is_forked()) {
        outcome_ = Outcome::nowhere;
        is_done_ = true;
        return;
    }
    Node& node = this->node();
    core::Context& context = node.context();
    const core::Scope* const scope = node.scope;
    if (scope && scope->cancelled) return conclude(Outcome::cancelled);
    if (context.is_closed()) return conclude(Outcome::ended);
    if (time <= Duration::zero()) return conclude(Outcome::over);
    const TimePoint end = saturating_add(context.clock().now(), time);
    is_bounded_ = scope && scope->deadline < end;
    arm(is_bounded_ ? scope->deadline : end);
    context.defer_to_end(node);
    node.cancel = [](core::InScope& operation) {
        static_cast<Node&>(operation).alarm.conclude(Outcome::cancelled);
    };
}

// No turn comes after the runtime's last one, and no time passes: so the wait ends then, after
// all else that ends with the runtime, and so does one that begins in its last turns.
void Alarm::limit(Duration time) {
    Node& node = this->node();
    core::Context& context = node.context();
    context.undefer(node);
    if (context.is_closed()) return conclude(Outcome::ended);
    arm(saturating_add(context.clock().now(), time));
    node.run = [](core::Deferred& first) {
        Node& limit = static_cast<Node&>(first);
        if (limit.alarm.outcome_ != Outcome::none) return limit.alarm.finish();
        limit.run = &Node::due;
        limit.context().defer_to_end(limit);
    };
    context.defer_to_end(node);
}

// The runtime's last turns resume what waits; what ends after them finds no context any more.
void Alarm::wait_for_ring() {
    Node& node = this->node();
    if (node.context().is_over()) {
        is_homeless_ = true;
        return node.leave();
    }
    node.run = [](core::Deferred& end) { static_cast<Node&>(end).alarm.wait_for_ring(); };
    node.context().defer_to_end(node);
}

Status Alarm::why_nowhere() { return home_ ? node().context().why_forked() : detail::nowhere(); }

// In a later turn, with this outcome.
void Alarm::conclude(Outcome outcome) {
    if (outcome_ != Outcome::none) return;
    outcome_ = outcome;
    Node& node = this->node();
    node.context().timers().cancel(node);
    node.context().undefer(node);
    node.run = &Node::due;
    node.context().defer(node);
}

std::coroutine_handle<> Alarm::ring() {
    // The task that ends may do so in the middle of another one of its fork, which is destroyed
    // next: in the context's late work the fork goes on behind both.
    if (is_homeless_ && Executor::current() != home_) {
        is_done_ = true;
        if (awaiting_.is_suspended()) return awaiting_.coroutine();
    } else if (awaiting_.is_suspended()) {
        conclude(Outcome::rung);
    } else if (outcome_ == Outcome::none) {
        node().context().timers().cancel(node());
        node().take_back();
        outcome_ = Outcome::rung;
        is_done_ = true;
    }
    return std::noop_coroutine();
}

void Alarm::reset() {
    outcome_ = Outcome::none;
    is_done_ = false;
    awaiting_.reset();
    if (is_homeless_) return;
    if (core::Scope* const scope = node().context().scope(); scope && !node().scope) {
        scope->add(node());
    }
    wait_for_ring();
}

// What has ended may outlive its scope, and its context.
void Alarm::finish() {
    is_done_ = true;
    Node& node = this->node();
    const core::Context::Within within(node.context(), node.scope);
    node.leave();
    if (awaiting_.is_suspended()) awaiting_.resume_or_end();  // May destroy this.
}

}  // namespace detail

Status Sleep::await_resume() {
    switch (outcome()) {
        case Outcome::too_late:
            return fail(Code::deadline_exceeded,
                        "the deadline of the call that it was made for came first");
        case Outcome::cancelled: return fail(Code::cancelled, core::scope_cancelled_text);
        case Outcome::ended: return fail(Code::cancelled, "the runtime is shutting down");
        case Outcome::nowhere: return why_nowhere();
        default: return {};
    }
}

Sleep sleep_for(Duration time) { return Sleep(time); }

}  // namespace weft
