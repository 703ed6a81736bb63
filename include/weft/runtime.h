// The owner of everything: transports, one context and the thread that turns it.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <weft/addresses.h>
#include <weft/buffer.h>
#include <weft/channel.h>
#include <weft/executor.h>
#include <weft/group.h>
#include <weft/options.h>
#include <weft/region.h>
#include <weft/result.h>
#include <weft/service.h>
#include <weft/task.h>

namespace weft {

namespace api {
class Node;
}

namespace detail {

struct BlockedThread;

template <class F>
inline constexpr bool makes_task = std::is_invocable_r_v<Task<void>, std::decay_t<F>&>;

template <class F>
WEFT_HEADER_COROUTINE Task<void> run_kept(F work) {
    static_assert(alignof(F) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__,
                  "a coroutine's frame can't align what this callable captures: keep it behind a "
                  "std::unique_ptr");
    Task<void> task = work();
    co_await task;
}

}  // namespace detail

// Several runtimes may live in one process. Process-global are the signals that run() waits for,
// and variables for libfabric, set with the first address of its (docs/environment.md).
//
// The thread of a runtime begins with a lock of the loader, as any thread does whose thread_local
// objects have destructors: what dlopen() runs, constructors of static objects of a library, may
// create a runtime and must not wait for it (serve(), connect(), block_on()); a warning says so.
//
// A child made by fork() or daemon() can only drop its copy, exit or exec. Each operation fails
// there at once with FAILED_PRECONDITION; one without a result writes the reason, and drops its
// work (spawn(), post()) or aborts. Create the runtime after fork() or daemon().
//
// The runtime's threads have all signals blocked but those of faults (SIGSEGV, SIGBUS, SIGFPE,
// SIGILL, SIGTRAP, SIGSYS, SIGABRT), and options.cpu binds the context's thread. A child fork()ed
// in a handler or in offloaded work has the signal mask and cpus of the thread that created the
// runtime. What runs no fork handlers inherits the thread's own: posix_spawn() there needs
// POSIX_SPAWN_SETSIGMASK; system(), popen(), vfork() and std::thread a mask set around them.
//
// Empty when moved from: it can be destroyed and assigned to, anything else aborts the program and
// says so.
//
// Thread: any, unless said otherwise. serve(), add(), listen(), addresses(), connect(), group(),
// join() and expose(), as install(), on_change() and channel() of a Group, run on the context's
// thread: another one waits for it, and a handler that blocks it for 2 s is logged. With
// options.manual that is the thread which turned it last; until one has, the one that made it, for
// whose calls the first turn of another waits, or with an AsioDriver none. Another one that waits
// turns it meanwhile where none has turned it, else logs a warning after a second without a turn;
// block_on() too.
//
// Lifetime: destroying it completes every call with CANCELLED and joins its threads; channels,
// regions and buffers may outlive it (their operations then fail). Offloaded work that has begun is
// waited for, however long it takes, since what it uses is destroyed next; work of calls that has
// not begun is dropped (weft/offload.h). It must not end inside one of its own callbacks, handlers,
// coroutines or offloaded work: they call stop(), and run() returns. Ending there aborts the
// program and says so, and so does ending while a thread is in run() or turn_until(), or in
// block_on() with options.manual: call stop() and join that thread first. A service is declared
// before it (weft/service.h). exit() there, with a runtime of static storage, says so too and ends
// the program with its code; the runtime is left as it is. Coroutines that go on and on when it
// ends are destroyed.
class Runtime {
  public:
    // Errors: INVALID_ARGUMENT (an option or a WEFT_ variable, by name), RESOURCE_EXHAUSTED.
    static Result<Runtime> create(RuntimeOptions options = {});
    // A runtime on parts of one's own: simulations and tests.
    static Result<Runtime> from_node(std::shared_ptr<api::Node> node);
    Runtime(Runtime&&) noexcept;
    Runtime& operator=(Runtime&&) noexcept;
    ~Runtime();

    // ---- serving -----------------------------------------------------------------------------
    // Adds the service's methods, unless it is served already, and listens on the address, or on
    // each of several. After an error nothing was added and no address is listened on: it may be
    // tried again at other addresses.
    // Errors: INVALID_ARGUMENT (address, or none given), ALREADY_EXISTS (name or port in use,
    // method served already), FAILED_PRECONDITION (after stop(), or after a run() that drained),
    // UNIMPLEMENTED (transport not in this build), UNAVAILABLE (transport unusable here).
    Status serve(Service& service, const Addresses& at);
    // The two halves of serve(). A service is added with all of its methods or with none.
    Status add(Service& service);
    Status listen(std::string_view uri);
    // What to type to reach this: per listen() one, of 0.0.0.0 and [::] each; ports are filled in.
    std::vector<std::string> addresses() const;

    // Blocks until stop(), or SIGINT or SIGTERM, which end each run() of the process; then refuses
    // new calls, tells the handlers that asked (Call::on_drain()) and waits for them, and until the
    // clients have their replies. Meanwhile logs what blocks the runtime's thread for 2 s, as does
    // each call of other threads that waits for it.
    //
    // Errors: DEADLINE_EXCEEDED when handlers or replies were left after options.drain_timeout,
    // which bounds the destructor, too, or when a handler blocks the runtime's thread, which the
    // destructor waits for; CANCELLED when a signal came while it waited for them;
    // RESOURCE_EXHAUSTED, at once, without a descriptor for signals; FAILED_PRECONDITION, at once,
    // inside a turn of this runtime or in a simulation.
    //
    // With options.manual another thread turns it meanwhile. A program with other threads blocks
    // these signals in them before it starts them; the runtime's own threads have them blocked.
    Status run();
    void stop();  // Ends run(). Thread: any. Once run() has returned the runtime may be destroyed.

    // For people: connections, sessions, calls and handlers, counts, latencies by method, the last
    // events. At most some hundred lines, of a format that may change. run() writes it to the log
    // on options.state_signal, and so does a handler that goes on for 5 s after its deadline, once
    // a minute at most.
    std::string state();

    // ---- calling -----------------------------------------------------------------------------
    // A channel to a server that has one address, or several in any order: sm or unix where the
    // server is shown to be on this host (by its incarnation, over an address of the network), else
    // the fastest network that answers. Does not wait: the first call connects.
    // Errors: INVALID_ARGUMENT, UNIMPLEMENTED (no transport for any address).
    Result<Channel> connect(const Addresses& to);

    // ---- groups ------------------------------------------------------------------------------
    // A handle to call the whole group. For a joined member's view the collectives start at it.
    Result<Group> group(GroupView view);
    // This runtime serves as `rank` of the group from here on. Errors: OUT_OF_RANGE,
    // ALREADY_EXISTS.
    Status join(GroupView view, std::uint32_t rank);

    // ---- bulk --------------------------------------------------------------------------------
    // Memory that every transport can expose, in whole pages; a forked child shares it with its
    // parent, also what either writes later. Its contents are unspecified, and may be what this
    // program left in a buffer before: fill what peers are to read. What peers left in memory of
    // the runtime's own (bodies of large calls) is never in it. Errors: RESOURCE_EXHAUSTED,
    // INVALID_ARGUMENT.
    Result<Buffer> allocate(std::size_t bytes);
    // Lets peers that get the reference access the memory. Private memory costs sm peers a system
    // call for each 256 KiB, and FAILED_PRECONDITION where the kernel does not let them reach it.
    // Errors: INVALID_ARGUMENT: an empty buffer, no access, a negative lease; UNIMPLEMENTED when a
    // transport in use can't expose it, RESOURCE_EXHAUSTED.
    Result<Region> expose(Buffer memory, ExposeOptions options);

    // ---- coroutines --------------------------------------------------------------------------
    // Runs the task on the context's thread and waits for it. Inside a callback, handler, coroutine
    // or offloaded work of this runtime, which would wait for itself, it aborts the program and
    // says so: co_await the task there. So does, naming all of them, a wait in a turn of another
    // runtime whose turn waits for this one, directly or through others; waits in offloaded work
    // are not seen. In a simulation it lets virtual time pass.
    // With options.manual: turns the runtime, on the thread that turned it last; another one waits
    // for that thread's turns, as is said at the top.
    // A thread that waits in it is not to be cancelled by pthread_cancel(): end the task.
    // An exception that leaves the task is rethrown here. Throws BadResult (CANCELLED) when the
    // runtime ended and the task did not, and is destroyed then: a program's own awaitables must
    // allow that they are destroyed while a coroutine waits for them. std::invalid_argument for an
    // empty task, std::logic_error for one that was awaited before.
    template <class T>
    T block_on(Task<T> task);
    // Starts the task on the context's thread. An exception that leaves it is logged, as an error.
    // Throws std::invalid_argument for an empty task, std::logic_error for one that was awaited.
    void spawn(Task<void> task);
    // The same for a callable that returns the task, such as a lambda that is a coroutine: moved or
    // copied, and kept until the task has ended, so that the task may use its captures. In
    // `spawn([x]() -> Task<void> { … }())`, with a call, the lambda and its captures die at once.
    // A null pointer or an empty function aborts the program and says so.
    template <class F>
        requires detail::makes_task<F>
    void spawn(F&& work) {
        if (detail::is_empty(work)) detail::refuse_empty("Runtime::spawn()");
        spawn(detail::run_kept<std::decay_t<F>>(std::forward<F>(work)));
    }
    // Where completions and coroutines of this runtime run.
    Executor& executor();

    // ---- a turn at a time --------------------------------------------------------------------
    // All of it with options.manual, and turns not by a handler, a completion or a coroutine of the
    // same runtime, which run inside a turn: else it aborts the program and says so. Thread: one at
    // a time; the one that turned last is the one whose calls cost no hop.
    // Does what is due and returns the number of events.
    std::uint32_t turn();
    // Turns, and sleeps when idle, until `done()`; false when `limit` was over first. In a
    // simulation, which turns all its hosts meanwhile, the limit is virtual time.
    bool turn_until(Function<bool()> done, Duration limit);

    // For an event loop that has a descriptor to watch and a timer (epoll,
    // libuv; <weft/asio.h> has it done for Boost.Asio): turn(); unless there were events and when
    // arm() says yes, wait until wait_fd() is readable or next_deadline() has come; turn() again.
    // What the program does with the runtime while it waits makes wait_fd() readable, too: also a
    // turn(), turn_until() or block_on() of its own.
    // Thread: the one that turned last; on another one arm() and next_deadline() abort the program
    // and say so.
    bool arm();
    // `never`: there is none.
    TimePoint next_deadline() const;
    // One epoll descriptor over all transports, those opened later included. Only to be watched;
    // valid as long as the runtime. Thread: any.
    int wait_fd() const;

    // For the layers of weft itself and its tools (not installed).
    api::Node& node() { return *node_; }
    // For an AsioDriver, from its start to its stop: meanwhile the runtime does not end, nor does
    // another one turn it, else the program aborts and says so.
    void be_driven(bool is_driven);

  private:
    explicit Runtime(std::shared_ptr<api::Node> node);
    // Runs `work` on the context's thread and waits for it, or turns until it is done.
    void run_blocking(Function<void()> start, detail::BlockedThread& waiter);

    std::shared_ptr<api::Node> node_;
    api::Node* turned_ = nullptr;  // The same, where the program turns it.
};

namespace detail {

// A thread in block_on().
struct BlockedThread {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    Root* root = nullptr;  // Of its coroutine, from its start to its end.
};

// What comes of its task.
template <class T>
struct BlockOnState : BlockedThread {
    std::optional<std::conditional_t<std::is_void_v<T>, char, T>> value;
    std::exception_ptr thrown;
};

// Lets the waiter go on, whether the coroutine ends or is destroyed with its runtime.
template <class T>
struct BlockOnEnd {
    BlockOnState<T>& state;
    ~BlockOnEnd() {
        const std::lock_guard lock(state.mutex);
        state.root = nullptr;
        state.done = true;
        state.changed.notify_all();
    }
};

// Throws BadResult: the runtime ended and the task did not.
[[noreturn]] void throw_cancelled();

template <class T>
WEFT_HEADER_COROUTINE Detached run_blocking_task(Task<T> given, BlockOnState<T>& state) {
    const BlockOnEnd<T> end{state};
    state.root = static_cast<Root*>(co_await OwnLevel());
    Task<T> task = std::move(given);  // Its locals die before the waiter goes on.
    try {
        if constexpr (std::is_void_v<T>) {
            co_await task;
            state.value.emplace();
        } else {
            state.value.emplace(co_await task);
        }
    } catch (...) {
        state.thrown = std::current_exception();
    }
}

}  // namespace detail

template <class T>
T Runtime::block_on(Task<T> task) {
    detail::BlockOnState<T> state;
    run_blocking([&task, &state] { detail::run_blocking_task(std::move(task), state); }, state);
    if (state.thrown) std::rethrow_exception(state.thrown);
    if (!state.value) detail::throw_cancelled();
    if constexpr (!std::is_void_v<T>) return std::move(*state.value);
}

}  // namespace weft
