#include <weft/sleep.h>

#include <new>
#include <optional>

#include "base/assert.h"
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

Status no_context_status() {
    return fail(Code::failed_precondition,
                "made on a thread that turns no context: make it in the coroutine that awaits it, "
                "which Runtime::spawn or Runtime::block_on starts");
}

// During the sleep it is deferred to the context's end, afterwards to the next turn.
struct Alarm::Node : base::Timer, core::ScopedOperation, core::Deferred {
    explicit Node(Alarm& of) : alarm(of) {}
    core::Context& context() const { return static_cast<core::Context&>(*alarm.home_); }
    static void due(core::Deferred& work) {
        Node& due = static_cast<Node&>(work);
        due.context().timers().cancel(due);
        if (due.alarm.wake_reason_ == WakeReason::none)
            due.alarm.wake_reason_ = WakeReason::runtime_ended;
        due.alarm.finish();
    }
    Alarm& alarm;
};

Alarm::Node& Alarm::node() { return *std::launder(reinterpret_cast<Node*>(node_)); }

Alarm::Alarm() : home_(Executor::current()) {
    static_assert(sizeof(Node) <= node_bytes && alignof(Node) <= alignof(void*));
    Node& node = *::new (static_cast<void*>(node_)) Node(*this);
    if (!home_) return;
    if (core::CallScope* const scope = node.context().scope()) scope->add(node);
    node.fire = [](base::Timer& timer, TimePoint) {
        Node& fired = static_cast<Node&>(timer);
        fired.context().undefer(fired);
        fired.alarm.wake_reason_ =
            fired.alarm.ends_at_call_deadline_ ? WakeReason::deadline_passed : WakeReason::elapsed;
        fired.alarm.finish();
    };
    node.run = &Node::due;
}

// Its context may be destroyed: then nothing is linked.
Alarm::~Alarm() {
    Node& node = this->node();
    std::optional<core::ThreadOwnership::UseGuard> here;
    if (node.Timer::is_linked() || node.ScopedOperation::is_linked() ||
        node.Deferred::is_linked()) {
        here.emplace(node.context().require_end_on_thread("a sleep (weft::sleep_for())"));
    }
    if (node.Timer::is_linked()) node.context().timers().cancel(node);
    node.undefer();
    node.~Node();
}

// In a turn of the context no member of it is read.
void Alarm::require_home_thread(const char* call, const char* why) {
    if (context_ended_ || Executor::current() == home_) return;
    node().context().require_thread(call, why);
}

void Alarm::arm(TimePoint at) {
    Node& node = this->node();
    node.context().timers().arm(node, at);
    node.context().request_turn();
}

void Alarm::sleep(Duration time) {
    WEFT_ASSERT(wake_reason_ == WakeReason::none && !is_done_);
    if (!home_ || node().context().is_forked()) {
        wake_reason_ = WakeReason::no_context;
        is_done_ = true;
        return;
    }
    awaiter_slot_.set_home(home_);
    Node& node = this->node();
    core::Context& context = node.context();
    const core::CallScope* const scope = node.scope;
    if (scope && scope->cancelled) return complete_later(WakeReason::cancelled);
    if (context.is_closed()) return complete_later(WakeReason::runtime_ended);
    if (time <= Duration::zero()) return complete_later(WakeReason::elapsed);
    const TimePoint end = saturating_add(context.clock().now(), time);
    ends_at_call_deadline_ = scope && scope->deadline < end;
    arm(ends_at_call_deadline_ ? scope->deadline : end);
    context.defer_to_end(node);
    node.cancel = [](core::ScopedOperation& operation) {
        static_cast<Node&>(operation).alarm.complete_later(WakeReason::cancelled);
    };
}

// After the runtime's last turn no timer fires. So the wait ends with the runtime, after all other
// work that ends with it; so does a wait that begins in its last turns.
void Alarm::limit(Duration time) {
    Node& node = this->node();
    core::Context& context = node.context();
    context.undefer(node);
    if (context.is_closed()) return complete_later(WakeReason::runtime_ended);
    arm(saturating_add(context.clock().now(), time));
    node.run = [](core::Deferred& first) {
        Node& limit = static_cast<Node&>(first);
        if (limit.alarm.wake_reason_ != WakeReason::none) return limit.alarm.finish();
        limit.run = &Node::due;
        limit.context().defer_to_end(limit);
    };
    context.defer_to_end(node);
}

// The runtime's last turns resume waiting coroutines; a task that ends later finds no context.
void Alarm::wait_for_notify() {
    WEFT_ASSERT(home_ && !context_ended_);
    Node& node = this->node();
    if (node.context().has_ended()) {
        context_ended_ = true;
        return node.detach();
    }
    node.run = [](core::Deferred& end) { static_cast<Node&>(end).alarm.wait_for_notify(); };
    node.context().defer_to_end(node);
}

Status Alarm::why_no_context() {
    return home_ ? node().context().why_forked() : detail::no_context_status();
}

// Completes in a later turn, with this reason.
void Alarm::complete_later(WakeReason wake_reason) {
    if (wake_reason_ != WakeReason::none) return;
    wake_reason_ = wake_reason;
    Node& node = this->node();
    node.context().timers().cancel(node);
    node.context().undefer(node);
    node.run = &Node::due;
    node.context().defer(node);
}

std::coroutine_handle<> Alarm::notify() {
    // The ending task may run inside another task of the same combinator, which is destroyed next:
    // in after-end work the combinator resumes after both.
    if (context_ended_ && Executor::current() != home_) {
        is_done_ = true;
        if (awaiter_slot_.is_suspended()) return awaiter_slot_.coroutine();
    } else if (awaiter_slot_.is_suspended()) {
        complete_later(WakeReason::notified);
    } else if (wake_reason_ == WakeReason::none) {
        node().context().timers().cancel(node());
        node().undefer();
        wake_reason_ = WakeReason::notified;
        is_done_ = true;
    }
    return std::noop_coroutine();
}

void Alarm::reset() {
    wake_reason_ = WakeReason::none;
    is_done_ = false;
    awaiter_slot_.reset();
    if (context_ended_) return;
    if (core::CallScope* const scope = node().context().scope(); scope && !node().scope) {
        scope->add(node());
    }
    wait_for_notify();
}

// A completed sleep may outlive its scope and its context, so it is detached.
void Alarm::finish() {
    is_done_ = true;
    Node& node = this->node();
    const core::Context::ScopeGuard scope_guard(node.context(), node.scope);
    node.detach();
    if (awaiter_slot_.is_suspended()) awaiter_slot_.resume_or_end();  // May destroy this.
}

}  // namespace detail

Status Sleep::await_resume() {
    switch (wake_reason()) {
        case WakeReason::deadline_passed:
            return fail(Code::deadline_exceeded,
                        "the deadline of the call that it was made for came first");
        case WakeReason::cancelled: return fail(Code::cancelled, core::scope_cancelled_text);
        case WakeReason::runtime_ended:
            return fail(Code::cancelled, "the runtime is shutting down");
        case WakeReason::no_context: return why_no_context();
        default: return {};
    }
}

Sleep sleep_for(Duration time) { return Sleep(time); }

}  // namespace weft
