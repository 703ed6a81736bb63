#include "core/task_waits.h"

#include <coroutine>
#include <new>
#include <utility>

#include <weft/task_promise.h>

#include "core/context.h"

namespace weft::detail {

struct TaskWait::Node : core::Deferred {
    explicit Node(TaskWait& of) : wait(of) { run = &over; }
    static void over(core::Deferred& work) {
        TaskWait& wait = static_cast<Node&>(work).wait;
        wait.home_ = nullptr;
        wait.has_ended_ = true;
        // The task goes on, if it does, and resumes nothing.
        PromiseBase& task = *wait.task_;
        std::exchange(task.awaiter, nullptr)->task = nullptr;
        Level* const level = task.outer;
        task.cut();
        resume_or_end(std::exchange(task.continuation, std::noop_coroutine()), level);
    }
    TaskWait& wait;
};

void TaskWait::begin(PromiseBase& task, const Level* level) {
    auto* const here = static_cast<core::Context*>(Executor::current());
    if (!here || !level || here->is_forked()) return;
    home_ = here;
    task_ = &task;
    here->task_waits().add(*this);
}

void TaskWait::end() {
    auto& home = static_cast<core::Context&>(*std::exchange(home_, nullptr));
    if (!home.is_forked()) home.task_waits().remove(*this);
}

}  // namespace weft::detail

namespace weft::core {

TaskWaits::~TaskWaits() {
    while (Wait::Node* const node = all_.pop_front()) node->wait.home_ = nullptr;
}

void TaskWaits::add(Wait& wait) {
    static_assert(sizeof(Wait::Node) <= Wait::node_bytes && alignof(Wait::Node) <= alignof(void*));
    auto* const node = ::new (static_cast<void*>(wait.node_)) Wait::Node(wait);
    const std::lock_guard lock(mutex_);
    all_.push_front(*node);
}

void TaskWaits::remove(Wait& wait) {
    const std::lock_guard lock(mutex_);
    std::launder(reinterpret_cast<Wait::Node*>(wait.node_))->take_back();
}

Deferred* TaskWaits::take_last() {
    const std::lock_guard lock(mutex_);
    base::IntrusiveList<Wait::Node> held;
    Wait::Node* last = all_.pop_front();
    for (; last && last->wait.task_->held != 0; last = all_.pop_front()) held.push_back(*last);
    held.splice_back(all_);
    all_.splice_back(held);
    return last;
}

}  // namespace weft::core
