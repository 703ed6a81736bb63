// Operations and tasks that are destroyed while a coroutine awaits them by reference.
#include <weft/in_place.h>
#include <weft/result.h>
#include <weft/task.h>

#include <memory>
#include <new>
#include <string>
#include <utility>

#include "core/living.h"
#include "core/roots.h"

namespace weft::detail {
namespace {

// Stands for the operation that is gone.
struct LostOperation {
    LostOperation() = default;
    LostOperation(const LostOperation&) = delete;
    LostOperation& operator=(const LostOperation&) = delete;
    ~LostOperation() { awaiting.leave(); }
    Awaiting awaiting;
};

// In whose turns a coroutine goes on that awaits what is gone; nullptr: in none, it stays
// suspended. Outside of the late work of a runtime that has ended what it refers to may be gone,
// too, or about to be, and its locals may refer to what is just being destroyed.
std::shared_ptr<core::Context> place_of(Level* level, const char* what) {
    if (!level) return nullptr;  // Of the program's own type.
    const Root* const root = root_of(level);
    if (!root) {
        auto* const here = static_cast<core::Context*>(Executor::current());
        if (!here || here->is_forked()) return nullptr;
        return {std::shared_ptr<void>(), here};
    }
    std::shared_ptr<core::Context> home = core::Living::find(root->home);
    if (!home) return nullptr;
    if (home->is_over()) return home->is_entered() ? home : nullptr;
    (void)home->require_end_here(what);
    return home;
}

// In the call that its root was begun in.
void go_on(core::Context& home, std::coroutine_handle<> coroutine, Level* level) {
    const Root* const root = root_of(level);
    const core::Context::Within within(home, root ? open_scope(*root, home) : nullptr);
    resume_or_end(coroutine, level);
}

}  // namespace

Status lost_status(const char* what) {
    return fail(Code::cancelled, std::string(what) +
                                     " was destroyed while a coroutine awaited it: keep what is "
                                     "awaited until co_await gives its result")
        .with_effect(Effect::unknown);
}

void throw_lost(const char* what) { throw BadResult(lost_status(what)); }

void Awaiting::lose() noexcept {
    const std::shared_ptr<core::Context> place =
        is_suspended() ? place_of(level(), "an operation that a coroutine awaits") : nullptr;
    if (!place) return leave();
    try {
        auto lost = std::make_unique<LostOperation>();
        lost->awaiting.replace(*this);
        place->post([at = place.get(), lost = std::move(lost)] {
            if (!lost->awaiting.is_suspended()) return;  // Destroyed meanwhile.
            const std::coroutine_handle<> coroutine = lost->awaiting.coroutine();
            Level* const level = lost->awaiting.level();
            lost->awaiting.leave();
            go_on(*at, coroutine, level);
        });
    } catch (const std::bad_alloc&) {
        leave();
    }
}

LostTask::LostTask(TaskLink& of, std::coroutine_handle<> of_awaiting)
    : link(&of), awaiting(of_awaiting) {
    link->task =
        reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(this) | TaskLink::lost_bit);
}

void LostTask::forget() {
    if (TaskLink* const from = std::exchange(link, nullptr)) {
        from->task = reinterpret_cast<void*>(TaskLink::lost_bit);
    }
}

void PromiseBase::lose() noexcept {
    TaskLink& link = *std::exchange(awaiter, nullptr);
    link.task = nullptr;
    const std::shared_ptr<core::Context> place =
        place_of(outer, "a weft::Task that a coroutine awaits");
    if (!place) return;
    try {
        auto lost = std::make_unique<LostTask>(link, continuation);
        place->post([at = place.get(), lost = std::move(lost), level = outer] {
            if (!lost->link) return;  // What awaited it was destroyed meanwhile.
            lost->forget();
            go_on(*at, lost->awaiting, level);
        });
    } catch (const std::bad_alloc&) {
        // What awaits it stays suspended.
    }
}

}  // namespace weft::detail
