// Awaits awaitables of the program ("foreign" ones) in a weft::Task. weft can't cancel such a wait:
// after the end of a runtime each one first checks whether its task loops without end.
#pragma once

#include <coroutine>
#include <type_traits>
#include <utility>

#include <weft/async_frame.h>
#include <weft/function.h>

namespace weft::detail {

template <class A>
concept HasFreeCoAwait = requires {
    operator co_await(std::declval<A>());
};

template <class A>
decltype(auto) awaiter_of(A&& awaited) {
    if constexpr (HasCoAwait<A>) {
        return std::forward<A>(awaited).operator co_await();
    } else if constexpr (HasFreeCoAwait<A>) {
        return operator co_await(std::forward<A>(awaited));
    } else {
        return std::forward<A>(awaited);
    }
}

// In the frame of the task, around the awaitable, which stays where it was made.
template <class A>
class ForeignAwaiter {
  public:
    explicit ForeignAwaiter(A&& awaited) : awaiter_(awaiter_of(std::forward<A>(awaited))) {}
    ForeignAwaiter(const ForeignAwaiter&) = delete;
    ForeignAwaiter& operator=(const ForeignAwaiter&) = delete;

    decltype(auto) await_ready() { return awaiter_.await_ready(); }
    template <class Promise>
    auto await_suspend(std::coroutine_handle<Promise> task) {
        using Suspended = decltype(awaiter_.await_suspend(task));
        const bool is_stopped = begin_foreign_wait(async_frame_of(task));
        if constexpr (std::is_void_v<Suspended>) {
            if (!is_stopped) awaiter_.await_suspend(task);
        } else if constexpr (std::is_same_v<Suspended, bool>) {
            return is_stopped || awaiter_.await_suspend(task);
        } else {
            if (is_stopped) return std::coroutine_handle<>(std::noop_coroutine());
            return std::coroutine_handle<>(awaiter_.await_suspend(task));
        }
    }
    decltype(auto) await_resume() { return awaiter_.await_resume(); }

  private:
    decltype(awaiter_of(std::declval<A>())) awaiter_;
};

// False also for a type with a free `operator co_await` that is not visible here: the compiler
// finds it in the program's coroutine and applies it there.
template <class A>
constexpr bool is_foreign() {
    if constexpr (HasCoAwait<A>) {
        using Given = std::remove_cvref_t<decltype(std::declval<A>().operator co_await())>;
        return !std::is_base_of_v<WeftAwaiter, Given>;
    } else {
        return HasFreeCoAwait<A> || IsAwaiter<A>;
    }
}

template <class A>
decltype(auto) transform_awaited(A&& awaited) {
    if constexpr (is_foreign<A>()) {
        return ForeignAwaiter<A>(std::forward<A>(awaited));
    } else {
        return std::forward<A>(awaited);
    }
}

}  // namespace weft::detail
