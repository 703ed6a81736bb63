// A runtime: the transports, its contexts, and the threads that turn them. It has one context
// unless RuntimeOptions::contexts says otherwise (weft/context.h): "the context" means that, or
// each.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <weft/addresses.h>
#include <weft/blocked_thread.h>
#include <weft/buffer.h>
#include <weft/channel.h>
#include <weft/context.h>
#include <weft/executor.h>
#include <weft/group.h>
#include <weft/options.h>
#include <weft/region.h>
#include <weft/result.h>
#include <weft/service.h>
#include <weft/task.h>

namespace weft {

class AsioDriver;

namespace api {
class Node;
class RuntimeImpl;
}  // namespace api

// Several runtimes may live in one process. Global to the process are the signals that run() waits
// for, and variables for libfabric, set with the first libfabric address (docs/environment.md).
//
// The thread of a runtime first takes a lock of the loader, as does any thread with thread_local
// objects that have destructors. dlopen() holds that lock while it runs the constructors of a
// library's static objects. Such a constructor may create a runtime but must not wait for it
// (serve(), connect(), block_on()); a wait there logs a warning.
//
// A child made by fork() or daemon() can only destroy its copy, exit or exec. Each operation in the
// child fails at once with FAILED_PRECONDITION. An operation without a result writes the reason to
// standard error, and drops its work (spawn(), post()) or aborts. Create the runtime after fork()
// or daemon().
//
// The runtime's threads block all signals except those of faults (SIGSEGV, SIGBUS, SIGFPE, SIGILL,
// SIGTRAP, SIGSYS, SIGABRT), and options.cpu binds the context's thread. A child fork()ed in a
// handler or in offloaded work has the signal mask and cpus of the thread that created the runtime.
// Children and threads that are made without fork handlers (posix_spawn(), system(), popen(),
// vfork(), std::thread) inherit the mask and cpus of the context's thread. Set a mask for them:
// posix_spawn() by POSIX_SPAWN_SETSIGMASK, the others by a mask set before the call and restored
// after it.
//
// Empty when moved from: an empty runtime can be destroyed and assigned to; any other use aborts
// the program with a message.
//
// Thread: any, unless stated otherwise. serve(), add(), listen(), connect(), group(),
// join() and expose(), and install(), on_change() and channel() of a Group, run on the context's
// thread. A call from another thread waits for that thread; a handler that blocks it for 2 s is
// logged.
//
// With options.manual the context's thread is the thread that last turned the runtime. Before the
// first turn it is the thread that created the runtime (with an AsioDriver: none); the first turn
// of another thread waits until a call of the creating thread has returned. A thread that waits in
// one of these calls, or in block_on(), turns the runtime itself until a thread has turned it. From
// then on it only waits, and logs a warning after a second without a turn. With several contexts
// this holds for each; a call outside of turns uses the first context that its thread turned last,
// else context 0, and turns those contexts while it waits for another one.
//
// Lifetime: the destructor completes every call with CANCELLED and joins the runtime's threads.
// Channels, regions and buffers may outlive the runtime; their operations then fail. The destructor
// waits for offloaded work that has begun, however long it takes, because it destroys next what
// that work uses. Work of calls that has not begun is dropped (weft/offload.h). Declare a service
// before the runtime (weft/service.h). Coroutines that loop without end are destroyed with it.
//
// A callback, handler, coroutine or offloaded work of the runtime must not destroy it: it calls
// stop(), and run() returns. Destruction there aborts the program with a message. So does
// destruction while a thread is in run() or turn_until(), or turns the runtime in block_on(): call
// stop() and join that thread first. With a runtime of static storage, exit() where
// destruction would abort writes a message and ends the program with the exit code; the runtime is
// left as it is.
class Runtime {
  public:
    // Errors: INVALID_ARGUMENT (names the option or WEFT_ variable), RESOURCE_EXHAUSTED.
    static Result<Runtime> create(RuntimeOptions options = {});
    // A runtime on parts that the caller supplies, for simulations and tests.
    static Result<Runtime> from_impl(std::shared_ptr<api::RuntimeImpl> impl);
    Runtime(Runtime&&) noexcept;
    Runtime& operator=(Runtime&&) noexcept;
    ~Runtime();

    // ---- serving -----------------------------------------------------------------------------
    // Adds the service's methods, unless the service is served already, and listens on each of the
    // addresses. After an error no method is added and no address is listened on, so the caller may
    // retry with other addresses. Addresses are tried before a function makes services; the
    // services of a call that fails after that stay until the runtime ends (weft/context.h).
    // Errors: INVALID_ARGUMENT (malformed address, or none given), ALREADY_EXISTS (name or port in
    // use, method served already), FAILED_PRECONDITION (after stop(), or after a run() that
    // drained), UNIMPLEMENTED (transport not in this build), UNAVAILABLE (transport unusable here),
    // PERMISSION_DENIED (by the system), RESOURCE_EXHAUSTED (64 addresses).
    // With several contexts a plain service is refused (INVALID_ARGUMENT): its handlers would run
    // on several threads. A function makes one for each context; weft::shared(service) says that
    // one may be used by all (weft/context.h). With several contexts these calls, addresses() and
    // state() apart, fail in a turn of this runtime, and in the functions that make or register its
    // services: FAILED_PRECONDITION.
    Status serve(Service& service, const Addresses& at);
    Status serve(ServiceFactory make, const Addresses& at);
    Status serve(SharedService service, const Addresses& at);
    // The two halves of serve(). add() adds all methods of a service or none.
    Status add(Service& service);
    Status add(ServiceFactory make);
    Status add(SharedService service);
    Status listen(std::string_view uri);
    // The addresses for peers, with ports: one for each listen(), for 0.0.0.0 and [::] of tcp and
    // ofi+tcp one for each of the host, of which loopback and link-local ones only without others.
    std::vector<std::string> addresses() const;

    // Blocks until stop(), or until SIGINT or SIGTERM, which end each run() of the process. Then it
    // refuses new calls, runs the notices of handlers (Call::on_drain()), and waits for the
    // handlers and until the clients have their replies. Meanwhile it logs a handler that blocks
    // the context's thread for 2 s; so does a call of another thread that waits for that thread.
    //
    // Errors: DEADLINE_EXCEEDED when handlers or replies were left after options.drain_timeout, or
    // when a handler blocks a context's thread; CANCELLED when a signal arrived during the drain;
    // RESOURCE_EXHAUSTED, at once, without a descriptor for signals; FAILED_PRECONDITION, at once,
    // inside a turn of this runtime or in a simulation.
    //
    // With options.manual another thread turns the runtime meanwhile. A program with other threads
    // blocks SIGINT and SIGTERM in them before it starts them, as the runtime's own threads do.
    Status run();
    void stop();  // Ends run(). Thread: any. Once run() has returned the runtime may be destroyed.

    // For people: connections, sessions, calls and handlers, counts, latencies by method, the last
    // events. At most some hundred lines, in a format that may change. run() writes it to the log
    // on options.state_signal. It is also written when a handler still runs 5 s after its deadline,
    // once a minute at most. With several contexts the sums of all come first, then the loads of
    // the 32 busiest, then the state of the busiest ones. A context that does not answer within a
    // second is named. In a turn it has the own context's part only.
    std::string state();
    // What each context has to do, in the order of their numbers. It waits for no context. Thread:
    // any.
    std::vector<ContextLoad> loads() const;

    // ---- calling -----------------------------------------------------------------------------
    // A channel to a server with one address, or with several in any order: sm or unix where a
    // network address, if one is given, shows that the server is on this host; else the fastest
    // network that answers. The first call connects.
    // Errors: INVALID_ARGUMENT, UNIMPLEMENTED (no transport for any address), RESOURCE_EXHAUSTED,
    // UNAVAILABLE (the runtime ends); with one address also those of opening its transport.
    Result<Channel> connect(const Addresses& to, ConnectOptions with = {});

    // ---- groups ------------------------------------------------------------------------------
    // A handle to call the whole group. On a runtime that has joined a group of this name it is the
    // member's handle, and collectives start at that member. Errors: INVALID_ARGUMENT: an empty
    // view.
    Result<Group> group(GroupView view);
    // From here on this runtime serves as `rank`. Errors: as group() and serve(); OUT_OF_RANGE.
    Status join(GroupView view, std::uint32_t rank);

    // ---- bulk --------------------------------------------------------------------------------
    // Memory that every transport can expose, in whole pages. A forked child shares it with its
    // parent, including later writes of either. Its contents are unspecified, and may be data that
    // this program left in an earlier buffer: fill what peers are to read. Data that peers left in
    // the runtime's own memory (bodies of large calls) is never in it. Errors: RESOURCE_EXHAUSTED,
    // INVALID_ARGUMENT.
    Result<Buffer> allocate(std::size_t bytes);
    // Lets peers that have the reference access the memory. Private memory costs an sm peer two
    // system calls for each 256 KiB, and is FAILED_PRECONDITION where the kernel denies it.
    // Errors: INVALID_ARGUMENT: an empty buffer, no access, a negative lease; UNIMPLEMENTED when a
    // transport in use can't expose it; RESOURCE_EXHAUSTED; UNAVAILABLE: the runtime shuts down.
    Result<Region> expose(Buffer memory, ExposeOptions options);

    // ---- contexts ----------------------------------------------------------------------------
    unsigned contexts() const;
    // An index that is no context's aborts the program with a message.
    ContextRef context(unsigned index) const;
    // The context that the calling thread is in a turn of.
    std::optional<unsigned> here() const;
    // Runs work(k), a function or coroutine, on each context k at once, and awaits all: their
    // results in the order of the contexts; none if it returns nothing. As ContextRef::submit();
    // the first exception is rethrown once all have ended. The threads of all contexts use the one
    // `work` and its captures at the same time: an lvalue stays where it is and must exist until
    // the task has ended.
    template <class F>
        requires AwaitSafe<F&&>
    auto on_all(F&& work) const {
        using Stored = std::conditional_t<std::is_lvalue_reference_v<F>, F, std::remove_cvref_t<F>>;
        if constexpr (detail::is_for_all<Stored>()) {
            if (detail::is_empty(work)) detail::refuse_empty("Runtime::on_all()");
            std::vector<ContextRef> all;
            for (unsigned k = 0; k < contexts(); ++k) all.push_back(context(k));
            return detail::run_on_all<Stored>(std::move(all), std::forward<F>(work));
        }
    }

    // ---- coroutines --------------------------------------------------------------------------
    // Runs the task on the context's thread and waits for it. Inside a callback, handler, coroutine
    // or offloaded work of this runtime the call would wait for itself, and aborts the program with
    // a message: co_await the task there. A circle of runtimes, each with a turn that waits for the
    // next one, aborts, too; the message names all of them. Waits in offloaded work are not
    // detected. In a simulation the wait lets virtual time pass. With options.manual: turns the
    // runtime, on the thread that turned it last; another thread waits for that thread's turns
    // (class comment). A thread in block_on() must not be cancelled by pthread_cancel(): end the
    // task instead. An exception that leaves the task is rethrown. Throws BadResult (CANCELLED)
    // when the runtime ends before the task, which is then destroyed: a program's own awaitables
    // must allow their destruction while a coroutine waits for them. Throws std::invalid_argument
    // for an empty task, std::logic_error for a task that was awaited before.
    template <class T>
    T block_on(Task<T> task) {
        return detail::block_on(std::move(task), [this](auto start, detail::BlockedThread& waiter) {
            run_blocking(std::move(start), waiter);
        });
    }
    // Starts the task on the context's thread. An exception that leaves the task is logged as an
    // error. Throws as block_on() for an empty or an awaited task.
    void spawn(Task<void> task);
    // The same for a callable that returns the task, such as a lambda that is a coroutine. The
    // callable is moved or copied, and kept until the task has ended, so the task may use its
    // captures. In `spawn([x]() -> Task<void> { … }())`, with a call, the lambda and its captures
    // are destroyed at once. A null pointer or an empty function aborts the program with a message.
    template <class F>
        requires detail::makes_task<F>
    void spawn(F&& work) {
        if (detail::is_empty(work)) detail::refuse_empty("Runtime::spawn()");
        spawn(detail::run_stored<std::decay_t<F>>(std::forward<F>(work)));
    }
    // The executor on which completions and coroutines of this runtime run.
    Executor& executor();

    // ---- a turn at a time --------------------------------------------------------------------
    // This section requires options.manual; without it a call aborts the program with a message. So
    // does a turn inside a turn: handlers, completions and coroutines of the runtime must not turn
    // it. Thread: one at a time; calls from the thread that turned last cost no hop. turn() runs
    // everything that is due and returns the number of events.
    //
    // With several contexts each function here is for all of them, on one thread: a turn of each, a
    // descriptor that is readable when one of them has work, the earliest deadline. ContextRef has
    // the same functions for one context, on a thread of its own.
    std::uint32_t turn();
    // Turns, and sleeps when idle, until `done()` is true; returns false when `limit` passes first.
    // In a simulation, which turns all its hosts meanwhile, the limit is virtual time.
    bool turn_until(Function<bool()> done, Duration limit);

    // For an event loop that watches a descriptor and has a timer (epoll, libuv; <weft/asio.h> does
    // this for Boost.Asio): call turn(). If it returns 0 and arm() returns true, wait until
    // wait_fd() is readable or next_deadline() has passed. Then call turn() again. Use of the
    // runtime by the program during that wait also makes wait_fd() readable, including its own
    // turn(), turn_until() or block_on().
    // Thread: the one that turned last; on another one arm() and next_deadline() abort the program
    // with a message.
    bool arm();
    // `never` when there is none.
    TimePoint next_deadline() const;
    // One epoll descriptor for all transports, including those opened later. Only to be watched;
    // valid as long as the runtime. In a simulation, with several contexts, the call aborts the
    // program with a message. Thread: any.
    int wait_fd() const;

  private:
    friend class api::RuntimeImpl;
    friend class AsioDriver;
    explicit Runtime(std::shared_ptr<api::RuntimeImpl> impl);
    // For an AsioDriver, from its start to its stop. Meanwhile the end of the runtime, or another
    // driver, aborts the program with a message.
    void set_driven(bool is_driven);
    // Runs `start` on the context's thread, and returns when `waiter` is done. The thread that
    // turns the runtime turns it meanwhile.
    void run_blocking(Function<void()> start, detail::BlockedThread& waiter);

    std::shared_ptr<api::RuntimeImpl> impl_;
    // Of the only context, with options.manual; nullptr: there are several, or they have threads.
    api::Node* manual_node_ = nullptr;
};

}  // namespace weft
