// File I/O and other work that blocks, awaited without blocking the context.
#pragma once

#include <coroutine>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <system_error>
#include <type_traits>
#include <utility>

#include <weft/executor.h>
#include <weft/in_place.h>
#include <weft/task.h>

namespace weft {

namespace detail {

// The call that a coroutine serves, kept while it waits, and what the coroutine is in, which is not
// destroyed before the work ends. Itself destroyed then, it aborts the program, but no forked
// child, where the work does not run. Thread: the context's.
class HeldScope {
  public:
    HeldScope();
    ~HeldScope();
    // `level`: of the coroutine. had_begun: another coroutine awaited the work, and was destroyed.
    // dropped: the coroutine was, and begins nothing any more. over: its runtime ends, and the
    // coroutine goes on and on. Throws std::logic_error outside of a turn.
    enum class Begin : std::uint8_t { now, had_begun, dropped, over };
    Begin hold(Level* level);
    // The work has ended: resumes what awaits it, unless that was dropped meanwhile. Requires:
    // inside a turn of a context.
    void end(const Awaiting& awaiting);
    // The runtime of this thread's turn has ended, and drops what it has left.
    static bool is_dropping();

  private:
    struct Held;
    std::unique_ptr<Held> held_;  // nullptr: it serves none.
    bool is_under_way_ = false;
    std::uint32_t process_ = 0;  // Where it is: in no child that is forked meanwhile.
};

template <class F>
class [[nodiscard]] OffloadAwaiter {
  public:
    using R = std::invoke_result_t<F&>;
    static_assert(!std::is_reference_v<R>,
                  "offload() returns no reference, which might dangle: give a pointer or "
                  "std::reference_wrapper");
    static_assert(!Awaitable<R>,
                  "offload() awaits nothing on its thread, where no coroutine runs: co_await the "
                  "task or operation itself, and offload only what blocks");
    template <class G>
    explicit OffloadAwaiter(std::in_place_t, G&& work) : work_(std::forward<G>(work)) {
        if (is_empty(work_)) refuse_empty("offload()");
    }
    OffloadAwaiter(const OffloadAwaiter&) = delete;  // An operation stays where it was made.

    static constexpr const char* what = "offload()";
    class InPlace : public detail::InPlace<OffloadAwaiter> {
      public:
        using detail::InPlace<OffloadAwaiter>::InPlace;
        template <class Promise>
        void await_suspend(std::coroutine_handle<Promise> awaiting) {
            this->suspend(awaiting);
            this->operation().begin(level_of(awaiting));
        }
    };
    InPlace operator co_await() { return InPlace(*this); }
    bool await_ready() const noexcept { return is_over_; }
    R await_resume() {
        if (thrown_) std::rethrow_exception(thrown_);
        if constexpr (!std::is_void_v<R>) return std::move(*value_);
    }

  private:
    friend detail::InPlace<OffloadAwaiter>;

    // Runs in a turn of its context; when its runtime drops what goes on and on, as that is
    // dropped.
    class End {
      public:
        explicit End(OffloadAwaiter& awaiter) : awaiter_(&awaiter) {}
        End(End&& other) noexcept : awaiter_(std::exchange(other.awaiter_, nullptr)) {}
        ~End() {
            if (awaiter_ && HeldScope::is_dropping()) (*this)();
        }
        void operator()() {
            OffloadAwaiter* const awaiter = std::exchange(awaiter_, nullptr);
            awaiter->is_over_ = true;
            awaiter->scope_.end(awaiter->awaiting_);  // May destroy the awaiter.
        }

      private:
        OffloadAwaiter* awaiter_;  // nullptr: told, or moved from.
    };

    // Ends the wait on its context: after it has run, or when it is destroyed without.
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

        OffloadAwaiter* awaiter_;  // nullptr: over, or moved from.
        Executor* home_;
    };

    Awaiting& awaiting() { return awaiting_; }
    void begin(Level* level) {
        const HeldScope::Begin begin = scope_.hold(level);
        if (begin == HeldScope::Begin::dropped || begin == HeldScope::Begin::had_begun) return;
        Executor* const home = Executor::current();
        Work given(*this, *home);
        if (begin == HeldScope::Begin::over) return;
        try {
            home->offload([work = std::move(given)]() mutable { work.run(); });
        } catch (...) {
            thrown_ = std::current_exception();  // Dropped, which resumes the coroutine.
        }
    }
    void run() {
        try {
            if constexpr (std::is_void_v<R>) {
                work_();
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
    bool is_over_ = false;
    HeldScope scope_;
    Awaiting awaiting_;
};

}  // namespace detail

// `co_await offload(work)`: runs `work()` on another thread and resumes here with what it returned
// or threw. `work` is an lvalue or trivially copyable (AwaitSafe): name a lambda that captures
// strings or handles before awaiting it. Work that is a null pointer or an empty function aborts
// the program and says so. Work that returns a reference, a task or an operation is refused when it
// is compiled: what blocks is offloaded, the rest is awaited.
// Throws std::system_error: when the system gives not a single thread for it, and, with
// operation_canceled, when the runtime ended before the work began: at once for the work of calls,
// which no caller waits for then, after RuntimeOptions::drain_timeout for other work. What a
// coroutine offloads from then on, to clean up, runs, 100 times at most. std::logic_error outside
// of a turn of a context.
// Requires: what offload() returned is not destroyed meanwhile, with its coroutine or by itself,
// which aborts the program: the work may use it. What weft/combine.h drops is destroyed when the
// work has ended. A co_await of work that another coroutine awaits, or awaited, throws
// std::logic_error; when that coroutine was destroyed, this one waits for the same work.
template <class F>
    requires AwaitSafe<F&&>
auto offload(F&& work) {
    using Held = std::conditional_t<std::is_lvalue_reference_v<F>, F, std::remove_cvref_t<F>>;
    static_assert(alignof(detail::OffloadAwaiter<Held>) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__,
                  "a coroutine's frame can't align this work, or what it returns: keep it behind a "
                  "std::unique_ptr");
    return detail::OffloadAwaiter<Held>(std::in_place, std::forward<F>(work));
}

}  // namespace weft
