// File I/O and other work that blocks, awaited without blocking the context.
#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <system_error>
#include <type_traits>
#include <utility>

#include <weft/executor.h>
#include <weft/reference_awaiter.h>
#include <weft/task.h>

namespace weft {

namespace detail {

// Keeps the call that a coroutine serves while the coroutine waits for offloaded work, and the
// frames around the coroutine, which are not destroyed before the work ends. Destroyed before that,
// it aborts the program, except in a forked child, where the work does not run. Thread: the
// context's.
class OffloadScope {
  public:
    OffloadScope();
    OffloadScope(const OffloadScope&) = delete;
    OffloadScope& operator=(const OffloadScope&) = delete;
    ~OffloadScope();
    // `async_frame`: that of the coroutine. already_started: another coroutine awaited the work,
    // and was destroyed. dropped: the coroutine is dropped, and begins no more work. runtime_ended:
    // its runtime ends, and the coroutine loops without end. Throws std::logic_error outside of a
    // turn.
    enum class Begin : std::uint8_t { now, already_started, dropped, runtime_ended };
    Begin pin(AsyncFrame* async_frame);
    // The work has ended: resumes the awaiting coroutine, unless it was dropped meanwhile.
    // Requires: inside a turn of a context.
    void end(const AwaiterSlot& slot);
    // The runtime of this thread's turn has ended, and drops its remaining work.
    static bool is_dropping();

  private:
    struct ScopeNode;
    ScopeNode& scope_node();
    void drop_scope_node();

    bool has_scope_node_ = false;  // The coroutine serves a call.
    bool is_under_way_ = false;
    std::uint32_t process_ = 0;  // The process in which the work runs.
    static constexpr std::size_t node_bytes = 5 * sizeof(void*);
    alignas(void*) std::byte node_[node_bytes];
};

// Work that runs on another thread while a coroutine awaits it, and its outcome.
template <class F, class R>
class AwaitedWork {
  public:
    AwaitedWork(const AwaitedWork&) = delete;  // The other thread has its address.
    bool await_ready() const noexcept { return is_done_; }
    R await_resume() {
        if (thrown_) std::rethrow_exception(thrown_);
        if constexpr (!std::is_void_v<R>) return std::move(*value_);
    }

  protected:
    // `what`: the operation, as a program writes it.
    template <class G>
    AwaitedWork(G&& work, const char* what) : work_(std::forward<G>(work)) {
        if (is_empty(work_)) refuse_empty(what);
    }
    void run() {
        try {
            if constexpr (std::is_void_v<R>) {
                work_();
                value_.emplace();
            } else {
                value_.emplace(work_());
            }
        } catch (...) {
            thrown_ = std::current_exception();
        }
    }

    F work_;  // A reference for lvalues.
    std::optional<std::conditional_t<std::is_void_v<R>, char, std::remove_reference_t<R>>> value_;
    std::exception_ptr thrown_;
    bool is_done_ = false;
    AwaiterSlot awaiter_slot_;

  private:
    template <class AnyOperation>
    friend class ReferenceAwaiter;
    AwaiterSlot& awaiter_slot() { return awaiter_slot_; }
};

template <class F>
class [[nodiscard]] OffloadAwaiter : public AwaitedWork<F, std::invoke_result_t<F&>> {
  public:
    using R = std::invoke_result_t<F&>;
    static_assert(!std::is_reference_v<R>,
                  "offload() returns no reference, which might dangle: give a pointer or "
                  "std::reference_wrapper");
    static_assert(!Awaitable<R>,
                  "offload() awaits nothing on its thread, where no coroutine runs: co_await the "
                  "task or operation itself, and offload only what blocks");
    static constexpr const char* what = "offload()";
    template <class G>
    explicit OffloadAwaiter(std::in_place_t, G&& work)
        : AwaitedWork<F, R>(std::forward<G>(work), what) {}
    OffloadAwaiter(const OffloadAwaiter&) = delete;  // An operation stays where it was made.

    class ReferenceAwaiter : public detail::ReferenceAwaiter<OffloadAwaiter> {
      public:
        using detail::ReferenceAwaiter<OffloadAwaiter>::ReferenceAwaiter;
        template <class Promise>
        void await_suspend(std::coroutine_handle<Promise> awaiting) {
            this->suspend(awaiting);
            this->operation().begin(async_frame_of(awaiting));
        }
    };
    ReferenceAwaiter operator co_await() { return ReferenceAwaiter(*this); }

  private:
    // Runs in a turn of its context, or when a runtime that drops its remaining work destroys it.
    class End {
      public:
        explicit End(OffloadAwaiter& awaiter) : awaiter_(&awaiter) {}
        End(End&& other) noexcept : awaiter_(std::exchange(other.awaiter_, nullptr)) {}
        ~End() {
            if (awaiter_ && OffloadScope::is_dropping()) (*this)();
        }
        void operator()() {
            OffloadAwaiter* const awaiter = std::exchange(awaiter_, nullptr);
            awaiter->is_done_ = true;
            awaiter->scope_.end(awaiter->awaiter_slot_);  // May destroy the awaiter.
        }

      private:
        OffloadAwaiter* awaiter_;  // nullptr: has run, or moved from.
    };

    // Ends the wait on its context: after the work has run, or when it is destroyed before that.
    class Work {
      public:
        Work(OffloadAwaiter& awaiter, Executor& home) : awaiter_(&awaiter), home_(&home) {}
        Work(Work&& other) noexcept
            : awaiter_(std::exchange(other.awaiter_, nullptr)), home_(other.home_) {}
        ~Work() {
            if (!awaiter_) return;
            awaiter_->thrown_ = std::make_exception_ptr(
                std::system_error(std::make_error_code(std::errc::operation_canceled),
                                  "offloaded work was dropped: its runtime has ended"));
            end();
        }
        void run() {
            awaiter_->run();
            end();
        }

      private:
        void end() { home_->post(End(*std::exchange(awaiter_, nullptr))); }

        OffloadAwaiter* awaiter_;  // nullptr: has ended, or moved from.
        Executor* home_;
    };

    void begin(AsyncFrame* async_frame) {
        const OffloadScope::Begin begin = scope_.pin(async_frame);
        if (begin == OffloadScope::Begin::dropped || begin == OffloadScope::Begin::already_started)
            return;
        Executor* const home = Executor::current();
        this->awaiter_slot_.set_home(home);
        Work given(*this, *home);
        if (begin == OffloadScope::Begin::runtime_ended) return;
        try {
            home->offload([work = std::move(given)]() mutable { work.run(); });
        } catch (...) {
            this->thrown_ = std::current_exception();  // The dropped work resumes the coroutine.
        }
    }

    OffloadScope scope_;
};

}  // namespace detail

// `co_await offload(work)`: runs `work()` on another thread (with RuntimeOptions::manual, and in a
// simulation, in a turn) and resumes the coroutine on its
// context with the result or exception of the work. `work` is an lvalue or trivially copyable
// (AwaitSafe): name a lambda that captures strings or handles before awaiting it. A null pointer or
// an empty function aborts the program with a message. Work that returns a reference, a task or an
// operation is refused when it is compiled: offload blocking work, and await the rest.
//
// Throws std::system_error when the system provides not a single thread for it. Throws it with
// operation_canceled when the runtime ended before the work began: at once for the work of calls,
// which no caller waits for then, after RuntimeOptions::drain_timeout for other work. Work that a
// coroutine offloads from then on, to clean up, runs, 100 times at most. Throws std::logic_error
// outside of a turn of a context.
//
// Requires: the awaitable that offload() returns is not destroyed before the work has ended, with
// its coroutine or by itself; that aborts the program, since the work may use it. Tasks that
// weft/combine.h drops are destroyed when the work has ended. A co_await of work that another
// coroutine awaits, or awaited, throws std::logic_error; when that coroutine was destroyed, the new
// one, on the same context, waits for the same work.
template <class F>
    requires AwaitSafe<F&&>
auto offload(F&& work) {
    using Stored = std::conditional_t<std::is_lvalue_reference_v<F>, F, std::remove_cvref_t<F>>;
    static_assert(alignof(detail::OffloadAwaiter<Stored>) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__,
                  "a coroutine's frame can't align this work, or what it returns: keep it behind a "
                  "std::unique_ptr");
    return detail::OffloadAwaiter<Stored>(std::in_place, std::forward<F>(work));
}

}  // namespace weft
