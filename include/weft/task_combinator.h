// The wait of when_all(), when_any() and with_timeout(). Include weft/combine.h.
#pragma once

#include <coroutine>
#include <cstddef>
#include <utility>

#include <weft/sleep.h>
#include <weft/task.h>

namespace weft::detail {

// The tasks in flight, in the frame of the coroutine that awaits them. Destroyed before the tasks,
// and the tasks before their branches: a task that is destroyed may resume another one.
class TaskCombinator : public Alarm {
  public:
    // Its await waits for `needed` tasks to end. Throws when there is no context.
    TaskCombinator(const char* name, AsyncFrame* outer, std::size_t needed);
    ~TaskCombinator();
    void drop();  // All started tasks.
    static constexpr const char* what = "tasks";
    ReferenceAwaiter<TaskCombinator> operator co_await() { return ReferenceAwaiter(*this); }

    template <class T>
    void start(Branch& branch, Task<T>& task) {
        const auto handle = TaskAccess::handle(task);
        branch.combinator = this;
        branch.outer = outer_;
        branch.next = std::exchange(started_, &branch);
        handle.promise().outer = &branch;
        handle.resume();
    }
    using Alarm::limit;                           // Ends the wait after that time,
    Status timeout_status(Duration limit) const;  // with this status.
    using Alarm::reset;                           // The next await is for on_branch_unpinned().
    // Offloaded work has released a dropped branch.
    void on_branch_unpinned() { notify().resume(); }
    // Aborts on a thread that does not turn this combinator's context. Returns the coroutine that
    // continues now.
    std::coroutine_handle<> on_branch_end(Branch& branch);
    const Branch* first() const { return first_; }  // nullptr: none has ended yet.
    void await_resume() const noexcept {}

  private:
    const char* const name_;
    AsyncFrame* const outer_;
    Branch* started_ = nullptr;  // The last started one.
    std::size_t pending_;
    const Branch* first_ = nullptr;
};

void require_tasks(bool are_some);  // False: throws std::invalid_argument.
template <class T>
void require_task(const Task<T>& task) {
    require_tasks(!task.empty());
    require_startable(TaskAccess::handle(task));
}

}  // namespace weft::detail
