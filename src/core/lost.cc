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

// Where the coroutine of that level goes on. nullptr: nowhere.
core::Context* home_of(Level* level) {
    const Root* const root = root_of(level);
    if (!root) return nullptr;
    core::Context* const entered = home_of(*root);
    return entered ? entered : core::Living::of_this_thread(root->home);
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
    core::Context* const home = is_suspended() ? home_of(level()) : nullptr;
    if (!home) return leave();
    try {
        auto lost = std::make_unique<LostOperation>();
        lost->awaiting.replace(*this);
        home->post([lost = std::move(lost)] {
            Awaiting& awaiting = lost->awaiting;
            if (!awaiting.is_suspended()) return;  // Destroyed meanwhile.
            const std::coroutine_handle<> coroutine = awaiting.coroutine();
            Level* const level = awaiting.level();
            awaiting.leave();
            detail::resume_or_end(coroutine, level);
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
    core::Context* const home = home_of(outer);
    if (!home) return;
    try {
        auto lost = std::make_unique<LostTask>(link, continuation);
        home->post([lost = std::move(lost), level = outer] {
            if (!lost->link) return;  // What awaited it was destroyed meanwhile.
            lost->forget();
            resume_or_end(lost->awaiting, level);
        });
    } catch (const std::bad_alloc&) {
        // What awaits it stays suspended.
    }
}

}  // namespace weft::detail
