// The promise of a weft::Task, and the awaiter of a task. Include weft/task.h.
#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

#include <weft/destroyed.h>
#include <weft/foreign.h>

namespace weft {

template <class T = void>
class Task;

namespace detail {

// For -fsanitize=function clang 14 puts data in front of each function, and can't do so for a
// coroutine of a header ("Cannot represent a difference across sections"): it is disabled there.
#ifdef __clang__
#define WEFT_HEADER_COROUTINE __attribute__((no_sanitize("function")))
#else
#define WEFT_HEADER_COROUTINE
#endif

// Frames of up to 2 KiB, kept per thread in classes of 256 bytes. Implemented in rpc/frame_pool.cc.
void* allocate_frame(std::size_t bytes);
void release_frame(void* frame, std::size_t bytes) noexcept;

class TaskCombinator;

// Whether the compiler makes a tail call of each transfer from one coroutine to another: clang
// does, and g++ when it optimises, without these sanitizers. At -O1 and -Og g++ needs
// -foptimize-sibling-calls, which weft's CMake package and pkg-config file add. Without tail calls
// a task is started by a call, so that a loop over tasks that end at once takes no more stack with
// each round.
#if defined(__clang__) || \
    (defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__))
inline constexpr bool has_tail_calls = true;
#else
inline constexpr bool has_tail_calls = false;
#endif

// The frame around a task that runs beside others (weft/combine.h).
struct Branch : AsyncFrame {
    Branch() : AsyncFrame(Kind::branch) {}
    TaskCombinator* combinator = nullptr;  // nullptr: destroyed.
    Branch* next = nullptr;                // Of the same combinator.
    bool has_ended = false;
    AfterEndWaits after_end_waits;
};
// Reports the end of the branch's task to its combinator, unless that was destroyed. Returns the
// coroutine that continues now.
std::coroutine_handle<> end_branch(Branch& branch) noexcept;

// In the frame of the awaiter of a task: the link to the task's frame. The end of either frame cuts
// the link.
struct TaskLink {
    // The task was destroyed before its end.
    bool is_destroyed() const {
        return (reinterpret_cast<std::uintptr_t>(task) & destroyed_bit) != 0;
    }

    static constexpr std::uintptr_t destroyed_bit = 1;
    void* task = nullptr;  // nullptr: result taken, or destroyed. With destroyed_bit: a
                           // DestroyedTask, or nothing.
};

// Resumes the awaiter of a task that was destroyed before its end.
struct DestroyedTask {
    DestroyedTask(TaskLink& of, std::coroutine_handle<> of_awaiting);
    DestroyedTask(const DestroyedTask&) = delete;
    DestroyedTask& operator=(const DestroyedTask&) = delete;
    ~DestroyedTask() { forget(); }
    static DestroyedTask* of(const TaskLink& link) {
        return reinterpret_cast<DestroyedTask*>(reinterpret_cast<std::uintptr_t>(link.task) &
                                                ~TaskLink::destroyed_bit);
    }
    void forget();

    TaskLink* link;  // nullptr: destroyed.
    std::coroutine_handle<> awaiting;
};

struct PromiseBase : AsyncFrame {
    std::coroutine_handle<> continuation;
    TaskLink* awaiter = nullptr;  // nullptr: none yet, or destroyed.
    std::exception_ptr thrown;

    ~PromiseBase() {
        if (awaiter) [[unlikely]]
            on_destroyed();
    }
    // The awaiter continues in a later turn, with a destroyed_status(); a coroutine of the
    // program's own type stays suspended.
    void on_destroyed() noexcept;

    static void* operator new(std::size_t bytes) { return allocate_frame(bytes); }
    static void operator delete(void* frame, std::size_t bytes) { release_frame(frame, bytes); }

    struct Final {
        bool await_ready() const noexcept { return false; }
        template <class Promise>
        std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> self) const noexcept {
            if (self.promise().continuation) return self.promise().continuation;
            AsyncFrame* const outer = self.promise().outer;
            return outer ? end_branch(static_cast<Branch&>(*outer)) : std::noop_coroutine();
        }
        void await_resume() const noexcept {}
    };

    std::suspend_always initial_suspend() const noexcept { return {}; }
    Final final_suspend() const noexcept { return {}; }
    void unhandled_exception() { thrown = std::current_exception(); }
    template <class A>
    static decltype(auto) await_transform(A&& awaited) {
        return transform_awaited(std::forward<A>(awaited));
    }
};

template <class T>
struct TaskPromise : PromiseBase {
    static_assert(alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__,
                  "a coroutine's frame can't align this result: return a std::unique_ptr of it");
    std::optional<T> value;
    auto get_return_object();
    template <class U = T>  // T for braces: `co_return {};`
        requires std::is_convertible_v<U&&, T>
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

struct TaskAccess {
    template <class T>
    static auto handle(const Task<T>& task) {
        return task.handle_;
    }
};

// Stands for the awaiting coroutine while that starts the task. It is laid out as a coroutine's
// frame, so that the end of the task resumes it; it only records that.
struct TaskStart {
    using Resume = void(TaskStart*) noexcept;

    std::coroutine_handle<> handle() { return std::coroutine_handle<>::from_address(this); }
    bool has_ended() const { return !resume; }
    bool is_awaiter_gone() const { return resume == &ignore; }
    static void end(TaskStart* self) noexcept { self->resume = nullptr; }
    static void ignore(TaskStart*) noexcept {}

    Resume* resume = &end;  // No destroy function follows: nothing owns this.
};

[[noreturn]] void throw_empty_task();
[[noreturn]] void throw_awaited_task();

// Throws unless the task can be started: std::invalid_argument for an empty task, std::logic_error
// for a task that was awaited before.
template <class T>
void require_startable(std::coroutine_handle<TaskPromise<T>> task) {
    if (!task) [[unlikely]]
        throw_empty_task();
    if (task.promise().continuation) [[unlikely]]
        throw_awaited_task();
}

// The compiler's behaviour is part of the name, since translation units of all kinds are linked
// together.
template <class T, bool transfers = has_tail_calls>
class TaskAwaiter : TaskLink, public WeftAwaiter {
  public:
    using Handle = std::coroutine_handle<TaskPromise<T>>;

    explicit TaskAwaiter(Handle handle) {
        require_startable<T>(handle);
        task = handle.address();
        handle.promise().awaiter = this;
        if constexpr (!transfers) starting_ = nullptr;
    }
    // The awaiting coroutine may be in the middle of its destruction, which continues with its
    // locals: the end of a local may resume this task, which then resumes nothing.
    ~TaskAwaiter() {
        if constexpr (!transfers) {
            if (starting_) starting_->resume = &TaskStart::ignore;
        }
        if (!task) return;
        if (is_destroyed()) [[unlikely]] {
            if (DestroyedTask* const destroyed = DestroyedTask::of(*this)) destroyed->forget();
            return;
        }
        TaskPromise<T>& promise = handle().promise();
        promise.awaiter = nullptr;
        promise.continuation = std::noop_coroutine();
        promise.abandon();
    }
    TaskAwaiter(const TaskAwaiter&) = delete;
    TaskAwaiter& operator=(const TaskAwaiter&) = delete;
    bool await_ready() const noexcept { return false; }
    template <class Promise>
    auto await_suspend(std::coroutine_handle<Promise> awaiting) noexcept {
        const Handle started = handle();
        started.promise().outer = async_frame_of(awaiting);
        if constexpr (transfers) {
            started.promise().continuation = awaiting;
            return std::coroutine_handle<>(started);
        } else {
            return start(awaiting);
        }
    }
    T await_resume() {
        if (is_destroyed()) [[unlikely]]
            return destroyed_result<T>("a weft::Task");
        TaskPromise<T>& promise = handle().promise();
        promise.awaiter = nullptr;
        task = nullptr;
        return promise.take();
    }

  private:
    // False: the task has ended, and the awaiting coroutine continues without having been
    // suspended. Out of line: clang 14 moves locals of a function that it inlines into a coroutine
    // to the frame, which may be destroyed.
    [[gnu::noinline]] bool start(std::coroutine_handle<> awaiting) noexcept {
        const Handle started = handle();
        TaskStart starting;
        starting_ = &starting;
        started.promise().continuation = starting.handle();
        started.resume();
        if (starting.is_awaiter_gone()) return true;
        starting_ = nullptr;
        if (starting.has_ended()) return false;
        if (is_destroyed()) [[unlikely]] {
            if (DestroyedTask* const destroyed = DestroyedTask::of(*this))
                destroyed->awaiting = awaiting;
        } else if (task) {
            started.promise().continuation = awaiting;
        }
        return true;
    }
    Handle handle() const noexcept { return Handle::from_address(task); }

    TaskStart* starting_;  // Without tail calls; else unused, so that frames are laid out alike.
};

}  // namespace detail

}  // namespace weft
