#include <weft/runtime.h>

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <stdexcept>
#include <utility>

#include "api/environment.h"
#include "api/run_signals.h"
#include "api/runtime_impl.h"
#include "api/turn_wait.h"
#include "base/assert.h"
#include "base/cpu_set.h"
#include "base/exiting.h"
#include "base/fork.h"
#include "base/own_descriptor.h"
#include "base/unique_fd.h"
#include "core/joined_thread.h"

extern char** environ;

namespace weft {

Runtime::Runtime(std::shared_ptr<api::RuntimeImpl> impl)
    : impl_(std::move(impl)),
      manual_node_(impl_->commons.options.manual && impl_->nodes.size() == 1 ? &impl_->node
                                                                             : nullptr) {}

Runtime::Runtime(Runtime&& other) noexcept
    : impl_(std::move(other.impl_)), manual_node_(std::exchange(other.manual_node_, nullptr)) {}

Runtime& Runtime::operator=(Runtime&& other) noexcept {
    if (this != &other) {
        if (impl_) impl_->shutdown();
        impl_ = std::move(other.impl_);
        manual_node_ = std::exchange(other.manual_node_, nullptr);
    }
    return *this;
}

Runtime::~Runtime() {
    if (impl_) impl_->shutdown();
}

// Once in a process: its other runtimes have the same environment.
static void warn_once(base::Log& log, const std::string& warning) {
    static std::atomic<bool> has_warned{false};
    if (!warning.empty() && !has_warned.exchange(true)) log.warning(warning);
}

Result<Runtime> Runtime::create(RuntimeOptions options) {
    Result<api::EffectiveOptions> effective = api::overlay_environment(std::move(options), environ);
    if (!effective) return std::move(effective).status();
    if (Status status = api::validate_options(effective->options); !status.ok()) return status;
    if (unsigned& contexts = effective->options.contexts; contexts == 0)
        contexts = std::min<unsigned>(base::usable_cpus(), na::contexts_max);
    Result<std::shared_ptr<api::RuntimeImpl>> impl =
        api::RuntimeImpl::make(std::move(effective->options), api::production_parts());
    if (!impl) return std::move(impl).status();
    warn_once((*impl)->commons.log, effective->warning);
    return Runtime(*std::move(impl));
}

static api::RuntimeImpl& own(const std::shared_ptr<api::RuntimeImpl>& impl) {
    if (!impl) {
        base::abort_misused(
            "a weft::Runtime that was moved from, or of a simulated host that is down",
            "it can only be destroyed or assigned to");
    }
    return *impl;
}

Result<Runtime> Runtime::from_impl(std::shared_ptr<api::RuntimeImpl> impl) {
    WEFT_ASSERT(impl);
    return Runtime(std::move(impl));
}

Status Runtime::add(Service& service) { return own(impl_).add({.service = &service}); }
Status Runtime::add(ServiceFactory make) {
    if (!make) detail::refuse_empty("Runtime::add()");
    return own(impl_).add({.factory = &make});
}
Status Runtime::add(SharedService service) {
    return own(impl_).add({.service = &service.service, .is_shared = true});
}
Status Runtime::listen(std::string_view uri) { return own(impl_).listen(uri); }
std::vector<std::string> Runtime::addresses() const { return own(impl_).addresses(); }

Status Runtime::serve(Service& service, const Addresses& at) {
    return own(impl_).serve({.service = &service}, at.uris());
}
Status Runtime::serve(ServiceFactory make, const Addresses& at) {
    if (!make) detail::refuse_empty("Runtime::serve()");
    return own(impl_).serve({.factory = &make}, at.uris());
}
Status Runtime::serve(SharedService service, const Addresses& at) {
    return own(impl_).serve({.service = &service.service, .is_shared = true}, at.uris());
}

Result<Channel> Runtime::connect(const Addresses& to) { return own(impl_).connect(to.uris()); }

Result<Buffer> Runtime::allocate(std::size_t bytes) {
    return own(impl_).commons.arena->allocate(bytes);
}
Result<Region> Runtime::expose(Buffer memory, ExposeOptions options) {
    return own(impl_).expose(std::move(memory), options);
}

Result<Group> Runtime::group(GroupView view) { return own(impl_).group(std::move(view)); }
Status Runtime::join(GroupView view, std::uint32_t rank) {
    return own(impl_).join(std::move(view), rank);
}

Executor& Runtime::executor() { return own(impl_).current().context; }

unsigned Runtime::contexts() const { return own(impl_).commons.contexts(); }

ContextRef Runtime::context(unsigned index) const {
    if (index >= contexts()) {
        base::abort_misused("Runtime::context()",
                            "the runtime has no context of that number "
                            "(Runtime::contexts())");
    }
    return {impl_, index};
}

std::optional<unsigned> Runtime::here() const {
    api::RuntimeImpl& impl = own(impl_);
    if (!impl.is_entered()) return {};
    return impl.current().index;
}

ContextRef::ContextRef(std::shared_ptr<api::RuntimeImpl> impl, unsigned index)
    : impl_(std::move(impl)), index_(index) {}

Executor& ContextRef::executor() const { return impl_->nodes[index_]->context; }

static void spawn_on(core::Context& context, Task<void> task) {
    detail::require_startable(detail::TaskAccess::handle(task));
    struct Starter {
        const core::Context& context;
        std::shared_ptr<Task<void>> task;  // Function holds it in place.
        void operator()() const {
            if (!context.after_end().is_destroying_coroutines())
                detail::run_detached(std::move(*task), [] {});
        }
    };
    context.post(Starter{context, std::make_shared<Task<void>>(std::move(task))});
}

void Runtime::spawn(Task<void> task) { spawn_on(own(impl_).current().context, std::move(task)); }

void ContextRef::spawn(Task<void> task) const {
    spawn_on(impl_->nodes[index_]->context, std::move(task));
}

void detail::throw_cancelled() {
    throw BadResult(
        fail(Code::cancelled,
             "Runtime::block_on(): the runtime ended before the task, or the executor of another "
             "runtime, which has ended, resumed the task without end"));
}

// A wait on a thread of the runtime's own, or in a turn, would be a deadlock.
static void check_may_wait(const api::RuntimeImpl& impl, const char* call) {
    if (!impl.is_entered() && !impl.commons.pool.is_pool_thread()) return;
    base::abort_misused(call,
                        "called in a callback, handler, coroutine or offloaded work of the same "
                        "runtime (Executor::post(), offload()), it would wait for itself: co_await "
                        "the task in a coroutine there (Runtime::spawn()), or return and go on in "
                        "a completion");
}

// Wakes an event loop that drives this runtime after the program has turned it meanwhile.
class LoopNotifier {
  public:
    explicit LoopNotifier(api::RuntimeImpl& impl) : impl_(impl) {}
    ~LoopNotifier() { impl_.node.driver.notify_loop(); }
    LoopNotifier(const LoopNotifier&) = delete;
    LoopNotifier& operator=(const LoopNotifier&) = delete;

  private:
    api::RuntimeImpl& impl_;
};

// The task may use objects of its waiter, which must not be unwound before it ends: an exception of
// other code in the simulation is rethrown after the end of the task.
static void advance_time_until_done(const api::RuntimeImpl& impl, const bool& done) {
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

static void turn_until_done(api::RuntimeImpl& impl, const bool& done) {
    if (impl.commons.parts.advance_time) return advance_time_until_done(impl, done);
    WEFT_ASSERT(impl.commons.options.manual && !impl.is_entered());
    const api::RuntimeImpl::ActiveCall active(impl, "Runtime::block_on()");
    const LoopNotifier after(impl);
    while (!done) impl.turn_and_wait(10ms);
}

// For a thread that joins the waiter's thread, in the destructor of its owner.
static bool help(api::RuntimeImpl& impl, detail::BlockedThread& waiter) {
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
    const core::ThreadOwnership::TurnPermit turns(impl.node.context);
    if (!turns) return false;
    const LoopNotifier after(impl);
    impl.turn_and_wait(10ms);
    return true;
}

void Runtime::run_blocking(Function<void()> start, detail::BlockedThread& waiter) {
    WEFT_ASSERT(start && !waiter.done);
    static constexpr const char* call = "Runtime::block_on()";
    const std::shared_ptr<api::RuntimeImpl> kept = impl_;  // The runtime may end meanwhile.
    api::RuntimeImpl& impl = own(kept);
    if (impl.node.context.is_forked()) {
        start();  // The task fails at once.
        return waiter.done ? void() : base::abort_forked(call);
    }
    check_may_wait(impl, call);
    const api::Waiters::Registration registration(impl.node.waiters, waiter);
    impl.node.context.post(std::move(start));
    if (impl.node.waiters.have_ended())
        impl.node.context.post([kept] { kept->node.waiters.destroy_all(); });
    const bool turns_here = impl.commons.options.manual && impl.node.context.has_turned() &&
                            impl.node.context.on_thread();
    if (impl.commons.parts.advance_time || turns_here) return turn_until_done(impl, waiter.done);
    const core::JoinedThread::Wait helped([&] { return help(impl, waiter); });
    api::TurnWait wait(call, impl.node, waiter.mutex, waiter.changed, waiter.done);
    while (!wait.until_done()) {
        const api::RuntimeImpl::ActiveCall active(impl, call);
        const LoopNotifier after(impl);
        wait.borrow_turns();
    }
}

static void check_manual(const api::RuntimeImpl& impl, const char* call) {
    if (impl.node.context.is_forked()) base::abort_forked(call);
    if (impl.commons.options.manual) return;
    base::abort_misused(call,
                        "the runtime has a thread of its own that turns it; only with "
                        "RuntimeOptions::manual a program does");
}

static void check_turner(const api::RuntimeImpl& impl, const char* call) {
    if (!impl.node.context.is_forked()) check_may_wait(impl, call);
    check_manual(impl, call);
}

// Of several contexts; or the misuse of a runtime that has threads.
[[gnu::noinline]] static std::uint32_t turn_all(api::RuntimeImpl& impl) {
    check_turner(impl, "Runtime::turn()");
    WEFT_ASSERT(impl.nodes.size() > 1);
    std::uint32_t events = 0;
    for (const auto& node : impl.nodes)
        events += node->context.turn(impl.commons.parts.clock->now()).events;
    return events;
}

// The context itself detects a nested turn and a forked child.
std::uint32_t Runtime::turn() {
    WEFT_DCHECK(!manual_node_ || manual_node_ == &impl_->node);
    if (!manual_node_) [[unlikely]]
        return turn_all(own(impl_));
    core::Context& context = manual_node_->context;
    return context.turn(context.clock().now()).events;
}

// An event loop has one descriptor.
static void check_one_context(const api::RuntimeImpl& impl, const char* call) {
    if (impl.nodes.size() == 1) return;
    base::abort_misused(call,
                        "called for a runtime with several contexts, which needs an event loop for "
                        "each: turn() or turn_until() turns all of them on one thread");
}

// Between turns only the thread that turns a context may read it.
static void check_own_thread(const api::RuntimeImpl& impl, const char* call) {
    if (!impl.node.context.has_turned()) return;
    impl.node.context.require_thread(
        call,
        "called on another thread than the one that turned the runtime "
        "last: call it there, or turn() first");
}

bool Runtime::arm() {
    api::RuntimeImpl& impl = own(impl_);
    check_turner(impl, "Runtime::arm()");  // Its own thread sleeps on this descriptor.
    if (impl.commons.parts.advance_time) {
        base::abort_misused("Runtime::arm()",
                            "called for a host of a simulation, which turns it on virtual time: an "
                            "event loop or weft::AsioDriver would wait for ever; let time pass by "
                            "Simulation::run_until()");
    }
    check_one_context(impl, "Runtime::arm()");
    check_own_thread(impl, "Runtime::arm()");
    return impl.node.driver.arm_for_loop();
}

TimePoint Runtime::next_deadline() const {
    api::RuntimeImpl& impl = own(impl_);
    check_manual(impl, "Runtime::next_deadline()");
    check_one_context(impl, "Runtime::next_deadline()");
    check_own_thread(impl, "Runtime::next_deadline()");
    return impl.node.driver.next_deadline();
}

int Runtime::wait_fd() const {
    api::RuntimeImpl& impl = own(impl_);
    check_manual(impl, "Runtime::wait_fd()");
    check_one_context(impl, "Runtime::wait_fd()");
    return impl.node.driver.wait_fd();
}

void Runtime::set_driven(bool is_driven) { own(impl_).set_driven(is_driven); }

bool Runtime::turn_until(Function<bool()> done, Duration limit) {
    api::RuntimeImpl& impl = own(impl_);
    check_turner(impl, "Runtime::turn_until()");  // Also when it is done at once.
    if (!done) detail::refuse_empty("Runtime::turn_until()");
    if (impl.commons.parts.advance_time) {
        const std::shared_ptr<api::RuntimeImpl> kept = impl_;  // done() may crash the host.
        return kept->commons.parts.advance_time([&] { return done(); }, limit);
    }
    const api::RuntimeImpl::ActiveCall active(impl, "Runtime::turn_until()");
    const LoopNotifier after(impl);
    const TimePoint end = saturating_add(impl.commons.parts.clock->now(), limit);
    while (!done()) {
        const TimePoint now = impl.commons.parts.clock->now();
        if (now >= end) return false;
        std::uint32_t events = 0;
        for (const auto& node : impl.nodes) events += node->context.turn(now).events;
        // A timer is no event, but may have made done() true.
        if (events == 0 && !done()) impl.wait(now, end - now);
    }
    return true;
}

// ---- running until a signal --------------------------------------------------------------------

// Returns when there is a reason to end.
static void wait_for_end(api::RuntimeImpl& impl, api::RunSignals& signals) {
    constexpr int look_every_ms = 1000;
    pollfd watched[3] = {{signals.signal_fd(), POLLIN, 0},
                         {signals.forwarded_fd(), POLLIN, 0},
                         {impl.stop_fd(), POLLIN, 0}};
    while (true) {
        const int found = poll(watched, 3, look_every_ms);
        impl.check_for_stall();
        if (found <= 0) continue;
        base::check_polled(watched);
        const api::RunSignals::Received received = signals.take();
        if (received.report_state) {
            impl.commons.log.warning("the state of the runtime, as asked by a signal:\n" +
                                     impl.state());
        }
        if (received.terminate || watched[2].revents != 0) break;
    }
    impl.stop_event().await_stops();  // The program may destroy the runtime next.
}

static Status why_no_run(const api::RuntimeImpl& impl) {
    if (Status why = impl.node.context.why_forked(); !why.ok()) return why;
    if (impl.is_entered()) {
        return fail(Code::failed_precondition,
                    "Runtime::run() in a callback, handler or coroutine of the same runtime would "
                    "wait for itself: call it in main(), and Runtime::stop() there");
    }
    if (impl.commons.parts.advance_time) {
        return fail(Code::failed_precondition,
                    "Runtime::run() in a simulation, where nothing turns the host meanwhile: call "
                    "Simulation::run_until()");
    }
    return {};
}

Status Runtime::run() {
    api::RuntimeImpl& impl = own(impl_);
    if (Status why = why_no_run(impl); !why.ok()) return why;
    base::mark_exit();  // Regardless of earlier calls, as by a static owner's constructor.
    const api::RuntimeImpl::ActiveCall active(impl, "Runtime::run()");
    api::RunSignals signals(impl.commons.options.state_signal);
    if (!signals.is_usable()) {
        return fail(Code::resource_exhausted, "no file descriptor for signals left (ulimit -n)");
    }
    wait_for_end(impl, signals);
    Status status = impl.drain([&](Duration longest) {
        pollfd watched[2] = {{signals.signal_fd(), POLLIN, 0}, {signals.forwarded_fd(), POLLIN, 0}};
        return poll(watched, 2, static_cast<int>(longest / 1ms)) > 0 && signals.take().terminate;
    });
    if (status.code() == Code::deadline_exceeded) {
        impl.commons.log.warning("handlers or replies were left, the state of the runtime:\n" +
                                 impl.state());
    }
    return status;
}

void Runtime::stop() { own(impl_).stop(); }

std::string Runtime::state() { return own(impl_).state(); }
std::vector<ContextLoad> Runtime::loads() const { return own(impl_).loads(); }

}  // namespace weft
