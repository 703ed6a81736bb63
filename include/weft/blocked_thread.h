// The state that Runtime::block_on() shares with its task.
#pragma once

#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>

#include <weft/task.h>

namespace weft::detail {

// A thread in block_on().
struct BlockedThread {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    AsyncRoot* root = nullptr;  // Of the coroutine, while it runs.
};

// The outcome of the task.
template <class T>
struct BlockOnState : BlockedThread {
    std::optional<std::conditional_t<std::is_void_v<T>, char, T>> value;
    std::exception_ptr thrown;
};

// Releases the waiting thread, whether the coroutine ends or is destroyed with its runtime.
template <class T>
struct BlockOnEnd {
    BlockOnState<T>& state;
    ~BlockOnEnd() {
        const std::lock_guard lock(state.mutex);
        state.root = nullptr;
        state.done = true;
        state.changed.notify_all();
    }
};

// Throws BadResult: the runtime ended before the task.
[[noreturn]] void throw_cancelled();

template <class T>
WEFT_HEADER_COROUTINE Detached run_blocking_task(Task<T> given, BlockOnState<T>& state) {
    const BlockOnEnd<T> end{state};
    state.root = static_cast<AsyncRoot*>(co_await CurrentAsyncFrame());
    Task<T> task = std::move(given);  // Destroyed before the thread is released.
    try {
        if constexpr (std::is_void_v<T>) {
            co_await task;
            state.value.emplace();
        } else {
            state.value.emplace(co_await task);
        }
    } catch (...) {
        state.thrown = std::current_exception();
    }
}

// `run(start, waiter)` runs start() on the context's thread, and returns when `waiter` is done.
template <class T, class Run>
T block_on(Task<T> task, const Run& run) {
    BlockOnState<T> state;
    run([&task, &state] { run_blocking_task(std::move(task), state); }, state);
    if (state.thrown) std::rethrow_exception(state.thrown);
    if (!state.value) throw_cancelled();
    if constexpr (!std::is_void_v<T>) return std::move(*state.value);
}

}  // namespace weft::detail
