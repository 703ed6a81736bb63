// weft::Task<T>: a lazy coroutine that runs on the context it was started on.
//
// It starts when awaited (or by Runtime::spawn / block_on), its awaiter goes on when it ends, and
// every awaitable of weft resumes it on the executor that the awaitable was made on: its own, since
// it awaits what was made there (weft/await.h). Those of a program resume it on its own, too: one
// that they resume elsewhere is not ended with its runtime, which it keeps as long as it goes on.
// An exception that leaves the body is rethrown to the awaiter. Frames come from a per-thread pool,
// so a steady state allocates nothing.
//
// It is awaited once. To await an empty task throws std::invalid_argument, and one a second time
// std::logic_error; so do Runtime::spawn(), block_on() and those of weft/combine.h. One that lives
// elsewhere goes on when the coroutine that awaits it is destroyed, and its end resumes nothing.
// When it is destroyed first, a task that awaits it goes on in a later turn with CANCELLED, effect
// unknown: as its result where that is a Status or Result, else thrown as BadResult. What that task
// refers to is there until then. Behind the end of its own runtime it is told no more, and stays
// suspended: end what it awaits before, or by what ends that (an event of the program's own, say).
//
// A loop over tasks that end at once takes no more stack with each round: with clang; with g++ at
// -O0, from -O2 on, under sanitizers, and at -O1 and -Og with -foptimize-sibling-calls, which
// weft's CMake package and pkg-config file add. Where that is missing, `co_await sleep_for(0s)`
// (weft/sleep.h) every thousand rounds gives back the stack. Tasks that await each other n deep
// take n stack frames, as functions do, where g++ does not optimise, and under its sanitizers;
// elsewhere none. So does the end of n such tasks that are dropped while they wait, everywhere.
//
// A frame is aligned as operator new aligns: a local that wants more (alignas(64), __m512) is
// misaligned, unreported. Keep it behind a std::unique_ptr. Such a result is refused.
#pragma once

#include <coroutine>
#include <type_traits>
#include <utility>

#include <weft/function.h>
#include <weft/task_promise.h>

namespace weft {

// Move-only. Empty when default-made or moved from. Destroying a task that is suspended destroys
// what it awaits: operations in flight are cancelled and their completions go nowhere. Requires
// then: the context's thread, and none of it in offloaded work (weft/offload.h): that aborts the
// program. A task that runs is not destroyed, not even by its own last line: nothing tells.
template <class T>
class [[nodiscard]] Task {
    static_assert(!std::is_reference_v<T>,
                  "weft::Task returns no reference: give a pointer or std::reference_wrapper");

  public:
    using promise_type = detail::TaskPromise<T>;
    using Handle = std::coroutine_handle<promise_type>;

    Task() = default;
    explicit Task(Handle handle) : handle_(handle) {}
    Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    Task& operator=(Task&& other) noexcept {
        if (this != &other) {
            const Handle old = std::exchange(handle_, std::exchange(other.handle_, nullptr));
            if (old) old.destroy();  // May destroy this.
        }
        return *this;
    }
    ~Task() {
        if (handle_) handle_.destroy();
    }

    explicit operator bool() const { return handle_ != nullptr; }

    // Throws std::invalid_argument for an empty task, std::logic_error for one that was awaited.
    [[gnu::always_inline]] auto operator co_await() { return detail::TaskAwaiter<T>(handle_); }

  private:
    friend detail::TaskAccess;
    Handle handle_;
};

template <class T>
auto detail::TaskPromise<T>::get_return_object() {
    return Task<T>(std::coroutine_handle<TaskPromise>::from_promise(*this));
}
inline auto detail::TaskPromise<void>::get_return_object() {
    return Task<void>(std::coroutine_handle<TaskPromise>::from_promise(*this));
}

namespace detail {

// Nothing awaits the coroutine that the current exception leaves: logs it. Implemented in
// core/task.cc, as throw_empty_task().
void log_unhandled() noexcept;

// A coroutine that owns itself: runs at once and frees its frame at the end.
struct Detached {
    struct promise_type : Root {
        static void* operator new(std::size_t bytes) { return take_frame(bytes); }
        static void operator delete(void* frame, std::size_t bytes) {
            give_back_frame(frame, bytes);
        }
        Detached get_return_object() noexcept {
            coroutine = std::coroutine_handle<promise_type>::from_promise(*this);
            return {};
        }
        std::suspend_never initial_suspend() const noexcept { return {}; }
        std::suspend_never final_suspend() const noexcept { return {}; }
        void return_void() const noexcept {}
        void unhandled_exception() const noexcept { log_unhandled(); }
    };
};

template <class T, class Done>
WEFT_HEADER_COROUTINE Detached run_detached(Task<T> task, Done done) {
    if constexpr (std::is_void_v<T>) {
        co_await task;
        done();
    } else {
        done(co_await task);
    }
}

}  // namespace detail

// True for what may stand as an argument inside a co_await expression on g++ 12, which destroys
// twice an aggregate or capturing-lambda temporary with non-trivial members there. Lvalues,
// trivially copyable types and classes with constructors are fine. Functions of weft that are
// called there and take any type refuse the rest when they are compiled; those of a program do not:
// name such an argument first. A capturing lambda that is called within the expression is such a
// temporary, too, wherever it stands, also as a task of when_all(), when_any() and with_timeout():
//     co_await weft::with_timeout(1s, [key]() -> weft::Task<int> { … }());  // Wrong.
//     auto work = [key]() -> weft::Task<int> { … };
//     co_await weft::with_timeout(1s, work());
// Braces of strings there, as in `co_await f({"a", "b"})`, are an error of g++ 12, "array used as
// initializer": name the list first.
//
// More forms are miscompiled by g++ 12, without a warning, and no concept can refuse them:
// - A statement with co_await has no `&&`, `||` or `?:`: the co_await on the right runs although
//   the left side has decided, and a temporary of `?:` is destroyed twice, or before its use. Use
//   one if in the other, and name what comes of `?:` before it is an argument.
// - A coroutine that declares nothing, no variable and no alias, crashes at a co_await in the
//   condition of an if, while, do, for or switch, or never goes on: name the result first.
// - A value with a destructor is destroyed before it is used when the braces of an aggregate, the
//   capture of a lambda, the arguments of `new` or the operand of `throw` hold a co_await: name it
//   first.
// - A temporary with a destructor that is the program's own aggregate, braced where it is awaited,
//   is destroyed twice: give it a constructor, or name it first.
//     if (!(co_await a.Get(in)).ok()) co_return 1;                   // Wrong, with no local.
//     while (left-- > 0 && !(co_await a.Get(in)).ok()) {}            // Wrong.
//     co_await a.Get(text ? named(*text) : named("none"));           // Wrong.
//     auto reply = again ? co_await a.Get(in) : co_await b.Get(in);  // Wrong.
//     Both wrong{co_await a.Get(in), "text"};                        // Wrong.
//     co_await OwnAwaitable{text};                                   // Wrong.
//     const Name name = text ? named(*text) : named("none");
//     auto reply = co_await a.Get(name);
//     Both good{reply, "text"};
// clang 14 compiles all of them right.
template <class F>
concept AwaitSafe =
    std::is_lvalue_reference_v<F> || std::is_trivially_copyable_v<std::remove_cvref_t<F>>;
// The same of an argument that is no callable, so no lambda: also a class with constructors.
template <class T>
concept AwaitSafeArgument = AwaitSafe<T> || !std::is_aggregate_v<std::remove_cvref_t<T>>;

}  // namespace weft
