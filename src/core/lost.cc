// Operations and tasks that are destroyed while a coroutine awaits them by reference.
#include <weft/combine_fork.h>
#include <weft/in_place.h>
#include <weft/result.h>
#include <weft/task.h>

#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "core/living.h"
#include "core/lost.h"
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

// Others of the root may run just now.
bool is_beside_others(const Level* level) {
    while (level && level->kind == Level::Kind::task) level = level->outer;
    return level && level->kind == Level::Kind::branch;
}

// It goes on no more. True: nor does anything else of the root, so that nothing of it runs.
bool is_all_lost(Level* level) {
    if (level->is_in_dropped()) return false;  // What drops it runs.
    for (; level; level = level->outer) {
        if (level->kind != Level::Kind::branch) continue;
        auto& branch = static_cast<Branch&>(*level);
        if (!branch.fork || !branch.fork->lose(branch)) return false;
    }
    return true;
}

// What becomes of a coroutine that awaits what is gone.
struct Fate {
    std::shared_ptr<core::Context> place;  // In whose turns it goes on; nullptr: in none.
    Root* ended = nullptr;                 // It is destroyed instead, there, with this.
};

// Where its runtime has ended, what it refers to may have gone with that, so it is destroyed.
// Beside others, of which one may run just now, it goes on behind the late work that is under way
// here, or stays suspended until none of them goes on: its end, at once, might destroy that one.
Fate fate_of(Level* level, const char* what) {
    if (!level) return {};  // Of the program's own type.
    Root* const root = root_of(level);
    if (!root) {
        auto* const here = static_cast<core::Context*>(Executor::current());
        return {{std::shared_ptr<void>(), here}};
    }
    Fate fate{core::Living::find(root->home)};
    if (fate.place && !fate.place->is_over()) {
        fate.place->require_thread(what, core::dropped_elsewhere_text);
    } else if (is_beside_others(level) && entered_home(*root)) {
        return fate;
    } else if (is_all_lost(level)) {
        fate.ended = root;
    } else {
        fate.place = nullptr;
    }
    return fate;
}

// In the call that its root was begun in.
void go_on(core::Context& home, std::coroutine_handle<> coroutine, Level* level) {
    const Root* const root = root_of(level);
    const core::Context::Within within(home, root ? open_scope(*root, home) : nullptr);
    resume_or_end(coroutine, level);
}

// Runs once it is resumed.
struct Ending {
    struct promise_type {
        Ending get_return_object() {
            return {std::coroutine_handle<promise_type>::from_promise(*this)};
        }
        std::suspend_always initial_suspend() const noexcept { return {}; }
        std::suspend_never final_suspend() const noexcept { return {}; }
        void return_void() const noexcept {}
        void unhandled_exception() const noexcept { std::terminate(); }
    };
    std::coroutine_handle<> coroutine;
};

Ending ending(Root* root) {
    const std::shared_ptr<core::Context> home = core::Living::find(root->home);
    end_root(*root, home.get());
    co_return;
}

}  // namespace

std::coroutine_handle<> end_lost(Level* level) noexcept {
    Root* const root = root_of(level);
    if (!root || !is_all_lost(level)) return std::noop_coroutine();
    try {
        return ending(root).coroutine;
    } catch (const std::bad_alloc&) {
        return std::noop_coroutine();  // It stays suspended.
    }
}

Status lost_status(const char* what) {
    return fail(Code::cancelled, std::string(what) +
                                     " was destroyed while a coroutine awaited it: keep what is "
                                     "awaited until co_await gives its result")
        .with_effect(Effect::unknown);
}

void throw_lost(const char* what) { throw BadResult(lost_status(what)); }

void Awaiting::lose() noexcept {
    Fate fate;
    if (is_suspended()) fate = fate_of(level(), "an operation that a coroutine awaits");
    try {
        if (!fate.place || fate.ended) {
            leave();  // First: the end may come on another thread, at once.
            if (fate.ended) end_root(*fate.ended, fate.place.get());
            return;
        }
        auto lost = std::make_unique<LostOperation>();
        lost->awaiting.replace(*this);
        fate.place->post([at = fate.place.get(), lost = std::move(lost)] {
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
    const Fate fate = fate_of(outer, "a weft::Task that a coroutine awaits");
    try {
        if (fate.ended) return end_root(*fate.ended, fate.place.get());
        if (!fate.place) return;
        auto lost = std::make_unique<LostTask>(link, continuation);
        fate.place->post([at = fate.place.get(), lost = std::move(lost), level = outer] {
            if (!lost->link) return;  // What awaited it was destroyed meanwhile.
            lost->forget();
            go_on(*at, lost->awaiting, level);
        });
    } catch (const std::bad_alloc&) {
        // What awaits it stays suspended.
    }
}

}  // namespace weft::detail
