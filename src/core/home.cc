#include <weft/home.h>

#include "core/context.h"

namespace weft::detail {

struct Home::AtEnd : core::Deferred {
    Function<void()> told;
};

Home::Home(Function<void()> on_end)
    : executor_(static_cast<core::Context*>(Executor::current())->share()),
      at_end_(std::make_unique<AtEnd>()) {
    at_end_->told = std::move(on_end);
    at_end_->run = [](core::Deferred& end) { static_cast<AtEnd&>(end).told(); };
    if (!is_over()) static_cast<core::Context&>(*executor_).defer_to_end(*at_end_);
}

Home::~Home() { leave(); }

void Home::leave() {
    if (at_end_->is_linked()) require_end_here(*executor_, "an operation of another runtime");
    at_end_->take_back();
}

void require_end_here(const Executor& executor, const char* what) {
    static_cast<const core::Context&>(executor).require_thread(what, core::dropped_elsewhere_text);
}

bool Home::is_over() const { return static_cast<const core::Context&>(*executor_).is_closed(); }

Status home_ends() {
    return fail(Code::cancelled, "the runtime on which it is awaited is shutting down");
}

}  // namespace weft::detail
