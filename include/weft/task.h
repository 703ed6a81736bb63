// weft::Task<T>: a lazy coroutine that runs on the context it was started on.
//
// A task starts when it is awaited (or by Runtime::spawn / block_on), and its awaiter resumes when
// it ends. Every awaitable of weft resumes a task on the executor that the awaitable was made on.
// That is the task's own executor, since a task awaits only what was made there (weft/await.h). A
// program's own awaitables must resume a task on its own executor, too: a task resumed elsewhere
// does not end with its runtime, and keeps the runtime's memory as long as it runs. An exception
// that leaves the body is rethrown to the awaiter. A frame of up to 2 KiB comes from a pool of its
// thread, which keeps 64 of each class of 256 bytes: in a steady state such tasks allocate nothing.
//
// A task is awaited once. Awaiting an empty task throws std::invalid_argument, and a second await
// throws std::logic_error; so do Runtime::spawn(), block_on() and the functions of weft/combine.h.
// A task outside the frame of its awaiter continues when the awaiting coroutine is destroyed, and
// its end resumes nothing. When the awaited task is destroyed first, a task that awaits it
// continues in a later turn with CANCELLED, effect unknown: as its result where that is a Status or
// Result, else thrown as BadResult. What the awaiting task refers to must exist until it continues.
// After the end of its runtime it is not resumed: before that end, destroy what it awaits, or let
// that complete (an event of the program's own, say).
//
// A loop over tasks that end at once takes constant stack, except with g++ at -O1 and -Og. These
// need -foptimize-sibling-calls, which weft's CMake package and pkg-config file add; without it,
// `co_await sleep_for(0s)` (weft/sleep.h) every thousand rounds frees the stack. A chain of n tasks
// that await each other takes n stack frames with g++ at -O0 and under its sanitizers, else none.
// Destroying such a chain while it waits takes n stack frames with every compiler.
//
// A frame is aligned as operator new aligns: a local with a larger alignment (alignas(64), __m512)
// is misaligned, without a diagnostic. Keep it behind a std::unique_ptr. A result type with a
// larger alignment is refused when it is compiled.
#pragma once

#include <coroutine>
#include <type_traits>
#include <utility>

#include <weft/function.h>
#include <weft/task_promise.h>

namespace weft {

// Move-only. Empty when default-made or moved from. Destroying a suspended task destroys what it
// awaits: operations in flight are cancelled and their completions do not run. Destroy a task on
// the context's thread, and while no part of it is in offloaded work (weft/offload.h); anything
// else aborts the program. A running task must not be destroyed, not even by its own last line;
// this error is not detected.
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

    // No conversion to bool: `if (!store.Get(key))` would test the task, and make no call.
    bool empty() const { return handle_ == nullptr; }

    // Throws std::invalid_argument for an empty task, std::logic_error for a task that was awaited.
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

// Logs the current exception, which leaves a coroutine that nothing awaits. Implemented in
// core/task.cc, as is throw_empty_task().
void log_unhandled() noexcept;

// A coroutine that owns itself: runs at once and frees its frame at the end.
struct Detached {
    struct promise_type : AsyncRoot {
        static void* operator new(std::size_t bytes) { return allocate_frame(bytes); }
        static void operator delete(void* frame, std::size_t bytes) { release_frame(frame, bytes); }
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

// True for a callable that may be an argument inside a co_await expression. g++ 12 destroys an
// aggregate or capturing-lambda temporary with non-trivial members there twice; lvalues and
// trivially copyable types are safe. Classes with constructors are safe, too, but look like a
// lambda here: AwaitSafeArgument admits them. Functions of weft that are called there and take
// any type refuse unsafe arguments when they are compiled. Functions of a program do not: name such
// an argument first. A capturing lambda that is called within the expression is such a temporary,
// too, wherever it stands, also as a task of when_all(), when_any() and with_timeout():
//     co_await weft::with_timeout(1s, [key]() -> weft::Task<int> { … }());  // Wrong.
//     auto work = [key]() -> weft::Task<int> { … };
//     co_await weft::with_timeout(1s, work());
// A braced list of strings there, as in `co_await f({"a", "b"})`, is an error of g++ 12, "array
// used as initializer": name the list first.
//
// g++ 12 miscompiles more forms, without a warning, and no concept can refuse them:
// - A statement with co_await must not contain `&&`, `||` or `?:`: the co_await on the right runs
//   although the left side has decided, and a temporary of `?:` is destroyed twice, or before its
//   use. Nest two ifs instead, and name the result of `?:` before it is an argument.
// - A coroutine that declares nothing, no variable and no alias, crashes at a co_await in the
//   condition of an if, while, do, for or switch, or never resumes: name the result first.
// - A value with a destructor is destroyed before it is used when the braces of an aggregate, the
//   capture of a lambda, the arguments of `new` or the operand of `throw` hold a co_await: name it
//   first.
// - A temporary with a destructor that is the program's own aggregate, braced where it is awaited,
//   is destroyed twice: give its type a constructor, or name it first.
//     if (!(co_await a.Get(in)).ok()) co_return 1;                   // Wrong, with no local.
//     while (left-- > 0 && !(co_await a.Get(in)).ok()) {}            // Wrong.
//     co_await a.Get(text ? named(*text) : named("none"));           // Wrong.
//     auto reply = again ? co_await a.Get(in) : co_await b.Get(in);  // Wrong.
//     Both wrong{co_await a.Get(in), "text"};                        // Wrong.
//     co_await OwnAwaitable{text};                                   // Wrong.
//     const Name name = text ? named(*text) : named("none");
//     auto reply = co_await a.Get(name);
//     Both good{reply, "text"};
// clang 14 compiles all of these forms correctly.
template <class F>
concept AwaitSafe =
    std::is_lvalue_reference_v<F> || std::is_trivially_copyable_v<std::remove_cvref_t<F>>;
// The same for an argument that is no callable, and thus no lambda: also a class with constructors.
template <class T>
concept AwaitSafeArgument = AwaitSafe<T> || !std::is_aggregate_v<std::remove_cvref_t<T>>;

}  // namespace weft
