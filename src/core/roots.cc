#include "core/roots.h"

#include "core/scope.h"

namespace weft::detail {

static core::Context* turning_here() { return static_cast<core::Context*>(Executor::current()); }
static core::Scope* scope_here() { return turning_here() ? turning_here()->scope() : nullptr; }

Root::Root()
    : Level(Kind::root),
      home(turning_here() ? turning_here()->number() : 0),
      scope(scope_here()),
      scope_generation(scope ? scope->generation : 0) {}

Root* root_of(Level* level) {
    if (!level) return nullptr;
    while (level->outer) level = level->outer;
    return level->kind == Level::Kind::root ? static_cast<Root*>(level) : nullptr;
}

core::Context* entered_home(const Root& root) {
    for (Executor* const around : core::Context::entered()) {
        auto* const context = static_cast<core::Context*>(around);
        if (context->number() == root.home) return context;
    }
    return nullptr;
}

core::Scope* open_scope(const Root& root, const core::Context& home) {
    if (!root.scope || home.is_over()) return nullptr;  // Its calls may be gone.
    return root.scope->generation == root.scope_generation ? root.scope : nullptr;
}

void end_root(Root& root, core::Context& at) {
    root.is_dropped = true;
    if (!root.end) at.post_end([end = std::make_unique<RootEnd>(root)] {});
}

}  // namespace weft::detail
