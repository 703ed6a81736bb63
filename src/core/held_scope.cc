#include <weft/offload.h>

#include <stdexcept>

#include <weft/combine.h>

#include "base/assert.h"
#include "core/context.h"

namespace weft::detail {

struct HeldScope::Held : core::InScope {
    explicit Held(core::Context& of) : context(of) {}
    core::Context& context;
};

HeldScope::HeldScope() = default;

HeldScope::~HeldScope() {
    if (!is_under_way_) return;
    base::abort_misused("co_await offload()",
                        "a coroutine was destroyed while work that it offloaded was under way, "
                        "which may use it; let the work end first");
}

// nullptr: the coroutine is its program's own, and so is its end.
static Root* root_of(Branch* branch) {
    if (!branch) return nullptr;
    while (branch->outer) branch = branch->outer;
    return branch->fork ? nullptr : static_cast<Root*>(branch);
}

void resume_or_end(std::coroutine_handle<> awaiting, Branch* branch) {
    const auto* const here = static_cast<const core::Context*>(Executor::current());
    Root* const root = here && here->is_ending_waiters() ? root_of(branch) : nullptr;
    if (!root) return awaiting.resume();
    root->is_dropped = true;
    if (root->held == 0) root->coroutine.destroy();
}

// The work of a branch is the work of those around it.
static bool release(Branch& innermost) {
    Branch* dropped = nullptr;
    for (Branch* branch = &innermost; branch; branch = branch->outer) {
        --branch->held;
        if (branch->is_dropped) dropped = branch;
    }
    if (dropped && dropped->held == 0) {
        dropped->fork ? dropped->fork->release() : static_cast<Root*>(dropped)->coroutine.destroy();
    }
    return !dropped;
}

// One that offloads as often after its runtime began to end does so for ever.
static constexpr std::uint32_t late_works_max = 100;

HeldScope::Begin HeldScope::hold(Branch* branch) {
    auto* const context = static_cast<core::Context*>(Executor::current());
    if (!context) throw std::logic_error("offload(): " + std::string(nowhere().text()));
    if (branch && branch->is_in_dropped()) return Begin::dropped;
    Root* const root = context->is_closed() ? root_of(branch) : nullptr;
    is_under_way_ = true;
    branch_ = branch;
    for (; branch; branch = branch->outer) ++branch->held;
    if (core::Scope* scope = context->scope()) {
        held_ = std::make_unique<Held>(*context);
        scope->add(*held_);
    }
    return root && ++root->late_works > late_works_max ? Begin::over : Begin::now;
}

void HeldScope::resume(std::coroutine_handle<> awaiting) {
    is_under_way_ = false;
    if (branch_ && !release(*branch_)) return;
    if (!held_) return resume_or_end(awaiting, branch_);
    const core::Context::Within within(held_->context, held_->scope);
    held_ = nullptr;
    resume_or_end(awaiting, branch_);  // May destroy this.
}

}  // namespace weft::detail
