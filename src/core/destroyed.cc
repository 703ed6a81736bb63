// Operations and tasks that are destroyed while a coroutine awaits them by reference.
#include <weft/reference_awaiter.h>
#include <weft/result.h>
#include <weft/task.h>

#include <memory>
#include <new>
#include <string>
#include <utility>

#include "core/async_root.h"
#include "core/context_registration.h"

namespace weft::detail {
namespace {

// Replaces the destroyed operation.
struct DestroyedOperation {
    DestroyedOperation() = default;
    DestroyedOperation(const DestroyedOperation&) = delete;
    DestroyedOperation& operator=(const DestroyedOperation&) = delete;
    ~DestroyedOperation() { awaiter_slot.detach(); }
    AwaiterSlot awaiter_slot;
};

// The context in which a coroutine resumes that awaits a destroyed operation; nullptr: it stays
// suspended. After the end of its runtime it resumes in after-end work only. Elsewhere the objects
// that it and its locals refer to may be destroyed, too, or be about to be.
std::shared_ptr<core::Context> context_to_resume_in(AsyncFrame* async_frame, const char* what) {
    if (!async_frame) return nullptr;  // A type of the program's own.
    const AsyncRoot* const root = root_of(async_frame);
    if (!root) {
        auto* const here = static_cast<core::Context*>(Executor::current());
        if (!here || here->is_forked()) return nullptr;
        return {std::shared_ptr<void>(), here};
    }
    std::shared_ptr<core::Context> home = core::ContextRegistration::find(root->home);
    if (!home) return nullptr;
    if (home->has_ended()) return home->is_entered() ? home : nullptr;
    (void)home->require_end_on_thread(what);
    return home;
}

// Resumes the coroutine in the call that started its root.
void resume_in_scope(core::Context& home, std::coroutine_handle<> coroutine,
                     AsyncFrame* async_frame) {
    const AsyncRoot* const root = root_of(async_frame);
    const core::Context::ScopeGuard scope_guard(home, root ? open_scope(*root, home) : nullptr);
    resume_or_end(coroutine, async_frame);
}

}  // namespace

Status destroyed_status(const char* what) {
    return fail(Code::cancelled, std::string(what) +
                                     " was destroyed while a coroutine awaited it: keep what is "
                                     "awaited until co_await gives its result")
        .with_effect(Effect::unknown);
}

void throw_destroyed(const char* what) { throw BadResult(destroyed_status(what)); }

void AwaiterSlot::on_destroyed() noexcept {
    const std::shared_ptr<core::Context> context =
        is_suspended() ? context_to_resume_in(async_frame(), "an operation that a coroutine awaits")
                       : nullptr;
    if (!context) return detach();
    try {
        auto destroyed = std::make_unique<DestroyedOperation>();
        destroyed->awaiter_slot.replace(*this);
        context->post([at = context.get(), destroyed = std::move(destroyed)] {
            if (!destroyed->awaiter_slot.is_suspended()) return;  // Destroyed meanwhile.
            const std::coroutine_handle<> coroutine = destroyed->awaiter_slot.coroutine();
            AsyncFrame* const async_frame = destroyed->awaiter_slot.async_frame();
            destroyed->awaiter_slot.detach();
            resume_in_scope(*at, coroutine, async_frame);
        });
    } catch (const std::bad_alloc&) {
        detach();
    }
}

DestroyedTask::DestroyedTask(TaskLink& of, std::coroutine_handle<> of_awaiting)
    : link(&of), awaiting(of_awaiting) {
    link->task =
        reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(this) | TaskLink::destroyed_bit);
}

void DestroyedTask::forget() {
    if (TaskLink* const from = std::exchange(link, nullptr)) {
        from->task = reinterpret_cast<void*>(TaskLink::destroyed_bit);
    }
}

void PromiseBase::on_destroyed() noexcept {
    TaskLink& link = *std::exchange(awaiter, nullptr);
    link.task = nullptr;
    const std::shared_ptr<core::Context> context =
        context_to_resume_in(outer, "a weft::Task that a coroutine awaits");
    if (!context) return;
    try {
        auto destroyed = std::make_unique<DestroyedTask>(link, continuation);
        context->post([at = context.get(), destroyed = std::move(destroyed), async_frame = outer] {
            if (!destroyed->link) return;  // The awaiting coroutine was destroyed meanwhile.
            destroyed->forget();
            resume_in_scope(*at, destroyed->awaiting, async_frame);
        });
    } catch (const std::bad_alloc&) {
        // The awaiting coroutine stays suspended.
    }
}

}  // namespace weft::detail
