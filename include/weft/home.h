// Where an operation is awaited that another runtime completes.
#pragma once

#include <memory>

#include <weft/executor.h>
#include <weft/function.h>
#include <weft/status.h>
#include <weft/time.h>

namespace weft::detail {

// The executor that turns here, while something is awaited there: its memory stays, and the wait
// ends by itself when its runtime does, and when the other runtime brings nothing in time, because
// its thread is blocked.
//
// Stays in place: the executor has its address. Thread: the executor's, except for bring(), and for
// the destructor after leave(); on another one leave() aborts the program and says so.
class Home {
  public:
    // `on_end` runs once, unless leave() comes first: with CANCELLED in the last turns of the
    // runtime, with DEADLINE_EXCEEDED after limit(), with CANCELLED after join_call(). It calls
    // leave().
    explicit Home(Function<void(Status why)> on_end);
    Home(const Home&) = delete;
    Home& operator=(const Home&) = delete;
    ~Home();

    // What bring() brings is a part of the call that is served here now, if there is one.
    // `on_cancel` runs when that is cancelled before leave(); the wait ends `answer_time` later at
    // the latest. Errors: CANCELLED: the call is already, and nothing is joined.
    Status join_call(Function<void()> on_cancel);
    // The wait ends `answer_time` after `deadline` at the latest.
    void limit(TimePoint deadline);
    // Nothing is awaited any more.
    void leave();
    // The runtime has begun to end, and `on_end` will not run.
    bool is_over() const;
    // As Executor::post(). `work` keeps this alive.
    void bring(Function<void()> work) const;
    Executor& executor() const { return *executor_; }

  private:
    struct AtEnd;
    // In which the other runtime, whose deadline and cancel are the same, says more of what became
    // of the operation, unless its thread is blocked.
    static constexpr Duration answer_time = std::chrono::milliseconds(10);

    const std::shared_ptr<Executor> executor_;
    const std::unique_ptr<AtEnd> at_end_;
};

// What is refused before it has begun, told in a later turn of the context that this thread turns,
// as a part of the call that is served there now: a coroutine that tries again and again lets the
// others go on, and ends with its runtime. Thread: the context's; destroyed before its end on
// another one it aborts the program and says so.
class Later {
  public:
    Later() = default;
    Later(const Later&) = delete;
    Later& operator=(const Later&) = delete;
    ~Later() {
        if (node_) [[unlikely]]
            drop();
    }

    // Once. Where no context turns, inside this.
    void run(Function<void()> work);
    explicit operator bool() const { return node_ != nullptr; }
    // `work` will not run.
    void drop();

  private:
    struct Node;
    Node* node_ = nullptr;  // Owned.
};

// For `what` of that executor, destroyed before its end: on another thread it aborts.
void require_end_here(Executor& executor, const char* what);

// What is awaited gets this, and nothing can be awaited there any more.
Status home_ends();

}  // namespace weft::detail
