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
#include "base/assert.h"
#include "base/exiting.h"
#include "base/fork.h"
#include "base/own_descriptor.h"
#include "base/unique_fd.h"

extern char** environ;

namespace weft {

using api::own;

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
    effective->options.contexts = api::contexts_of(effective->options);
    Result<std::shared_ptr<api::RuntimeImpl>> impl =
        api::RuntimeImpl::make(std::move(effective->options), api::production_parts());
    if (!impl) return std::move(impl).status();
    warn_once((*impl)->commons.log, effective->warning);
    return Runtime(*std::move(impl));
}

api::RuntimeImpl& api::own(const std::shared_ptr<RuntimeImpl>& impl) {
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

Result<Channel> Runtime::connect(const Addresses& to, ConnectOptions with) {
    return own(impl_).connect(to.uris(), with);
}

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
