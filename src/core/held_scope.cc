#include <weft/offload.h>

#include "core/context.h"

namespace weft::detail {

struct HeldScope::Held : core::InScope {
    explicit Held(core::Context& of) : context(of) {}
    core::Context& context;
};

HeldScope::HeldScope() = default;
HeldScope::~HeldScope() = default;

void HeldScope::hold() {
    auto& context = static_cast<core::Context&>(*Executor::current());
    if (core::Scope* scope = context.scope()) {
        held_ = std::make_unique<Held>(context);
        scope->add(*held_);
    }
}

void HeldScope::resume(std::coroutine_handle<> awaiting) {
    if (!held_) return awaiting.resume();
    const core::Context::Within within(held_->context, held_->scope);
    held_ = nullptr;
    awaiting.resume();  // May destroy this.
}

}  // namespace weft::detail
