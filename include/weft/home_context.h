// The context that awaits an operation of another runtime.
#pragma once

#include <memory>

#include <weft/executor.h>
#include <weft/function.h>
#include <weft/status.h>
#include <weft/time.h>

namespace weft::detail {

// The executor of this thread, kept in memory while an operation of another runtime is awaited on
// it. The wait ends by itself when the executor's runtime ends, and when the other runtime delivers
// nothing in time, because its thread is blocked.
//
// Does not move: the executor has its address. Thread: deliver(): any; the destructor after
// detach(): any; all else: the executor's. On another thread detach() aborts the program with a
// message.
class HomeContext {
  public:
    // `on_end` runs once, unless detach() is called before: with CANCELLED in the last turns of the
    // runtime, or when the call of join_call() is cancelled; with DEADLINE_EXCEEDED after limit().
    // It calls detach().
    explicit HomeContext(Function<void(Status why)> on_end);
    HomeContext(const HomeContext&) = delete;
    HomeContext& operator=(const HomeContext&) = delete;
    ~HomeContext();

    // Makes the work of deliver() a part of the call that this thread serves now, if there is one.
    // `on_cancel` runs when that call is cancelled before detach(); the wait ends at most
    // `reply_grace` later. Errors: CANCELLED: the call is cancelled already, and nothing is joined.
    Status join_call(Function<void()> on_cancel);
    // The wait ends at most `reply_grace` after `deadline`.
    void limit(TimePoint deadline);
    // Ends the wait: `on_end` and `on_cancel` do not run any more.
    void detach();
    // The runtime has begun to end, and `on_end` will not run.
    bool is_ending() const;
    // As Executor::post(). `work` must keep this alive.
    void deliver(Function<void()> work) const;
    Executor& executor() const { return *executor_; }

  private:
    struct EndHook;
    // Time in which the other runtime, which has the same deadline and cancel, may report the
    // outcome, unless its thread is blocked.
    static constexpr Duration reply_grace = std::chrono::milliseconds(10);

    const std::shared_ptr<Executor> executor_;
    const std::unique_ptr<EndHook> end_hook_;
};

// Reports an operation that is refused before it begins: in a later turn of this thread's context,
// as a part of the call that this thread serves now. So a coroutine that retries without end lets
// others run, and ends with its runtime. Thread: the context's; destroyed before its end on another
// one it aborts the program with a message.
class NextTurnWork {
  public:
    NextTurnWork() = default;
    NextTurnWork(const NextTurnWork&) = delete;
    NextTurnWork& operator=(const NextTurnWork&) = delete;
    ~NextTurnWork() {
        if (node_) [[unlikely]]
            drop();
    }

    // Call once. On a thread that turns no context, `work` runs inside run().
    void run(Function<void()> work);
    explicit operator bool() const { return node_ != nullptr; }
    // `work` will not run.
    void drop();

  private:
    struct Node;
    Node* node_ = nullptr;  // Owned.
};

// Aborts on another thread than the executor's: `what` is destroyed before its end.
void require_end_on_thread(Executor& executor, const char* what);

// The result of awaited operations when the runtime that awaits them ends.
Status home_ending_status();

}  // namespace weft::detail
