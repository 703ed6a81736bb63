// Where an operation is awaited that another runtime completes.
#pragma once

#include <memory>

#include <weft/executor.h>
#include <weft/function.h>
#include <weft/status.h>

namespace weft::detail {

// The executor that turns here, while something is awaited there: its memory stays, and what waits
// is told when its runtime ends first.
//
// Stays in place: the executor has its address. Thread: the executor's, except for bring(), and for
// the destructor after leave(); on another one leave() aborts the program and says so.
class Home {
  public:
    // `on_end` runs once, in the last turns of the runtime, unless leave() comes first.
    explicit Home(Function<void()> on_end);
    Home(const Home&) = delete;
    Home& operator=(const Home&) = delete;
    ~Home();

    // What bring() brings is a part of the call that is served here now, if there is one.
    // `on_cancel` runs when that is cancelled before leave().
    void join_call(Function<void()> on_cancel);
    // Nothing is awaited any more.
    void leave();
    // The runtime has begun to end, and `on_end` will not run.
    bool is_over() const;
    // As Executor::post(). `work` keeps this alive.
    void bring(Function<void()> work) const;
    Executor& executor() const { return *executor_; }

  private:
    struct AtEnd;

    const std::shared_ptr<Executor> executor_;
    const std::unique_ptr<AtEnd> at_end_;
};

// For `what` of that executor, destroyed before its end: on another thread it aborts.
void require_end_here(const Executor& executor, const char* what);

// What is awaited gets this, and nothing can be awaited there any more.
Status home_ends();

}  // namespace weft::detail
