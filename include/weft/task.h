// weft::Task<T>: a lazy coroutine that runs on the context it was started on.
//
// It starts when awaited (or by Runtime::spawn / block_on), its awaiter goes on when it ends, and
// every awaitable of weft resumes it on the executor it awaited from; so must those of a program.
// An exception that leaves the body is rethrown to the awaiter. Frames come from a per-thread pool,
// so a steady state allocates nothing.
//
// A loop over tasks that end at once takes no more stack with each round: with clang; with g++ at
// -O0, from -O2 on, under sanitizers, and at -O1 and -Og with -foptimize-sibling-calls, which
// weft's CMake package and pkg-config file add. Tasks that await each other n deep take n stack
// frames, as functions do, where g++ does not optimise, and under its sanitizers; elsewhere none.
//
// A frame is aligned as operator new aligns: a local that wants more (alignas(64), __m512) is
// misaligned, unreported. Keep it behind a std::unique_ptr. Such a result is refused.
#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

#include <weft/function.h>

namespace weft {

template <class T = void>
class Task;

namespace detail {

// clang 14 can't translate what it notes in front of a function for -fsanitize=function where that
// is a coroutine of a header ("Cannot represent a difference across sections"): no note there.
#ifdef __clang__
#define WEFT_HEADER_COROUTINE __attribute__((no_sanitize("function")))
#else
#define WEFT_HEADER_COROUTINE
#endif

// Frames of up to 2 KiB, kept per thread in classes of 256 bytes. Implemented in rpc/frame_pool.cc.
void* take_frame(std::size_t bytes);
void give_back_frame(void* frame, std::size_t bytes) noexcept;

class Fork;

// Whether the compiler makes a tail call of each transfer from one coroutine to another: clang
// does, and g++ when it optimises, without these sanitizers; at -O1 and -Og it has to be told by
// -foptimize-sibling-calls, as weft's CMake package and pkg-config file do. Else a task is started
// by a call, so that a loop over tasks that end at once takes no more stack with each round.
#if defined(__clang__) || \
    (defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__))
inline constexpr bool has_tail_calls = true;
#else
inline constexpr bool has_tail_calls = false;
#endif

// A task that runs beside others (weft/combine.h). Lifetime: in place while the task is under way.
struct Branch {
    Fork* fork = nullptr;
    Branch* outer = nullptr;  // The one that the fork is in.
    Branch* next = nullptr;   // Of the same fork.
    std::uint32_t held = 0;  // So often by work on other threads, which uses what is in its frames.
    bool has_ended = false;
    bool is_dropped = false;  // To be destroyed once it is not held; its fork may be gone.
    // Or one that it is in.
    bool is_in_dropped() const;
};
// For the fork, unless it was dropped: the task of this branch has ended.
void end_branch(Branch& branch) noexcept;

struct PromiseBase {
    std::coroutine_handle<> continuation;
    Branch* branch = nullptr;  // The innermost that it is in. Of a branch's first task: its own.
    std::exception_ptr thrown;

    static void* operator new(std::size_t bytes) { return take_frame(bytes); }
    static void operator delete(void* frame, std::size_t bytes) { give_back_frame(frame, bytes); }

    struct Final {
        bool await_ready() const noexcept { return false; }
        template <class Promise>
        std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> self) const noexcept {
            if (self.promise().continuation) return self.promise().continuation;
            if (self.promise().branch) end_branch(*self.promise().branch);
            return std::noop_coroutine();
        }
        void await_resume() const noexcept {}
    };

    std::suspend_always initial_suspend() const noexcept { return {}; }
    Final final_suspend() const noexcept { return {}; }
    void unhandled_exception() { thrown = std::current_exception(); }
};

template <class T>
struct TaskPromise : PromiseBase {
    static_assert(alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__,
                  "a coroutine's frame can't align this result: return a std::unique_ptr of it");
    std::optional<T> value;
    auto get_return_object();
    template <class U>
        requires std::is_constructible_v<T, U&&>
    void return_value(U&& result) { value.emplace(std::forward<U>(result)); }
    T take() {
        if (thrown) std::rethrow_exception(thrown);
        return std::move(*value);
    }
};

template <>
struct TaskPromise<void> : PromiseBase {
    auto get_return_object();
    void return_void() const noexcept {}
    void take() {
        if (thrown) std::rethrow_exception(thrown);
    }
};

// nullptr: in none, or not a task.
template <class Promise>
Branch* branch_of(std::coroutine_handle<Promise> coroutine) noexcept {
    if constexpr (std::is_base_of_v<PromiseBase, Promise>) {
        return coroutine.promise().branch;
    } else {
        return nullptr;
    }
}

struct TaskAccess {
    template <class T>
    static auto handle(const Task<T>& task) {
        return task.handle_;
    }
};

// While a task is started by its awaiter this stands for the awaiting coroutine: laid out as a
// coroutine's frame, so that the end of the task resumes it, and it only takes note.
struct TaskStart {
    using Resume = void(TaskStart*) noexcept;

    std::coroutine_handle<> handle() { return std::coroutine_handle<>::from_address(this); }
    bool has_ended() const { return !resume; }
    bool is_awaiter_gone() const { return resume == &ignore; }
    static void end(TaskStart* self) noexcept { self->resume = nullptr; }
    static void ignore(TaskStart*) noexcept {}

    Resume* resume = &end;  // Of what destroys a frame there is none: nothing owns this.
};

[[noreturn]] void throw_empty_task();

// Named by what the compiler does, since translation units of all kinds are linked together.
template <class T, bool transfers = has_tail_calls>
class TaskAwaiter {
  public:
    using Handle = std::coroutine_handle<TaskPromise<T>>;

    explicit TaskAwaiter(Handle handle) : handle_(handle) {
        if (!handle) [[unlikely]]
            throw_empty_task();
        if constexpr (!transfers) starting_ = nullptr;
    }
    // The awaiting coroutine may be in the middle of its destruction, which goes on with its
    // locals: the end of one may resume this task, which then resumes nothing.
    ~TaskAwaiter() {
        if (handle_.done()) return;
        handle_.promise().continuation = std::noop_coroutine();
        if constexpr (!transfers) {
            if (starting_) starting_->resume = &TaskStart::ignore;
        }
    }
    TaskAwaiter(const TaskAwaiter&) = delete;
    TaskAwaiter& operator=(const TaskAwaiter&) = delete;
    bool await_ready() const noexcept { return handle_.done(); }
    template <class Promise>
    auto await_suspend(std::coroutine_handle<Promise> awaiting) noexcept {
        handle_.promise().branch = branch_of(awaiting);
        if constexpr (transfers) {
            handle_.promise().continuation = awaiting;
            return std::coroutine_handle<>(handle_);
        } else {
            return start(awaiting);
        }
    }
    T await_resume() { return handle_.promise().take(); }

  private:
    // False: it has ended, and the awaiting coroutine goes on without having been suspended. Out of
    // line: clang 14 moves locals of what it inlines into a coroutine to the frame, which may be
    // gone.
    [[gnu::noinline]] bool start(std::coroutine_handle<> awaiting) noexcept {
        TaskStart starting;
        starting_ = &starting;
        handle_.promise().continuation = starting.handle();
        handle_.resume();
        if (starting.has_ended()) return false;
        if (starting.is_awaiter_gone()) return true;
        starting_ = nullptr;
        handle_.promise().continuation = awaiting;
        return true;
    }

    Handle handle_;
    TaskStart* starting_;  // Without tail calls; else unused, so that frames are laid out alike.
};

}  // namespace detail

// Move-only. Empty when default-made or moved from: awaiting it, Runtime::spawn(), block_on() and
// those of weft/combine.h throw std::invalid_argument. Destroying a task that is suspended destroys
// what it awaits: operations in flight are cancelled and their completions go nowhere. Requires
// then: the context's thread, and none of it in offloaded work (weft/offload.h): that aborts the
// program.
template <class T>
class [[nodiscard]] Task {
  public:
    using promise_type = detail::TaskPromise<T>;
    using Handle = std::coroutine_handle<promise_type>;

    Task() = default;
    explicit Task(Handle handle) : handle_(handle) {}
    Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    Task& operator=(Task&& other) noexcept {
        if (this != &other) {
            if (handle_) handle_.destroy();
            handle_ = std::exchange(other.handle_, nullptr);
        }
        return *this;
    }
    ~Task() {
        if (handle_) handle_.destroy();
    }

    explicit operator bool() const { return handle_ != nullptr; }

    // Throws std::invalid_argument for an empty task.
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
    struct promise_type {
        static void* operator new(std::size_t bytes) { return take_frame(bytes); }
        static void operator delete(void* frame, std::size_t bytes) {
            give_back_frame(frame, bytes);
        }
        Detached get_return_object() const noexcept { return {}; }
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

// True for what may stand as an argument inside a co_await expression on g++ 12: it destroys twice
// an aggregate or capturing-lambda temporary with non-trivial members. Lvalues, trivially copyable
// types and classes with constructors are fine. It also drops a co_await in the condition of an if
// or while when an operator or a converting constructor takes a temporary there by reference, as in
// `if (co_await f(2 * pause))`: name the result first.
template <class F>
concept AwaitSafe =
    std::is_lvalue_reference_v<F> || std::is_trivially_copyable_v<std::remove_cvref_t<F>>;
// The same of an argument that is no callable, so no lambda: also a class with constructors.
template <class T>
concept AwaitSafeArgument = AwaitSafe<T> || !std::is_aggregate_v<std::remove_cvref_t<T>>;

}  // namespace weft
