#include <weft/home.h>

#include <optional>

#include "core/context.h"

namespace weft::detail {

static core::Context& context_of(Executor& executor) {
    return static_cast<core::Context&>(executor);
}

struct Home::AtEnd : base::Timer, core::Deferred, core::InScope {
    AtEnd(core::Context& at, Function<void(Status)> on_end)
        : context(at), told(std::move(on_end)) {}

    void arm(TimePoint at) {
        context.timers().cancel(*this);
        context.timers().arm(*this, saturating_add(at, answer_time));
        context.rouse();
    }
    void end(Status why) {
        const core::Context::Within within(context, InScope::scope);
        Function<void(Status)> last = std::move(told);  // It may destroy this.
        last(std::move(why));
    }

    core::Context& context;
    Function<void(Status)> told;
    Function<void()> cancelled;
    bool is_cancelled = false;
};

Home::Home(Function<void(Status)> on_end)
    : executor_(static_cast<core::Context*>(Executor::current())->share()),
      at_end_(std::make_unique<AtEnd>(context_of(*executor_), std::move(on_end))) {
    at_end_->run = [](core::Deferred& end) { static_cast<AtEnd&>(end).end(home_ends()); };
    at_end_->fire = [](base::Timer& timer, TimePoint) {
        AtEnd& late = static_cast<AtEnd&>(timer);
        if (late.is_cancelled) return late.end(fail(Code::cancelled, core::scope_cancelled_text));
        late.end(fail(Code::deadline_exceeded,
                      "no answer in time from the other runtime, whose channel or group it was "
                      "awaited through: a handler, completion or coroutine blocks its thread"));
    };
    if (!is_over()) at_end_->context.defer_to_end(*at_end_);
}

Home::~Home() { leave(); }

Status Home::join_call(Function<void()> on_cancel) {
    core::Scope* const call = at_end_->context.scope();
    if (!call) return {};
    if (call->cancelled) return fail(Code::cancelled, core::scope_cancelled_text);
    at_end_->cancelled = std::move(on_cancel);
    at_end_->cancel = [](core::InScope& joined) {
        AtEnd& here = static_cast<AtEnd&>(joined);
        here.cancelled();
        here.is_cancelled = true;
        here.arm(here.context.clock().now());
    };
    call->add(*at_end_);
    return {};
}

void Home::limit(TimePoint deadline) {
    if (deadline != never) at_end_->arm(deadline);
}

void Home::leave() {
    AtEnd& end = *at_end_;
    std::optional<core::OwnThread::Here> here;
    if (end.Timer::is_linked() || end.Deferred::is_linked() || end.InScope::is_linked()) {
        here.emplace(end.context.require_end_here("an operation of another runtime"));
    }
    if (end.Timer::is_linked()) end.context.timers().cancel(end);
    end.take_back();
    end.InScope::leave();
}

bool Home::is_over() const { return at_end_->context.is_closed(); }

void Home::bring(Function<void()> work) const {
    executor_->post([this, work = std::move(work)]() mutable {
        const core::Context::Within within(at_end_->context, at_end_->InScope::scope);
        work();
    });
}

struct Later::Node : core::Deferred, core::InScope {
    Node(core::Context& at, Function<void()> what) : context(at), work(std::move(what)) {}
    core::Context& context;
    Function<void()> work;
};

void Later::run(Function<void()> work) {
    auto* const here = static_cast<core::Context*>(Executor::current());
    if (!here || here->is_forked()) return work();
    node_ = new Node(*here, std::move(work));
    if (core::Scope* const scope = here->scope()) scope->add(*node_);
    node_->run = [](core::Deferred& due) {
        Node& node = static_cast<Node&>(due);
        const core::Context::Within within(node.context, node.InScope::scope);
        node.leave();
        Function<void()> then = std::move(node.work);
        then();  // May destroy the node.
    };
    here->defer(*node_);
}

void Later::drop() {
    if (!node_) return;
    std::optional<core::OwnThread::Here> here;
    if (node_->Deferred::is_linked() || node_->InScope::is_linked()) {
        here.emplace(node_->context.require_end_here("an operation that was refused"));
    }
    node_->take_back();
    delete std::exchange(node_, nullptr);
}

void require_end_here(Executor& executor, const char* what) {
    (void)static_cast<core::Context&>(executor).require_end_here(what);
}

Status home_ends() {
    return fail(Code::cancelled, "the runtime on which it is awaited is shutting down");
}

}  // namespace weft::detail
