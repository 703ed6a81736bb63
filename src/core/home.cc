#include <weft/home.h>

#include "core/context.h"

namespace weft::detail {

struct Home::AtEnd : core::Deferred, core::InScope {
    Function<void()> told, cancelled;
};

static core::Context& context_of(Executor& executor) {
    return static_cast<core::Context&>(executor);
}

Home::Home(Function<void()> on_end)
    : executor_(static_cast<core::Context*>(Executor::current())->share()),
      at_end_(std::make_unique<AtEnd>()) {
    at_end_->told = std::move(on_end);
    at_end_->run = [](core::Deferred& end) { static_cast<AtEnd&>(end).told(); };
    if (!is_over()) context_of(*executor_).defer_to_end(*at_end_);
}

Home::~Home() { leave(); }

void Home::join_call(Function<void()> on_cancel) {
    core::Scope* const call = context_of(*executor_).scope();
    if (!call) return;
    at_end_->cancelled = std::move(on_cancel);
    at_end_->cancel = [](core::InScope& joined) { static_cast<AtEnd&>(joined).cancelled(); };
    call->add(*at_end_);
}

void Home::leave() {
    if (at_end_->Deferred::is_linked() || at_end_->InScope::is_linked()) {
        require_end_here(*executor_, "an operation of another runtime");
    }
    at_end_->take_back();
    at_end_->InScope::leave();
}

bool Home::is_over() const { return context_of(*executor_).is_closed(); }

void Home::bring(Function<void()> work) const {
    executor_->post([this, work = std::move(work)]() mutable {
        const core::Context::Within within(context_of(*executor_), at_end_->scope);
        work();
    });
}

void require_end_here(const Executor& executor, const char* what) {
    static_cast<const core::Context&>(executor).require_thread(what, core::dropped_elsewhere_text);
}

Status home_ends() {
    return fail(Code::cancelled, "the runtime on which it is awaited is shutting down");
}

}  // namespace weft::detail
