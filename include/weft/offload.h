// File I/O and other work that blocks, awaited without blocking the context.
#pragma once

#include <coroutine>
#include <exception>
#include <memory>
#include <optional>
#include <type_traits>

#include <weft/executor.h>
#include <weft/task.h>

namespace weft {

namespace detail {

// The call that a coroutine serves, kept while it waits. Thread: the context's.
class HeldScope {
  public:
    HeldScope();
    ~HeldScope();
    // Requires: inside a turn of a context, as for resume().
    void hold();
    void resume(std::coroutine_handle<> awaiting);

  private:
    struct Held;
    std::unique_ptr<Held> held_;  // nullptr: it serves none.
};

template <class F>
class OffloadAwaiter {
  public:
    using R = std::invoke_result_t<F&>;
    template <class G>
    explicit OffloadAwaiter(std::in_place_t, G&& work) : work_(std::forward<G>(work)) {}

    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> awaiting) {
        Executor* home = Executor::current();
        scope_.hold();
        home->offload([this, home, awaiting] {
            try {
                if constexpr (std::is_void_v<R>) {
                    work_();
                } else {
                    value_.emplace(work_());
                }
            } catch (...) {
                thrown_ = std::current_exception();
            }
            home->post([this, awaiting] { scope_.resume(awaiting); });
        });
    }
    R await_resume() {
        if (thrown_) std::rethrow_exception(thrown_);
        if constexpr (!std::is_void_v<R>) return std::move(*value_);
    }

  private:
    F work_;  // A reference for lvalues.
    std::optional<std::conditional_t<std::is_void_v<R>, char, R>> value_;
    std::exception_ptr thrown_;
    HeldScope scope_;
};

}  // namespace detail

// `co_await offload(work)`: runs `work()` on another thread and resumes here with what it returned
// or threw. `work` is an lvalue or trivially copyable (AwaitSafe): name a lambda that captures
// strings or handles before awaiting it.
// Requires: inside a turn of a context; the task is not destroyed meanwhile.
template <class F>
    requires AwaitSafe<F&&>
auto offload(F&& work) {
    using Held = std::conditional_t<std::is_lvalue_reference_v<F>, F, std::remove_cvref_t<F>>;
    return detail::OffloadAwaiter<Held>(std::in_place, std::forward<F>(work));
}

}  // namespace weft
