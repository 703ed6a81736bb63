// Work on another context of the same runtime: `co_await runtime.context(k).submit(work)`.
//
// What one thread submits to a context, posts to it or spawns there begins in that order; nothing
// orders what different threads submit.
#pragma once

#include <coroutine>
#include <cstddef>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

#include <weft/executor.h>
#include <weft/offload.h>
#include <weft/reference_awaiter.h>
#include <weft/task.h>

namespace weft::detail {

// Carries work to a context of the runtime, and its end back to the context that awaits it. It
// keeps the awaiting coroutine and the frames around it until then, as offload() does. Destroyed
// while the work is under way, it aborts the program.
class SubmitPath {
  public:
    // Both receive `object`. `work` runs in a turn there and calls return_home() at its end, once;
    // `finish` runs here, in a later turn.
    using Step = void (*)(void* object);
    explicit SubmitPath(Executor& there);
    SubmitPath(const SubmitPath&) = delete;
    SubmitPath& operator=(const SubmitPath&) = delete;
    ~SubmitPath();

    // Throws std::logic_error outside of a turn of the runtime.
    void begin(AsyncFrame* async_frame, AwaiterSlot& slot, void* object, Step work, Step finish);
    // The end of the work. Thread: that of the other context; afterwards the object may be gone.
    void return_home();
    // Here, in `finish`: resumes the coroutine.
    void resume(const AwaiterSlot& slot) { scope_.end(slot); }

  private:
    struct Node;
    struct LateReturn;
    Node& node();
    static void arrive(Node& node);
    static void start_return(Node& node);

    Executor& there_;
    OffloadScope scope_;
    static constexpr std::size_t node_bytes = 25 * sizeof(void*);
    alignas(void*) std::byte node_[node_bytes];
};

// Of work that its runtime dropped at its end.
std::exception_ptr submission_dropped();

template <class F>
class SubmitAwaiter;

// Reports the end of a task there, also if it is destroyed.
template <class F>
class SubmittedEnd {
  public:
    explicit SubmittedEnd(SubmitAwaiter<F>& awaiter) : awaiter_(awaiter) {}
    SubmittedEnd(const SubmittedEnd&) = delete;
    SubmittedEnd& operator=(const SubmittedEnd&) = delete;
    ~SubmittedEnd() { awaiter_.end_there(); }

  private:
    SubmitAwaiter<F>& awaiter_;
};

template <class F>
WEFT_HEADER_COROUTINE Detached run_submitted_task(SubmitAwaiter<F>& awaiter) {
    const SubmittedEnd<F> end(awaiter);
    try {
        auto task = awaiter.work_();
        if constexpr (std::is_void_v<typename SubmitAwaiter<F>::R>) {
            co_await task;
            awaiter.value_.emplace();
        } else {
            awaiter.value_.emplace(co_await task);
        }
    } catch (...) {
        awaiter.thrown_ = std::current_exception();
    }
}

template <class Given>
struct SubmittedResult {
    using type = Given;
    static constexpr bool is_task = false;
};
template <class T>
struct SubmittedResult<Task<T>> {
    using type = T;
    static constexpr bool is_task = true;
};

template <class F>
class [[nodiscard]] SubmitAwaiter
    : public AwaitedWork<F, typename SubmittedResult<std::invoke_result_t<F&>>::type> {
  public:
    using Given = SubmittedResult<std::invoke_result_t<F&>>;
    using R = typename Given::type;
    static_assert(!std::is_reference_v<R>,
                  "submit() returns no reference into another context: give a value");
    static_assert(Given::is_task || !Awaitable<R>,
                  "submit() awaits a weft::Task only: co_await the operation in a coroutine");
    static constexpr const char* what = "submit()";
    template <class G>
    SubmitAwaiter(Executor& there, G&& work)
        : AwaitedWork<F, R>(std::forward<G>(work), what), path_(there) {}
    SubmitAwaiter(const SubmitAwaiter&) = delete;  // An operation stays where it was made.

    class ReferenceAwaiter : public detail::ReferenceAwaiter<SubmitAwaiter> {
      public:
        using detail::ReferenceAwaiter<SubmitAwaiter>::ReferenceAwaiter;
        template <class Promise>
        void await_suspend(std::coroutine_handle<Promise> awaiting) {
            this->suspend(awaiting);
            SubmitAwaiter& here = this->operation();
            here.path_.begin(async_frame_of(awaiting), here.awaiter_slot_, &here, &run_there,
                             &finish_here);
        }
    };
    ReferenceAwaiter operator co_await() { return ReferenceAwaiter(*this); }

  private:
    friend class SubmittedEnd<F>;
    template <class G>
    friend Detached run_submitted_task(SubmitAwaiter<G>& awaiter);

    static void run_there(void* object) {
        auto& self = *static_cast<SubmitAwaiter*>(object);
        if constexpr (Given::is_task) {
            run_submitted_task(self);
        } else {
            const SubmittedEnd<F> end(self);
            self.run();
        }
    }
    void end_there() {
        if (!this->value_ && !this->thrown_) this->thrown_ = submission_dropped();
        path_.return_home();
    }
    static void finish_here(void* object) {
        auto& self = *static_cast<SubmitAwaiter*>(object);
        if (!self.value_ && !self.thrown_) self.thrown_ = submission_dropped();
        self.is_done_ = true;
        self.path_.resume(self.awaiter_slot_);  // May destroy this.
    }

    SubmitPath path_;
};

}  // namespace weft::detail
