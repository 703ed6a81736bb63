// The contexts of a runtime: threads that serve and call, each with connections, sessions and
// handlers of its own, behind the same addresses (RuntimeOptions::contexts).
//
// A connection stays on the context that it came to, and so do its calls, their handlers and their
// transfers. A handler that needs what another context has changes over explicitly:
//
//     std::string value = co_await runtime.context(k).submit([&] { return shard[k].get(key); });
//
// Its result comes back to the context that awaits.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <weft/blocked_thread.h>
#include <weft/combine.h>
#include <weft/executor.h>
#include <weft/function.h>
#include <weft/service.h>
#include <weft/submit.h>
#include <weft/task.h>
#include <weft/time.h>

namespace weft {

class AsioDriver;

namespace api {
class RuntimeImpl;
}

namespace detail {

template <class F>
inline constexpr bool makes_task = std::is_invocable_r_v<Task<void>, std::decay_t<F>&>;

template <class F>
WEFT_HEADER_COROUTINE Task<void> run_stored(F work) {
    static_assert(alignof(F) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__,
                  "a coroutine's frame can't align what this callable captures: keep it behind a "
                  "std::unique_ptr");
    Task<void> task = work();
    co_await task;
}

}  // namespace detail

// One context of a runtime. Copies are cheap, and keep the runtime's parts, not the runtime. After
// its end spawn(), block_on() and Executor::post() run the work before they return, on the calling
// thread or on another one that is in one of them; operations that it begins fail. Thread: any.
class ContextRef {
  public:
    unsigned index() const { return index_; }
    // On which its completions and coroutines run.
    Executor& executor() const;
    // `co_await context.submit(work)`: runs work() in a turn of this context, and awaits it there
    // if it is a task; resumes with its result or exception on the context that awaits. Operations
    // that the work begins inherit the deadline and the cancel of the call that the coroutine
    // serves. Submissions of one context to another begin in the order in which they were made.
    // Nothing bounds how many submissions wait: each is a coroutine that waits.
    //
    // `work` is an lvalue or trivially copyable (AwaitSafe), and stays with the awaiting coroutine;
    // its captures are used on this context's thread. The work must not await an operation that was
    // begun on another context, which throws std::logic_error (weft/await.h). Cost: two hand-overs,
    // no allocation, and a system call for a context that sleeps. Throws std::logic_error outside
    // of the runtime's turns; std::system_error with operation_canceled when the runtime ended
    // before the work did. As with offload(), the operation must not be destroyed before the work
    // has ended, and dropped tasks (weft/combine.h) are destroyed then.
    template <class F>
        requires AwaitSafe<F&&>
    auto submit(F&& work) const {
        using Stored = std::conditional_t<std::is_lvalue_reference_v<F>, F, std::remove_cvref_t<F>>;
        return detail::SubmitAwaiter<Stored>(executor(), std::forward<F>(work));
    }
    // As Runtime::spawn() and block_on(), on this context.
    void spawn(Task<void> task) const;
    template <class F>
        requires detail::makes_task<F>
    void spawn(F&& work) const {
        if (detail::is_empty(work)) detail::refuse_empty("ContextRef::spawn()");
        spawn(detail::run_stored<std::decay_t<F>>(std::forward<F>(work)));
    }
    template <class T>
    T block_on(Task<T> task) const {
        return detail::block_on(std::move(task), [this](auto start, detail::BlockedThread& waiter) {
            run_blocking(std::move(start), waiter);
        });
    }

    // ---- a turn at a time (options.manual) ---------------------------------------------------
    // As the functions of Runtime, for this context alone: each context may have a thread of the
    // program, or an event loop (AsioDriver). Thread: one at a time for each context; a turn while
    // another thread is in one of the same context aborts the program with a message. So does a
    // turn in a callback, handler or coroutine of any context of the runtime, or after its end.
    std::uint32_t turn() const;
    bool turn_until(Function<bool()> done, Duration limit) const;
    bool arm() const;
    TimePoint next_deadline() const;
    int wait_fd() const;

  private:
    friend class AsioDriver;
    friend class Runtime;
    friend class api::RuntimeImpl;
    ContextRef(std::shared_ptr<api::RuntimeImpl> impl, unsigned index);
    // As those of Runtime.
    void set_driven(bool is_driven) const;
    void run_blocking(Function<void()> start, detail::BlockedThread& waiter) const;

    std::shared_ptr<api::RuntimeImpl> impl_;
    unsigned index_;
};

namespace detail {

// The results of all contexts, of which each has an `R`.
template <class R>
struct OnAll {
    using type = std::vector<R>;
};
template <>
struct OnAll<void> {
    using type = void;
};
template <class F>
using OnOneResult = typename SubmittedResult<std::invoke_result_t<F&, unsigned>>::type;

// False: the compiler has refused `F`.
template <class F>
constexpr bool is_for_all() {
    constexpr bool takes_index = std::is_invocable_v<F&, unsigned>;
    static_assert(takes_index,
                  "on_all() calls its work with the number of the context: take an unsigned");
    if constexpr (takes_index) {
        constexpr bool gives_value = !std::is_reference_v<OnOneResult<F>>;
        static_assert(gives_value,
                      "on_all() returns no reference into another context: give a value");
        return gives_value;
    }
    return false;
}

template <class F>
WEFT_HEADER_COROUTINE Task<OnOneResult<F>> run_on_one(ContextRef context, F& work) {
    const auto there = [&] { return work(context.index()); };
    co_return co_await context.submit(there);
}

template <class F>
WEFT_HEADER_COROUTINE Task<typename OnAll<OnOneResult<F>>::type> run_on_all(
    std::vector<ContextRef> contexts, F work) {
    std::vector<Task<OnOneResult<F>>> parts;
    parts.reserve(contexts.size());
    for (const ContextRef& one : contexts) parts.push_back(run_on_one(one, work));
    co_return co_await when_all(std::move(parts));
}

}  // namespace detail

// What a context had to do in about the last second (Runtime::loads()). Zero, connections apart,
// with RuntimeOptions::manual and in a simulation, which measure no load.
struct ContextLoad {
    double served = 0;              // Calls received, per second.
    double made = 0;                // Calls begun here, per second.
    double busy = 0;                // The share of its thread's time, 0 to 1.
    std::uint32_t connections = 0;  // Of its clients, and to servers.
    bool is_blocked = false;        // Its thread has been in one turn for a second or longer.
};

// Where a service is made.
struct Here {
    ContextRef context;
    unsigned index;  // Of the context: below `count`.
    unsigned count;  // Contexts of the runtime.
};

// Makes the service of one context. It runs on that context's thread, once for each context before
// the first request of any. The services are destroyed at the end of the runtime, after the
// handlers and coroutines that end with it. A weft::Task that awaits an object of the program
// beyond that end (weft/call.h) keeps the services of all contexts until it has ended, and its
// thread destroys them. A handler that awaits an object of its own service ends that wait in
// Call::on_cancel(); otherwise both stay. Callbacks and coroutines of the program's own types keep
// nothing: after Call::on_cancel() they do not use the service. A serve() or add() that fails keeps
// the services that it has made, as the others, for the coroutines that they have begun: what one
// holds alone, such as a lock on a file, is not free for the next attempt on the same runtime.
//
// The thread that ends the runtime destroys the services, once the threads of the contexts have
// ended: not the thread that made them. What belongs to a thread (a thread_local, a handle of a
// library that checks its thread) is released before, on its context: by a handler, or by
// runtime.block_on(runtime.on_all(release)) after run() has returned and before the end.
using ServiceFactory = Function<std::unique_ptr<Service>(const Here&)>;

// A service with handlers that may run on several threads at once.
struct SharedService {
    Service& service;
};
// Says so of `service`, which must outlive the runtimes that serve it. With one context it is
// served as without.
inline SharedService shared(Service& service) { return {service}; }

// The context of `count` that a key belongs to, by the hash of the key: the same on every machine
// and in every version, so that servers and clients agree. Requires: count != 0. The upper half of
// the hash times 2^64 divided by the golden ratio (Knuth, The Art of Computer Programming, 6.4),
// scaled to the count.
constexpr unsigned place(std::uint64_t hash, unsigned count) {
    const std::uint64_t mixed = hash * 0x9e3779b97f4a7c15 >> 32;
    return static_cast<unsigned>(mixed * count >> 32);
}

}  // namespace weft
