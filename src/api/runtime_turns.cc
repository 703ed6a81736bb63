// Turns that the program makes, and waits of its threads.
#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include <weft/runtime.h>

#include "api/runtime_impl.h"
#include "api/turn_wait.h"
#include "api/turns.h"
#include "base/assert.h"
#include "base/fork.h"
#include "core/joined_thread.h"

namespace weft {
namespace {

using api::LoopNotifier;
using api::Node;
using api::own;
using api::OwnTurns;
using api::RuntimeImpl;
using api::TurnSet;

// ---- what is refused ----------------------------------------------------------------------------

// A wait on a thread of the runtime's own, or in a turn, would be a deadlock.
void check_may_wait(const RuntimeImpl& impl, const char* call) {
    if (!impl.is_entered() && !impl.commons.pool.is_pool_thread()) return;
    base::abort_misused(call,
                        "called in a callback, handler, coroutine or offloaded work of the same "
                        "runtime (Executor::post(), offload()), it would wait for itself: co_await "
                        "the task in a coroutine there (Runtime::spawn()), or return and go on in "
                        "a completion");
}

void check_manual(const RuntimeImpl& impl, const char* call) {
    if (impl.node.context.is_forked()) base::abort_forked(call);
    if (!impl.commons.options.manual) {
        base::abort_misused(call,
                            "the runtime has a thread of its own that turns it; only with "
                            "RuntimeOptions::manual a program does");
    }
    // A simulation that has gone lets no time pass.
    if (impl.node.context.has_ended() && !impl.commons.parts.advance_time)
        base::abort_misused(call, "called after the end of the runtime, which has no more turns");
}

void check_turner(const RuntimeImpl& impl, const char* call) {
    if (!impl.node.context.is_forked()) check_may_wait(impl, call);
    check_manual(impl, call);
}

// Between turns only the thread that turns a context may read it.
void check_own_thread(const Node& at, const char* call) {
    if (!at.context.has_turned()) return;
    at.context.require_thread(call,
                              "called on another thread than the one that turned the runtime "
                              "last: call it there, or turn() first");
}

void check_real(const RuntimeImpl& impl, const char* call) {
    if (!impl.commons.parts.advance_time) return;
    base::abort_misused(call,
                        "called for a host of a simulation, which turns it on virtual time: an "
                        "event loop or weft::AsioDriver would wait for ever; let time pass by "
                        "Simulation::run_until()");
}

// ---- block_on() ---------------------------------------------------------------------------------

// The task may use objects of its waiter, which must not be unwound before it ends: an exception of
// other code in the simulation is rethrown after the end of the task.
void advance_time_until_done(const RuntimeImpl& impl, const bool& done) {
    std::exception_ptr thrown;
    while (!done) {
        try {
            if (impl.commons.parts.advance_time([&] { return done; }, Duration::max())) break;
        } catch (...) {
            if (!thrown) thrown = std::current_exception();
            continue;
        }
        base::abort_misused("Runtime::block_on()",
                            thrown
                                ? "a function or a host's program has thrown an exception in the "
                                  "simulation, and the task has not ended: what it waits for "
                                  "never comes"
                                : "nothing is left to happen in the simulation, and the task has "
                                  "not ended: what it waits for never comes");
    }
    if (thrown) std::rethrow_exception(thrown);
}

constexpr Duration look_every = 10ms;  // For a change that wakes no context.

void turn_until_done(RuntimeImpl& impl, const bool& done) {
    if (impl.commons.parts.advance_time) return advance_time_until_done(impl, done);
    WEFT_ASSERT(impl.commons.options.manual && !impl.is_entered());
    const RuntimeImpl::ActiveCall active(impl, "Runtime::block_on()");
    const LoopNotifier after(impl.commons);
    while (!done) OwnTurns(impl.commons).turn_and_wait(look_every);
}

// For a thread that joins the waiter's thread, in the destructor of its owner.
bool help(RuntimeImpl& impl, detail::BlockedThread& waiter) {
    {
        const std::lock_guard lock(waiter.mutex);
        if (waiter.done) return false;
    }
    if (impl.is_entered()) {
        base::abort_misused("GroupAuthority::~GroupAuthority()",
                            "called in a callback, handler or coroutine of a runtime while its "
                            "follow() waits in block_on() of it: each would wait for the other; "
                            "offload() it, or let a thread outside of the runtime destroy it");
    }
    if (!impl.commons.options.manual || impl.commons.parts.advance_time) return false;
    const OwnTurns turns(impl.commons);
    if (turns.is_empty()) return false;
    const LoopNotifier after(impl.commons);
    turns.turn_and_wait(look_every);
    return true;
}

void block(const std::shared_ptr<RuntimeImpl>& kept, Node& at, Function<void()> start,
           detail::BlockedThread& waiter) {
    WEFT_ASSERT(start && !waiter.done);
    static constexpr const char* call = "Runtime::block_on()";
    RuntimeImpl& impl = *kept;
    if (at.context.is_forked()) {
        start();  // The task fails at once.
        return waiter.done ? void() : base::abort_forked(call);
    }
    check_may_wait(impl, call);
    const api::Waiters::Registration registration(at.waiters, waiter);
    at.context.post(std::move(start));
    if (at.waiters.have_ended()) at.context.post([kept, &at] { at.waiters.destroy_all(); });
    const bool turns_here =
        impl.commons.options.manual && at.context.has_turned() && at.context.on_thread();
    if (impl.commons.parts.advance_time || turns_here) return turn_until_done(impl, waiter.done);
    const core::JoinedThread::Wait helped([&] { return help(impl, waiter); });
    api::TurnWait wait(call, at, waiter.mutex, waiter.changed, waiter.done);
    std::optional<RuntimeImpl::ActiveCall> turning;
    if (wait.turns_others()) turning.emplace(impl, call);
    while (!wait.until_done()) {
        const RuntimeImpl::ActiveCall active(impl, call);
        const LoopNotifier after(impl.commons);
        wait.borrow_turns();
    }
}

// ---- turn_until() -------------------------------------------------------------------------------

bool turn_all_until(const std::shared_ptr<RuntimeImpl>& kept, const TurnSet& set, const char* call,
                    Function<bool()> done, Duration limit) {
    RuntimeImpl& impl = *kept;
    check_turner(impl, call);  // Also when it is done at once.
    if (!done) detail::refuse_empty(call);
    if (impl.commons.parts.advance_time)  // done() may crash the host.
        return impl.commons.parts.advance_time([&] { return done(); }, limit);
    const RuntimeImpl::ActiveCall active(impl, call);
    const LoopNotifier after(impl.commons);
    const TimePoint end = saturating_add(impl.commons.parts.clock->now(), limit);
    while (!done()) {
        const TimePoint now = impl.commons.parts.clock->now();
        if (now >= end) return false;
        // A timer is no event, but may have made done() true.
        if (set.turn(now) == 0 && !done()) set.wait(now, end - now);
    }
    return true;
}

// Of several contexts; or the misuse of a runtime that has threads.
[[gnu::noinline]] std::uint32_t turn_all(RuntimeImpl& impl) {
    check_turner(impl, "Runtime::turn()");
    WEFT_ASSERT(impl.nodes.size() > 1);
    return TurnSet::all(impl.commons).turn(impl.commons.parts.clock->now());
}

}  // namespace

void detail::throw_cancelled() {
    throw BadResult(
        fail(Code::cancelled,
             "Runtime::block_on(): the runtime ended before the task, or the executor of another "
             "runtime, which has ended, resumed the task without end"));
}

// ---- of a runtime -------------------------------------------------------------------------------

void Runtime::run_blocking(Function<void()> start, detail::BlockedThread& waiter) {
    const std::shared_ptr<RuntimeImpl> kept = impl_;  // The runtime may end meanwhile.
    block(kept, own(impl_).current(), std::move(start), waiter);
}

// The context itself detects a nested turn and a forked child.
std::uint32_t Runtime::turn() {
    WEFT_DCHECK(!manual_node_ || manual_node_ == &impl_->node);
    if (!manual_node_) [[unlikely]]
        return turn_all(own(impl_));
    core::Context& context = manual_node_->context;
    return context.turn(context.clock().now()).events;
}

bool Runtime::turn_until(Function<bool()> done, Duration limit) {
    const std::shared_ptr<RuntimeImpl> kept = own(impl_).shared_from_this();
    return turn_all_until(kept, TurnSet::all(kept->commons), "Runtime::turn_until()",
                          std::move(done), limit);
}

bool Runtime::arm() {
    static constexpr const char* call = "Runtime::arm()";
    const RuntimeImpl& impl = own(impl_);
    check_turner(impl, call);  // Its own thread sleeps on this descriptor.
    check_real(impl, call);
    for (const auto& one : impl.nodes) check_own_thread(*one, call);
    for (const auto& one : impl.nodes) {
        if (!one->driver.arm_for_loop()) return false;
    }
    return true;
}

TimePoint Runtime::next_deadline() const {
    static constexpr const char* call = "Runtime::next_deadline()";
    const RuntimeImpl& impl = own(impl_);
    check_manual(impl, call);
    TimePoint next = never;
    for (const auto& one : impl.nodes) {
        check_own_thread(*one, call);
        next = std::min(next, one->driver.next_deadline());
    }
    return next;
}

int Runtime::wait_fd() const {
    static constexpr const char* call = "Runtime::wait_fd()";
    const RuntimeImpl& impl = own(impl_);
    check_manual(impl, call);
    if (impl.loop_fd() < 0) check_real(impl, call);
    return impl.loop_fd();
}

void Runtime::set_driven(bool is_driven) { own(impl_).set_driven(is_driven); }

// ---- of a context -------------------------------------------------------------------------------

void ContextRef::run_blocking(Function<void()> start, detail::BlockedThread& waiter) const {
    const std::shared_ptr<RuntimeImpl> kept = impl_;
    block(kept, *kept->nodes[index_], std::move(start), waiter);
}

std::uint32_t ContextRef::turn() const {
    check_turner(*impl_, "ContextRef::turn()");
    return impl_->nodes[index_]->turn(impl_->commons.parts.clock->now());
}

bool ContextRef::turn_until(Function<bool()> done, Duration limit) const {
    TurnSet set(impl_->commons);
    set.add(*impl_->nodes[index_]);
    const std::shared_ptr<RuntimeImpl> kept = impl_;
    return turn_all_until(kept, set, "ContextRef::turn_until()", std::move(done), limit);
}

bool ContextRef::arm() const {
    static constexpr const char* call = "ContextRef::arm()";
    check_turner(*impl_, call);
    check_real(*impl_, call);
    Node& at = *impl_->nodes[index_];
    check_own_thread(at, call);
    return at.driver.arm_for_loop();
}

TimePoint ContextRef::next_deadline() const {
    static constexpr const char* call = "ContextRef::next_deadline()";
    check_manual(*impl_, call);
    const Node& at = *impl_->nodes[index_];
    check_own_thread(at, call);
    return at.driver.next_deadline();
}

int ContextRef::wait_fd() const {
    check_manual(*impl_, "ContextRef::wait_fd()");
    return impl_->nodes[index_]->driver.wait_fd();
}

void ContextRef::set_driven(bool is_driven) const {
    impl_->set_driven(is_driven, std::uint64_t{1} << index_);
}

}  // namespace weft
