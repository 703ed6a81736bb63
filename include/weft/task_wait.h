// How a coroutine awaits a task that lives elsewhere, and may outlive the runtime of the coroutine.
// Include weft/task.h.
#pragma once

#include <cstddef>

#include <weft/level.h>

namespace weft::core {
class TaskWaits;
}  // namespace weft::core

namespace weft::detail {

struct PromiseBase;

// In the frame of the coroutine, from its co_await on until it goes on. The context that this
// thread turns ends the wait once that has ended and nothing else is left to do there; outside of
// a turn nothing does.
class TaskWait {
  public:
    TaskWait() = default;
    TaskWait(const TaskWait&) = delete;
    TaskWait& operator=(const TaskWait&) = delete;
    ~TaskWait() { leave(); }

    // `level`: of the coroutine; nullptr: it is its program's own, and nothing ends the wait.
    void begin(PromiseBase& task, const Level* level);
    // The task has ended, or nothing awaits it any more.
    void leave() {
        if (home_) end();
    }
    bool has_ended() const { return has_ended_; }  // By its context.
    Executor* home() const { return home_; }       // nullptr: none ends it.

  private:
    friend core::TaskWaits;
    struct Node;
    static constexpr std::size_t node_bytes = 32;

    void end();

    Executor* home_ = nullptr;
    PromiseBase* task_ = nullptr;
    bool has_ended_ = false;
    alignas(void*) std::byte node_[node_bytes];
};

}  // namespace weft::detail
