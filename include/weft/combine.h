// Concurrent tasks: when_all, when_any, with_timeout.
//
//     auto both = co_await when_all(copy(a), copy(b));        // both.get<0>(), both.get<1>()
//     auto first = co_await when_any(read(near), read(far));  // first.index(), first.value()
//     Result<Blob> blob = co_await with_timeout(50ms, read(near));
//
// Each of them takes tasks, by value, and is a task: nothing starts before it is awaited. The tasks
// run on the context that awaits them, one at a time, as a part of the same call, and take turns
// where they suspend. The awaiting coroutine continues in a later turn; at once where no task
// suspends.
//
// A dropped task is destroyed where it is suspended, with everything that it awaits: its calls,
// transfers, collectives and sleeps are cancelled, and none of them resumes anything. This is done
// before the awaiting coroutine continues. Offloaded work can't be cancelled, nor work that was
// submitted to other contexts (weft/context.h): a task that waits for it is destroyed when the work
// has ended, and the awaiting coroutine waits for that, also beyond the time of with_timeout(). The
// dropped task begins no more work. (A coroutine of the program's own type between the two hides
// the work: the program is aborted with a message.)
//
// A program's own awaitables must allow their destruction while a coroutine waits for them, and
// must resume it on the thread of its context (Executor::post()): a task that ends on another
// thread also aborts the program.
//
// Cost: one coroutine frame, and with a std::vector another allocation or two.
// Thread: one that turns a context; else they throw std::logic_error.
// Errors: std::invalid_argument for an empty task and for when_any of no task; std::logic_error for
// a task that was awaited before.
#pragma once

#include <array>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <weft/combine_operation.h>
#include <weft/result.h>
#include <weft/sleep.h>
#include <weft/task.h>
#include <weft/task_combinator.h>

namespace weft {

namespace detail {

template <class T>
using StoredResult = std::conditional_t<std::is_void_v<T>, std::monostate, T>;

// Returns the result of an ended task, or throws its exception.
template <class T>
StoredResult<T> take(Task<T>& task) {
    if constexpr (std::is_void_v<T>) {
        TaskAccess::handle(task).promise().take();
        return {};
    } else {
        return TaskAccess::handle(task).promise().take();
    }
}

// Tasks of one type with their branches.
template <class T, std::size_t n>
class FixedTasks {
  public:
    template <class... Tasks>
    explicit FixedTasks(std::in_place_t, Tasks&&... tasks)
        : tasks_{std::forward<Tasks>(tasks)...} {}
    FixedTasks(FixedTasks&& other) noexcept : tasks_(std::move(other.tasks_)) {}  // Before a start.
    static constexpr std::size_t size() { return n; }
    Task<T>& operator[](std::size_t at) { return tasks_[at]; }
    Branch& branch(std::size_t at) { return branches_[at]; }

  private:
    Branch branches_[n];
    std::array<Task<T>, n> tasks_;
};

template <class T>
class ManyTasks {
  public:
    explicit ManyTasks(std::vector<Task<T>>&& tasks)
        : branches_(tasks.size()), tasks_(std::move(tasks)) {}
    std::size_t size() const { return tasks_.size(); }
    Task<T>& operator[](std::size_t at) { return tasks_[at]; }
    Branch& branch(std::size_t at) { return branches_[at]; }

  private:
    std::vector<Branch> branches_;
    std::vector<Task<T>> tasks_;
};

}  // namespace detail

// The results of all tasks, in their order; std::monostate for a Task<void>.
template <class... Ts>
class AllOf {
  public:
    explicit AllOf(std::tuple<detail::StoredResult<Ts>...>&& results)
        : results_(std::move(results)) {}
    template <std::size_t at>
    auto& get() & {
        return std::get<at>(results_);
    }
    template <std::size_t at>
    const auto& get() const& {
        return std::get<at>(results_);
    }
    template <std::size_t at>
    auto&& get() && {
        return std::get<at>(std::move(results_));
    }

  private:
    std::tuple<detail::StoredResult<Ts>...> results_;
};

// The task that ended first, counted from 0, and its result.
template <class T>
class FirstOf {
  public:
    FirstOf(std::size_t index, detail::StoredResult<T>&& value)
        : index_(index), value_(std::move(value)) {}
    std::size_t index() const { return index_; }
    detail::StoredResult<T>& value() & { return value_; }
    const detail::StoredResult<T>& value() const& { return value_; }
    detail::StoredResult<T>&& value() && { return std::move(value_); }

  private:
    std::size_t index_;
    detail::StoredResult<T> value_;
};

// The result of a task that may time out: T itself where a Status converts to T.
template <class T>
using TimedOf =
    std::conditional_t<std::is_void_v<T>, Status,
                       std::conditional_t<std::is_convertible_v<Status, detail::StoredResult<T>>, T,
                                          Result<detail::StoredResult<T>>>>;

namespace detail {

template <class... Ts, std::size_t... at>
WEFT_HEADER_COROUTINE Task<AllOf<Ts...>> all_of(std::tuple<Task<Ts>...> given,
                                                std::index_sequence<at...>) {
    (require_task(std::get<at>(given)), ...);
    Branch branches[sizeof...(Ts)];
    std::tuple<Task<Ts>...> tasks(std::move(given));
    AsyncFrame* const outer = co_await CurrentAsyncFrame();
    TaskCombinator combinator("when_all()", outer, sizeof...(Ts));
    (combinator.start(branches[at], std::get<at>(tasks)), ...);
    co_await combinator;
    co_return AllOf<Ts...>(std::tuple<StoredResult<Ts>...>{take(std::get<at>(tasks))...});
}

template <class T>
WEFT_HEADER_COROUTINE
    Task<std::conditional_t<std::is_void_v<T>, void, std::vector<StoredResult<T>>>>
    all_of_many(ManyTasks<T> tasks) {
    for (std::size_t i = 0; i < tasks.size(); ++i) require_task(tasks[i]);
    AsyncFrame* const outer = co_await CurrentAsyncFrame();
    TaskCombinator combinator("when_all()", outer, tasks.size());
    for (std::size_t i = 0; i < tasks.size(); ++i) combinator.start(tasks.branch(i), tasks[i]);
    co_await combinator;
    if constexpr (std::is_void_v<T>) {
        for (std::size_t i = 0; i < tasks.size(); ++i) take(tasks[i]);
    } else {
        std::vector<T> results;
        results.reserve(tasks.size());
        for (std::size_t i = 0; i < tasks.size(); ++i) results.push_back(take(tasks[i]));
        co_return results;
    }
}

template <class T, class Tasks>
WEFT_HEADER_COROUTINE Task<FirstOf<T>> first_of(Tasks tasks) {
    require_tasks(tasks.size() != 0);
    for (std::size_t i = 0; i < tasks.size(); ++i) require_task(tasks[i]);
    AsyncFrame* const outer = co_await CurrentAsyncFrame();
    TaskCombinator combinator("when_any()", outer, 1);
    for (std::size_t i = 0; i < tasks.size() && !combinator.first(); ++i) {
        combinator.start(tasks.branch(i), tasks[i]);
    }
    co_await combinator;
    combinator.drop();
    std::size_t first = 0;
    while (&tasks.branch(first) != combinator.first()) ++first;
    for (std::size_t i = 0; i < tasks.size(); ++i) {
        if (i != first && tasks.branch(i).pin_count == 0) tasks[i] = Task<T>();
    }
    for (std::size_t i = 0; i < tasks.size(); ++i) {
        if (i == first) continue;
        while (tasks.branch(i).pin_count != 0) {
            combinator.reset();
            co_await combinator;
        }
        tasks[i] = Task<T>();
    }
    co_return FirstOf<T>(first, take(tasks[first]));
}

}  // namespace detail

// Starts all tasks, in their order, and continues when all have ended. Then it rethrows an
// exception that left a task; of several, that of the first task in their order.
template <class... Ts>
    requires(sizeof...(Ts) != 0)
Task<AllOf<Ts...>> when_all(Task<Ts>... tasks) {
    return detail::all_of<Ts...>(std::tuple<Task<Ts>...>(std::move(tasks)...),
                                 std::index_sequence_for<Ts...>());
}

// The same for any number of tasks: gives a std::vector<T>; for a Task<void>, nothing.
template <class T>
auto when_all(std::vector<Task<T>> tasks) {
    return detail::all_of_many<T>(detail::ManyTasks<T>(std::move(tasks)));
}

// Starts the tasks, in their order, until one has ended, with or without an error, and drops the
// others. Gives the result of that task, or rethrows the exception that left it.
template <class T, class... Others>
    requires(std::is_same_v<Others, Task<T>>&&...)
Task<FirstOf<T>> when_any(Task<T> task, Others... others) {
    using Tasks = detail::FixedTasks<T, 1 + sizeof...(Others)>;
    return detail::first_of<T>(Tasks(std::in_place, std::move(task), std::move(others)...));
}

template <class T>
Task<FirstOf<T>> when_any(std::vector<Task<T>> tasks) {
    return detail::first_of<T>(detail::ManyTasks<T>(std::move(tasks)));
}

// Drops the task when it has not ended within `limit`, counted from the start of the await. Gives
// the task's result where a Status converts to its type, else a Result of it; for a Task<void> a
// Status. Errors also, effect unknown, since the task may have sent a call: DEADLINE_EXCEEDED;
// CANCELLED in the last turn of the runtime; at once when the await begins after the runtime has
// begun to end.
template <class T>
WEFT_HEADER_COROUTINE Task<TimedOf<T>> with_timeout(Duration limit, Task<T> task) {
    detail::require_task(task);
    detail::Branch branch;
    Task<T> started(std::move(task));
    detail::TaskCombinator combinator("with_timeout()", co_await detail::CurrentAsyncFrame(), 1);
    combinator.limit(limit);
    combinator.start(branch, started);
    co_await combinator;
    if (!branch.has_ended) {
        Status why = combinator.timeout_status(limit);
        combinator.drop();
        while (branch.pin_count != 0) {
            combinator.reset();
            co_await combinator;
        }
        started = Task<T>();
        co_return why;
    }
    if constexpr (std::is_void_v<T>) {
        detail::take(started);
        co_return Status();
    } else {
        co_return detail::take(started);
    }
}

}  // namespace weft
