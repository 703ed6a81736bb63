// weft::Task<T>: a lazy coroutine that runs on the context it was started on.
//
// It starts when awaited (or by Runtime::spawn / block_on), returns to its awaiter by symmetric
// transfer, and every awaitable of weft resumes it on the executor it awaited from. An exception
// that leaves the body is rethrown to the awaiter. Frames come from a per-thread pool, so a
// steady state allocates nothing.
//
// It is awaited once. To await an empty task, or one a second time, throws std::logic_error.
#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

#include <weft/function.h>

namespace weft {

template <class T = void>
class Task;

namespace detail {

// Frames of up to 2 KiB, kept per thread in classes of 256 bytes. Implemented in rpc/frame_pool.cc.
void* take_frame(std::size_t bytes);
void give_back_frame(void* frame, std::size_t bytes) noexcept;

class Fork;

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

// The branch around all that a coroutine awaits which owns itself and ends with its runtime.
struct Root : Branch {
    std::coroutine_handle<> coroutine;
    std::uint32_t late_works = 0;  // That it offloaded after the end of its runtime began.
};

// nullptr: in none, or not a task.
template <class Promise>
Branch* branch_of(std::coroutine_handle<Promise> coroutine) noexcept {
    if constexpr (std::is_base_of_v<PromiseBase, Promise>) {
        return coroutine.promise().branch;
    } else if constexpr (std::is_base_of_v<Root, Promise>) {
        return &coroutine.promise();
    } else {
        return nullptr;
    }
}

// Resumes it. Where no turn will come any more, and it goes on and on: destroys its root instead.
void resume_or_end(std::coroutine_handle<> awaiting, Branch* branch);

// Throws std::logic_error: what is awaited is an empty task, or one that was awaited before.
[[noreturn]] void refuse_await(bool is_empty);

struct TaskAccess {
    template <class T>
    static auto handle(const Task<T>& task) {
        return task.handle_;
    }
};

}  // namespace detail

// Move-only. Destroying a task that is suspended destroys what it awaits: operations in flight are
// cancelled and their completions go nowhere. Requires then: the context's thread, and none of it
// in offloaded work (weft/offload.h): that aborts the program.
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
            if (handle_) handle_.destroy();
            handle_ = std::exchange(other.handle_, nullptr);
        }
        return *this;
    }
    ~Task() {
        if (handle_) handle_.destroy();
    }

    explicit operator bool() const { return handle_ != nullptr; }

    class Awaiter {
      public:
        explicit Awaiter(Handle handle) : handle_(handle) {}
        // The awaiting coroutine may be in the middle of its destruction, which goes on with its
        // locals: the end of one may resume this task, which then resumes nothing.
        ~Awaiter() {
            if (handle_) handle_.promise().continuation = std::noop_coroutine();
        }
        Awaiter(const Awaiter&) = delete;
        bool await_ready() {
            if (!handle_ || handle_.promise().continuation) [[unlikely]]
                detail::refuse_await(!std::exchange(handle_, nullptr));
            return false;
        }
        template <class Promise>
        std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> awaiting) noexcept {
            handle_.promise().continuation = awaiting;
            handle_.promise().branch = detail::branch_of(awaiting);
            return handle_;
        }
        T await_resume() { return handle_.promise().take(); }

      private:
        Handle handle_;  // nullptr: it was refused.
    };
    Awaiter operator co_await() && noexcept { return Awaiter(handle_); }
    Awaiter operator co_await() & noexcept { return Awaiter(handle_); }

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
        // Nobody awaits it: what the task threw is dropped.
        void unhandled_exception() const noexcept {}
    };
};

template <class T, class Done>
Detached run_detached(Task<T> task, Done done) {
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

}  // namespace weft
