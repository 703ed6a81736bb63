#include <weft/home_context.h>

#include <optional>

#include "base/assert.h"
#include "core/context.h"

namespace weft::detail {

static core::Context& context_of(Executor& executor) {
    return static_cast<core::Context&>(executor);
}

struct HomeContext::EndHook : base::Timer, core::Deferred, core::ScopedOperation {
    EndHook(core::Context& at, Function<void(Status)> on_end)
        : context(at), notify_end(std::move(on_end)) {}

    void arm(TimePoint at) {
        context.timers().cancel(*this);
        context.timers().arm(*this, saturating_add(at, reply_grace));
        context.request_turn();
    }
    void end(Status why) {
        const core::Context::ScopeGuard scope_guard(context, ScopedOperation::scope);
        WEFT_ASSERT(notify_end);
        Function<void(Status)> last = std::move(notify_end);  // It may destroy this.
        last(std::move(why));
    }

    core::Context& context;
    Function<void(Status)> notify_end;
    Function<void()> on_cancel;
    bool is_cancelled = false;
};

HomeContext::HomeContext(Function<void(Status)> on_end)
    : executor_(static_cast<core::Context*>(Executor::current())->share()),
      end_hook_(std::make_unique<EndHook>(context_of(*executor_), std::move(on_end))) {
    end_hook_->run = [](core::Deferred& end) {
        static_cast<EndHook&>(end).end(home_ending_status());
    };
    end_hook_->fire = [](base::Timer& timer, TimePoint) {
        EndHook& late = static_cast<EndHook&>(timer);
        if (late.is_cancelled) return late.end(fail(Code::cancelled, core::scope_cancelled_text));
        late.end(fail(Code::deadline_exceeded,
                      "no answer in time from the other runtime, to which the awaited channel or "
                      "group belongs: a handler, completion or coroutine blocks its thread"));
    };
    if (!is_ending()) end_hook_->context.defer_to_end(*end_hook_);
}

HomeContext::~HomeContext() { detach(); }

Status HomeContext::join_call(Function<void()> on_cancel) {
    core::CallScope* const call = end_hook_->context.scope();
    if (!call) return {};
    if (call->cancelled) return fail(Code::cancelled, core::scope_cancelled_text);
    WEFT_ASSERT(!end_hook_->on_cancel && on_cancel);
    end_hook_->on_cancel = std::move(on_cancel);
    end_hook_->cancel = [](core::ScopedOperation& joined) {
        EndHook& here = static_cast<EndHook&>(joined);
        here.on_cancel();
        here.is_cancelled = true;
        here.arm(here.context.clock().now());
    };
    call->add(*end_hook_);
    return {};
}

void HomeContext::limit(TimePoint deadline) {
    if (deadline != never) end_hook_->arm(deadline);
}

void HomeContext::detach() {
    EndHook& end = *end_hook_;
    std::optional<core::ThreadOwnership::UseGuard> here;
    if (end.Timer::is_linked() || end.Deferred::is_linked() || end.ScopedOperation::is_linked()) {
        here.emplace(end.context.require_end_on_thread("an operation of another runtime"));
    }
    if (end.Timer::is_linked()) end.context.timers().cancel(end);
    end.undefer();
    end.ScopedOperation::detach();
}

bool HomeContext::is_ending() const { return end_hook_->context.is_closed(); }

void HomeContext::deliver(Function<void()> work) const {
    executor_->post([this, work = std::move(work)]() mutable {
        const core::Context::ScopeGuard scope_guard(end_hook_->context,
                                                    end_hook_->ScopedOperation::scope);
        work();
    });
}

struct NextTurnWork::Node : core::Deferred, core::ScopedOperation {
    Node(core::Context& at, Function<void()> what) : context(at), work(std::move(what)) {}
    core::Context& context;
    Function<void()> work;
};

void NextTurnWork::run(Function<void()> work) {
    auto* const here = static_cast<core::Context*>(Executor::current());
    if (!here || here->is_forked()) return work();
    WEFT_ASSERT(!node_);
    node_ = new Node(*here, std::move(work));
    if (core::CallScope* const scope = here->scope()) scope->add(*node_);
    node_->run = [](core::Deferred& due) {
        Node& node = static_cast<Node&>(due);
        const core::Context::ScopeGuard scope_guard(node.context, node.ScopedOperation::scope);
        node.detach();
        Function<void()> then = std::move(node.work);
        then();  // May destroy the node.
    };
    here->defer(*node_);
}

void NextTurnWork::drop() {
    if (!node_) return;
    std::optional<core::ThreadOwnership::UseGuard> here;
    if (node_->Deferred::is_linked() || node_->ScopedOperation::is_linked()) {
        here.emplace(node_->context.require_end_on_thread("an operation that was refused"));
    }
    node_->undefer();
    delete std::exchange(node_, nullptr);
}

void require_end_on_thread(Executor& executor, const char* what) {
    (void)static_cast<core::Context&>(executor).require_end_on_thread(what);
}

Status home_ending_status() {
    return fail(Code::cancelled, "the runtime on which it is awaited is shutting down");
}

}  // namespace weft::detail
