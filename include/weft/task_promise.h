// What a weft::Task is made of: its promise, and what awaits it. Include weft/task.h.
#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

#include <weft/foreign.h>
#include <weft/lost.h>

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

// A task that runs beside others (weft/combine.h).
struct Branch : Level {
    Branch() : Level(Kind::branch) {}
    Fork* fork = nullptr;    // nullptr: gone.
    Branch* next = nullptr;  // Of the same fork.
    bool has_ended = false;
    LateWaits late_waits;
};
// For the fork, unless it was dropped: the task of this branch has ended. Gives what goes on now.
std::coroutine_handle<> end_branch(Branch& branch) noexcept;

// In the frame of what awaits a task: the task's frame. The end of either is the end of this.
struct TaskLink {
    // The task was destroyed before its end.
    bool is_lost() const { return (reinterpret_cast<std::uintptr_t>(task) & lost_bit) != 0; }

    static constexpr std::uintptr_t lost_bit = 1;
    void* task = nullptr;  // nullptr: taken, or gone. With lost_bit: a LostTask, or nothing.
};

// The end of a task that was destroyed before, for what awaits it.
struct LostTask {
    LostTask(TaskLink& of, std::coroutine_handle<> of_awaiting);
    LostTask(const LostTask&) = delete;
    LostTask& operator=(const LostTask&) = delete;
    ~LostTask() { forget(); }
    static LostTask* of(const TaskLink& link) {
        return reinterpret_cast<LostTask*>(reinterpret_cast<std::uintptr_t>(link.task) &
                                           ~TaskLink::lost_bit);
    }
    void forget();

    TaskLink* link;  // nullptr: gone.
    std::coroutine_handle<> awaiting;
};

struct PromiseBase : Level {
    std::coroutine_handle<> continuation;
    TaskLink* awaiter = nullptr;  // nullptr: none yet, or gone.
    std::exception_ptr thrown;

    ~PromiseBase() {
        if (awaiter) [[unlikely]]
            lose();
    }
    // What awaits the task goes on in a later turn, with lost(); a coroutine of the program's own
    // type stays suspended.
    void lose() noexcept;

    static void* operator new(std::size_t bytes) { return take_frame(bytes); }
    static void operator delete(void* frame, std::size_t bytes) { give_back_frame(frame, bytes); }

    struct Final {
        bool await_ready() const noexcept { return false; }
        template <class Promise>
        std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> self) const noexcept {
            if (self.promise().continuation) return self.promise().continuation;
            Level* const outer = self.promise().outer;
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
[[noreturn]] void throw_awaited_task();

// Throws unless the task can be started: std::invalid_argument for an empty one, std::logic_error
// for one that was awaited before.
template <class T>
void require_startable(std::coroutine_handle<TaskPromise<T>> task) {
    if (!task) [[unlikely]]
        throw_empty_task();
    if (task.promise().continuation) [[unlikely]]
        throw_awaited_task();
}

// Named by what the compiler does, since translation units of all kinds are linked together.
template <class T, bool transfers = has_tail_calls>
class TaskAwaiter : TaskLink, public OwnAwaiter {
  public:
    using Handle = std::coroutine_handle<TaskPromise<T>>;

    explicit TaskAwaiter(Handle handle) {
        require_startable<T>(handle);
        task = handle.address();
        handle.promise().awaiter = this;
        if constexpr (!transfers) starting_ = nullptr;
    }
    // The awaiting coroutine may be in the middle of its destruction, which goes on with its
    // locals: the end of one may resume this task, which then resumes nothing.
    ~TaskAwaiter() {
        if constexpr (!transfers) {
            if (starting_) starting_->resume = &TaskStart::ignore;
        }
        if (!task) return;
        if (is_lost()) [[unlikely]] {
            if (LostTask* const lost = LostTask::of(*this)) lost->forget();
            return;
        }
        TaskPromise<T>& promise = handle().promise();
        promise.awaiter = nullptr;
        promise.continuation = std::noop_coroutine();
        promise.leave();
    }
    TaskAwaiter(const TaskAwaiter&) = delete;
    TaskAwaiter& operator=(const TaskAwaiter&) = delete;
    bool await_ready() const noexcept { return false; }
    template <class Promise>
    auto await_suspend(std::coroutine_handle<Promise> awaiting) noexcept {
        const Handle started = handle();
        started.promise().outer = level_of(awaiting);
        if constexpr (transfers) {
            started.promise().continuation = awaiting;
            return std::coroutine_handle<>(started);
        } else {
            return start(awaiting);
        }
    }
    T await_resume() {
        if (is_lost()) [[unlikely]]
            return lost<T>("a weft::Task");
        TaskPromise<T>& promise = handle().promise();
        promise.awaiter = nullptr;
        task = nullptr;
        return promise.take();
    }

  private:
    // False: it has ended, and the awaiting coroutine goes on without having been suspended. Out of
    // line: clang 14 moves locals of what it inlines into a coroutine to the frame, which may be
    // gone.
    [[gnu::noinline]] bool start(std::coroutine_handle<> awaiting) noexcept {
        const Handle started = handle();
        TaskStart starting;
        starting_ = &starting;
        started.promise().continuation = starting.handle();
        started.resume();
        if (starting.is_awaiter_gone()) return true;
        starting_ = nullptr;
        if (starting.has_ended()) return false;
        if (is_lost()) [[unlikely]] {
            if (LostTask* const lost = LostTask::of(*this)) lost->awaiting = awaiting;
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
