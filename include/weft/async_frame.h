// The chain of coroutines that await each other, up to the one that owns itself.
#pragma once

#include <coroutine>
#include <cstdint>
#include <memory>
#include <type_traits>

#include <weft/executor.h>

namespace weft::core {
struct CallScope;
}  // namespace weft::core

namespace weft::detail {

// A coroutine's link in the chain: `outer` leads from a task to its awaiter, and from a branch to
// the coroutine that combines it. The end of either cuts the chain. Does not move.
struct AsyncFrame {
    enum class Kind : std::uint8_t { task, branch, root };

    explicit AsyncFrame(Kind of = Kind::task) : kind(of) {}
    AsyncFrame(const AsyncFrame&) = delete;
    AsyncFrame& operator=(const AsyncFrame&) = delete;
    ~AsyncFrame() {
        if (pin_count != 0 || abandoned || is_abandoned) [[unlikely]]
            unlink_frames();
    }
    // The awaiter is being destroyed. This stays linked until it is: if the awaiter or an outer
    // frame is dropped meanwhile, so is this.
    void abandon() noexcept {
        if (!outer) return;
        outer->abandoned = this;
        is_abandoned = true;
    }
    // Unlinks this from its outer frame, and the frame that this awaited from this.
    void unlink_frames() noexcept;
    // True when this or an outer frame is dropped.
    bool is_in_dropped() const;

    AsyncFrame* outer = nullptr;      // nullptr: none, or a coroutine of the program's own type.
    AsyncFrame* abandoned = nullptr;  // While this is being destroyed: the frame it awaited.
    std::uint32_t pin_count = 0;  // Pins by offloaded work, which may use memory of this coroutine.
    const Kind kind;
    bool is_dropped = false;  // Of a branch or root: destroy once nothing pins it.
    bool is_abandoned = false;
};

// Counts waits of tasks that await each other, after their runtime began to end.
struct AfterEndWaits {
    std::uint32_t count = 0;
    std::uint32_t runs = 0;  // Runs of after-end work (core/after_end.h) with such waits.
    std::uint32_t run = 0;   // The number of the last one.
};

struct AsyncRoot;

// Destroys a dropped root, once no code runs in it and nothing pins it.
struct RootDestroyer {
    explicit RootDestroyer(AsyncRoot& of);
    RootDestroyer(const RootDestroyer&) = delete;
    RootDestroyer& operator=(const RootDestroyer&) = delete;
    ~RootDestroyer();
    AsyncRoot* root;  // nullptr: destroyed.
};

// What few roots have.
struct RootExtras {
    RootDestroyer* end = nullptr;    // nullptr: none is posted.
    std::shared_ptr<void> services;  // Those that its runtime made (ServiceFactory).
};

// The root of a chain: of a coroutine that owns itself and ends with its runtime.
struct AsyncRoot : AsyncFrame {
    AsyncRoot();  // In the context and the call of this thread.
    ~AsyncRoot() {
        if (extras) [[unlikely]]
            release_extras();
    }
    RootExtras& make_extras();  // Those that are there, or new ones.
    void release_extras() noexcept;

    const std::uint64_t home;      // The number of the context, which may have ended; 0: none.
    core::CallScope* const scope;  // Of the call, while it has this generation; or nullptr.
    const std::uint32_t scope_generation;
    std::coroutine_handle<> coroutine;
    std::uint32_t after_end_offloads = 0;  // Offloads after its runtime began to end.
    AfterEndWaits after_end_waits;
    RootExtras* extras = nullptr;  // nullptr: none.
};

// nullptr: a coroutine of the program's own type.
template <class Promise>
AsyncFrame* async_frame_of(std::coroutine_handle<Promise> coroutine) noexcept {
    if constexpr (std::is_base_of_v<AsyncFrame, Promise>) {
        return &coroutine.promise();
    } else {
        return nullptr;
    }
}

// Base of the awaiters that `operator co_await` of weft's own types returns (weft/foreign.h).
struct WeftAwaiter {};

// Gives the AsyncFrame of the coroutine that awaits it.
struct CurrentAsyncFrame {
    class Awaiter : public WeftAwaiter {
      public:
        bool await_ready() const noexcept { return false; }
        template <class Promise>
        bool await_suspend(std::coroutine_handle<Promise> self) noexcept {
            async_frame_ = async_frame_of(self);
            return false;
        }
        AsyncFrame* await_resume() const noexcept { return async_frame_; }

      private:
        AsyncFrame* async_frame_ = nullptr;
    };
    Awaiter operator co_await() const noexcept { return {}; }
};

// Resumes the coroutine. After the runtime's end, a coroutine that loops without end is not
// resumed; its root is destroyed instead.
void resume_or_end(std::coroutine_handle<> awaiting, AsyncFrame* async_frame);
// Call before a coroutine waits for an event that the program signals, possibly after the end of
// the runtime: from then on its root keeps the services that the runtime made. True: the coroutine
// loops without end after the runtime's end, and stays suspended; its root is destroyed soon.
// Throws std::bad_alloc.
bool begin_foreign_wait(AsyncFrame* async_frame);

}  // namespace weft::detail
