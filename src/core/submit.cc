#include <weft/submit.h>

#include <memory>
#include <new>
#include <stdexcept>
#include <system_error>

#include "base/assert.h"
#include "core/async_root.h"
#include "core/context.h"

namespace weft::detail {

// The submission, on both ways; and the operation in the scope of the call here, which passes a
// cancel on.
struct SubmitPath::Node : core::Submission, core::ScopedOperation {
    Node(core::Context& from, core::Context& to, AsyncFrame* frame, void* of)
        : home(from), there(to), awaiting(frame), object(of) {}

    core::Context& home;
    core::Context& there;
    AsyncFrame* const awaiting;  // Pinned.
    void* const object;
    Step work = nullptr;
    Step at_end = nullptr;
    core::RemoteScopes::Key key;
    bool has_scope = false;
    bool was_cancelled = false;  // The call, before.
    TimePoint deadline = never;
    core::RemoteScopes::Remote* remote = nullptr;  // Of the other context's thread.
};

SubmitPath::SubmitPath(Executor& there) : there_(there) {
    static_assert(sizeof(Node) <= node_bytes && alignof(Node) <= alignof(void*));
}

SubmitPath::~SubmitPath() = default;  // While the work is under way, `scope_` aborts.

SubmitPath::Node& SubmitPath::node() { return *std::launder(reinterpret_cast<Node*>(node_)); }

std::exception_ptr submission_dropped() {
    return std::make_exception_ptr(
        std::system_error(std::make_error_code(std::errc::operation_canceled),
                          "submitted work was dropped: its runtime has ended"));
}

void SubmitPath::begin(AsyncFrame* async_frame, AwaiterSlot& slot, void* object, Step work,
                       Step finish) {
    auto* const home = static_cast<core::Context*>(Executor::current());
    auto& there = static_cast<core::Context&>(there_);
    if (!home || home->family() != there.family()) {
        throw std::logic_error(
            "submit(): awaited on a thread that turns no context of the runtime: await it in a "
            "coroutine that Runtime::spawn() or Runtime::block_on() starts");
    }
    const OffloadScope::Begin begun = scope_.pin(async_frame);
    if (begun == OffloadScope::Begin::dropped || begun == OffloadScope::Begin::already_started)
        return;
    slot.set_home(home);
    Node& node = *::new (static_cast<void*>(node_)) Node(*home, there, async_frame, object);
    node.work = work;
    node.at_end = finish;
    if (core::CallScope* const scope = home->scope()) {
        node.has_scope = true;
        node.deadline = scope->deadline;
        node.was_cancelled = scope->cancelled;
        node.key = {home->number(), home->next_serial()};
        scope->add(node);
        node.cancel = [](core::ScopedOperation& operation) {
            const Node& cancelled = static_cast<Node&>(operation);
            cancelled.there.post(
                [&to = cancelled.there, key = cancelled.key] { to.remote_scopes().cancel(key); });
        };
    }
    node.Submission::finish = [](core::Submission& submission, core::Submission::Use use) {
        Node& arrived = static_cast<Node&>(submission);
        // Dropped at the end of the runtime, it returns without having run.
        if (use == core::Submission::Use::drop) return start_return(arrived);
        if (!arrived.has_scope) return arrived.work(arrived.object);
        arrived.remote = &arrived.there.remote_scopes().open(arrived.key, arrived.deadline);
        arrived.remote->scope.cancelled = arrived.was_cancelled;
        const core::Context::ScopeGuard scope_guard(arrived.there, &arrived.remote->scope);
        arrived.work(arrived.object);
    };
    if (begun == OffloadScope::Begin::runtime_ended) {
        start_return(node);
    } else {
        there.post(static_cast<core::Submission&>(node));
    }
}

void SubmitPath::arrive(Node& node) {
    node.ScopedOperation::detach();
    node.at_end(node.object);  // May destroy the node.
}

void SubmitPath::start_return(Node& node) {
    node.Submission::finish = [](core::Submission& submission, core::Submission::Use) {
        arrive(static_cast<Node&>(submission));
    };
    node.home.post(static_cast<core::Submission&>(node));
}

// The work went on after the end of the runtime, and may have kept the services alone: the awaiting
// coroutine keeps them next.
struct SubmitPath::LateReturn final : core::Submission {
    LateReturn(Node& of, std::shared_ptr<void> kept) : node(of), services(std::move(kept)) {
        finish = [](core::Submission& submission, Use) {
            const std::unique_ptr<LateReturn> own(static_cast<LateReturn*>(&submission));
            if (AsyncRoot* const root = root_of(own->node.awaiting)) keep_services(*root);
            arrive(own->node);
        };
    }
    Node& node;
    const std::shared_ptr<void> services;
};

void SubmitPath::return_home() {
    Node& node = this->node();
    if (node.remote) node.there.remote_scopes().close(*node.remote);
    if (!node.there.has_ended()) [[likely]]
        return start_return(node);
    std::shared_ptr<void> services = node.there.services().get();
    auto* const late =
        services ? new (std::nothrow) LateReturn(node, std::move(services)) : nullptr;
    late ? node.home.post(static_cast<core::Submission&>(*late)) : start_return(node);
}

}  // namespace weft::detail
