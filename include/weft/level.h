// Where coroutines stand among those that await each other, up to the one that owns itself.
#pragma once

#include <coroutine>
#include <cstdint>
#include <type_traits>

#include <weft/executor.h>

namespace weft::core {
struct Scope;
}  // namespace weft::core

namespace weft::detail {

// Where a coroutine stands among those that await each other: a task in what awaits it, a branch in
// what combines it. The end of either cuts the way outwards. Lifetime: in place.
struct Level {
    enum class Kind : std::uint8_t { task, branch, root };

    explicit Level(Kind of = Kind::task) : kind(of) {}
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    ~Level() {
        if (held != 0 || left || is_left) [[unlikely]]
            cut();
    }
    // What awaits it is being destroyed, and it is in that to the end: what is in there may be
    // dropped, and this with it.
    void leave() noexcept {
        if (!outer) return;
        outer->left = this;
        is_left = true;
    }
    // From what it is in, and what it awaited from this.
    void cut() noexcept;
    // Or what it is in.
    bool is_in_dropped() const;

    Level* outer = nullptr;  // nullptr: nothing, or a coroutine of the program's own type.
    Level* left = nullptr;   // Where this is being destroyed: what it awaited.
    std::uint32_t held = 0;  // So often by work on other threads, which may use what is in here.
    const Kind kind;
    bool is_dropped = false;  // Of a branch or root: to be destroyed once it is not held.
    bool is_left = false;
};

// What tasks that await each other wait for after the end of their runtime began.
struct LateWaits {
    std::uint32_t count = 0;
    std::uint32_t runs = 0;  // Of late work, in which they did so, and the last of these.
    std::uint32_t run = 0;
};

struct Root;

// Destroys a root that was dropped, once nothing runs in it and nothing holds it.
struct RootEnd {
    explicit RootEnd(Root& of);
    RootEnd(const RootEnd&) = delete;
    RootEnd& operator=(const RootEnd&) = delete;
    ~RootEnd();
    Root* root;  // nullptr: gone.
};

// Around all that a coroutine awaits which owns itself and ends with its runtime.
struct Root : Level {
    Root();  // Of the context and the call that this thread is in.
    ~Root() {
        if (end) [[unlikely]]
            end->root = nullptr;
    }
    const std::uint64_t home;  // The number of the context, which may be gone; 0: of none.
    core::Scope* const scope;  // Of the call, or nullptr, while it has this generation.
    const std::uint32_t scope_generation;
    std::coroutine_handle<> coroutine;
    std::uint32_t late_works = 0;  // That it offloaded after the end of its runtime began.
    LateWaits late_waits;
    RootEnd* end = nullptr;  // Posted. nullptr: none is.
};

// nullptr: of a coroutine of the program's own type.
template <class Promise>
Level* level_of(std::coroutine_handle<Promise> coroutine) noexcept {
    if constexpr (std::is_base_of_v<Level, Promise>) {
        return &coroutine.promise();
    } else {
        return nullptr;
    }
}

// What `operator co_await` of weft's own gives (weft/foreign.h).
struct OwnAwaiter {};

// Gives the level of the coroutine that awaits it.
struct OwnLevel {
    class Awaiter : public OwnAwaiter {
      public:
        bool await_ready() const noexcept { return false; }
        template <class Promise>
        bool await_suspend(std::coroutine_handle<Promise> self) noexcept {
            level_ = level_of(self);
            return false;
        }
        Level* await_resume() const noexcept { return level_; }

      private:
        Level* level_ = nullptr;
    };
    Awaiter operator co_await() const noexcept { return {}; }
};

// Resumes it. Where no turn will come any more, and it goes on and on: destroys its root instead.
void resume_or_end(std::coroutine_handle<> awaiting, Level* level);
// Before a coroutine waits for something of the program's own. True: it goes on and on where no
// turn will come any more, and stays suspended; its root is destroyed soon.
bool end_instead(Level* level) noexcept;

}  // namespace weft::detail
