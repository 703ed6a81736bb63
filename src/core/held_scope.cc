#include <weft/offload.h>

#include <cstdio>
#include <cstdlib>

#include <weft/combine.h>

#include "core/context.h"

namespace weft::detail {

struct HeldScope::Held : core::InScope {
    explicit Held(core::Context& of) : context(of) {}
    core::Context& context;
};

HeldScope::HeldScope() = default;

HeldScope::~HeldScope() {
    if (!is_under_way_) return;
    std::fputs(
        "weft: a coroutine was destroyed while work that it offloaded was under way, which may use "
        "it; let co_await offload(...) end first\n",
        stderr);
    std::abort();
}

// The work of a branch is the work of those around it.
static bool release(Branch& innermost) {
    Branch* dropped = nullptr;
    for (Branch* branch = &innermost; branch; branch = branch->outer) {
        --branch->held;
        if (branch->is_dropped) dropped = branch;
    }
    if (dropped && dropped->held == 0) dropped->fork->release();
    return !dropped;
}

bool HeldScope::hold(Branch* branch) {
    if (branch && branch->is_in_dropped()) return false;
    is_under_way_ = true;
    branch_ = branch;
    for (; branch; branch = branch->outer) ++branch->held;
    auto& context = static_cast<core::Context&>(*Executor::current());
    if (core::Scope* scope = context.scope()) {
        held_ = std::make_unique<Held>(context);
        scope->add(*held_);
    }
    return true;
}

void HeldScope::resume(std::coroutine_handle<> awaiting) {
    is_under_way_ = false;
    if (branch_ && !release(*branch_)) return;
    if (!held_) return awaiting.resume();
    const core::Context::Within within(held_->context, held_->scope);
    held_ = nullptr;
    awaiting.resume();  // May destroy this.
}

}  // namespace weft::detail
