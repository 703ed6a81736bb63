// What when_all(), when_any() and with_timeout() wait by. Include weft/combine.h.
#pragma once

#include <coroutine>
#include <cstddef>
#include <utility>

#include <weft/sleep.h>
#include <weft/task.h>

namespace weft::detail {

// Tasks under way, in the frame of the coroutine that awaits them. Destroyed before them, and they
// before their branches: a task that is destroyed may resume another one.
class Fork : public Alarm {
  public:
    // Awaited, it waits for `ends` tasks to end. Throws when there is no context.
    Fork(const char* combinator, Level* outer, std::size_t ends);
    ~Fork();
    void drop();  // All that were started.
    static constexpr const char* what = "tasks";
    InPlace<Fork> operator co_await() { return InPlace(*this); }

    template <class T>
    void start(Branch& branch, Task<T>& task) {
        const auto handle = TaskAccess::handle(task);
        branch.fork = this;
        branch.outer = outer_;
        branch.next = std::exchange(started_, &branch);
        handle.promise().outer = &branch;
        handle.resume();
    }
    using Alarm::limit;                     // It waits no longer than that,
    Status why_over(Duration limit) const;  // and then so.
    using Alarm::reset;  // The next time that it is awaited it waits for release().
    // Work on another thread lets go of a branch that was dropped.
    void release() { ring().resume(); }
    // Aborts on a thread that does not turn the fork's context. Gives what goes on now.
    std::coroutine_handle<> end(Branch& branch);
    const Branch* first() const { return first_; }  // nullptr: none has ended yet.
    void await_resume() const noexcept {}

  private:
    const char* const name_;
    Level* const outer_;
    Branch* started_ = nullptr;  // The last one.
    std::size_t ends_;
    const Branch* first_ = nullptr;
};

void require_tasks(bool are_some);  // False: throws std::invalid_argument.
template <class T>
void require_task(const Task<T>& task) {
    require_tasks(static_cast<bool>(task));
    require_startable(TaskAccess::handle(task));
}

}  // namespace weft::detail
