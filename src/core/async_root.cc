#include "core/async_root.h"

#include <new>
#include <utility>

#include "base/assert.h"
#include "core/context_registration.h"
#include "core/inherited_scope.h"

namespace weft::detail {

static core::Context* turning_here() { return static_cast<core::Context*>(Executor::current()); }
static core::CallScope* scope_here() { return turning_here() ? turning_here()->scope() : nullptr; }

AsyncRoot::AsyncRoot()
    : AsyncFrame(Kind::root),
      home(turning_here() ? turning_here()->number() : 0),
      scope(scope_here()),
      scope_generation(scope ? scope->generation : 0) {}

AsyncRoot* root_of(AsyncFrame* async_frame) {
    if (!async_frame) return nullptr;
    while (async_frame->outer) async_frame = async_frame->outer;
    return async_frame->kind == AsyncFrame::Kind::root ? static_cast<AsyncRoot*>(async_frame)
                                                       : nullptr;
}

core::Context* entered_home_context(const AsyncRoot& root) {
    for (Executor* const around : core::Context::entered_contexts()) {
        auto* const context = static_cast<core::Context*>(around);
        if (context->number() == root.home) return context;
    }
    return nullptr;
}

core::CallScope* open_scope(const AsyncRoot& root, const core::Context& home) {
    WEFT_DCHECK(home.is_entered());
    if (!root.scope || home.has_ended()) return nullptr;  // Its calls may be destroyed.
    return root.scope->generation == root.scope_generation ? root.scope : nullptr;
}

RootExtras& AsyncRoot::make_extras() {
    if (!extras) extras = new RootExtras;
    return *extras;
}

// The coroutine's parameters are destroyed after this, and may use the services as the code that
// resumed it may: the last reference is released after the work that runs now.
void AsyncRoot::release_extras() noexcept {
    std::shared_ptr<void> services = std::move(extras->services);
    if (extras->end) extras->end->root = nullptr;
    delete std::exchange(extras, nullptr);
    core::Context* const here = turning_here();
    if (!services || !here || (here->number() == home && !here->has_ended())) return;
    try {
        here->post([last = std::move(services)] {});
    } catch (const std::bad_alloc&) {
        // They are destroyed here.
    }
}

void keep_services(AsyncRoot& root) {
    if (root.home == 0 || (root.extras && root.extras->services)) return;
    core::Context* const here = turning_here();
    const bool is_home = here && here->number() == root.home;
    const auto found = is_home ? nullptr : core::ContextRegistration::find(root.home);
    core::Context* const home = is_home ? here : found.get();
    if (!home) return;
    if (std::shared_ptr<void> services = home->services().get())
        root.make_extras().services = std::move(services);
}

void end_root(AsyncRoot& root, core::Context& at) {
    root.is_dropped = true;
    if (!root.extras || !root.extras->end)
        at.after_end().post_coroutine_end([end = std::make_unique<RootDestroyer>(root)] {});
}

}  // namespace weft::detail
