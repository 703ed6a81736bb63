#include <weft/runtime.h>

#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <utility>

#include "api/environment.h"
#include "api/node.h"
#include "api/run_signals.h"
#include "api/turn_wait.h"
#include "base/assert.h"
#include "base/exiting.h"
#include "base/fork.h"
#include "base/own_descriptor.h"
#include "base/unique_fd.h"
#include "core/joined_thread.h"

extern char** environ;

namespace weft {

Runtime::Runtime(std::shared_ptr<api::Node> node)
    : node_(std::move(node)), turned_(node_->options.manual ? node_.get() : nullptr) {}

Runtime::Runtime(Runtime&& other) noexcept
    : node_(std::move(other.node_)), turned_(std::exchange(other.turned_, nullptr)) {}

Runtime& Runtime::operator=(Runtime&& other) noexcept {
    if (this != &other) {
        if (node_) node_->shutdown();
        node_ = std::move(other.node_);
        turned_ = std::exchange(other.turned_, nullptr);
    }
    return *this;
}

Runtime::~Runtime() {
    if (node_) node_->shutdown();
}

// Once in a process: its other runtimes have the same environment.
static void warn_once(base::Log& log, const std::string& warning) {
    static std::atomic<bool> has_warned{false};
    if (!warning.empty() && !has_warned.exchange(true)) log.warning(warning);
}

Result<Runtime> Runtime::create(RuntimeOptions options) {
    Result<api::Overlaid> overlaid = api::overlay_environment(std::move(options), environ);
    if (!overlaid) return std::move(overlaid).status();
    if (Status status = api::judge(overlaid->options); !status.ok()) return status;
    Result<std::shared_ptr<api::Node>> node =
        api::Node::make(std::move(overlaid->options), api::real_parts());
    if (!node) return std::move(node).status();
    warn_once((*node)->log, overlaid->warning);
    return Runtime(*std::move(node));
}

static api::Node& own(const std::shared_ptr<api::Node>& node) {
    if (!node) {
        base::abort_misused("a weft::Runtime that was moved from, or whose simulated host is down",
                            "it can only be destroyed or assigned to");
    }
    return *node;
}

Result<Runtime> Runtime::from_node(std::shared_ptr<api::Node> node) {
    return Runtime(std::move(node));
}

Status Runtime::add(Service& service) { return own(node_).add(service); }
Status Runtime::listen(std::string_view uri) { return own(node_).listen(uri); }
std::vector<std::string> Runtime::addresses() const { return own(node_).addresses(); }

Status Runtime::serve(Service& service, const Addresses& at) {
    return own(node_).serve(&service, at.uris());
}

Result<Channel> Runtime::connect(const Addresses& to) { return own(node_).connect(to.uris()); }

Result<Buffer> Runtime::allocate(std::size_t bytes) { return own(node_).arena->allocate(bytes); }
Result<Region> Runtime::expose(Buffer memory, ExposeOptions options) {
    return own(node_).expose(std::move(memory), options);
}

Result<Group> Runtime::group(GroupView view) { return own(node_).group(std::move(view)); }
Status Runtime::join(GroupView view, std::uint32_t rank) {
    return own(node_).join(std::move(view), rank);
}

Executor& Runtime::executor() { return own(node_).context; }

void Runtime::spawn(Task<void> task) {
    detail::require_startable(detail::TaskAccess::handle(task));
    struct Starter {
        const core::Context& context;
        std::shared_ptr<Task<void>> task;  // Function holds it in place.
        void operator()() const {
            if (!context.is_ending_waiters()) detail::run_detached(std::move(*task), [] {});
        }
    };
    core::Context& context = own(node_).context;
    context.post(Starter{context, std::make_shared<Task<void>>(std::move(task))});
}

void detail::throw_cancelled() {
    throw BadResult(
        fail(Code::cancelled,
             "Runtime::block_on(): the runtime ended before the task, or another one that has "
             "ended, by whose executor the task went on and on"));
}

// What runs on a thread of the runtime's own, or in a turn, would wait for itself.
static void check_may_wait(const api::Node& node, const char* call) {
    if (!node.context.is_entered() && !node.pool.is_here()) return;
    base::abort_misused(call,
                        "called in a callback, handler, coroutine or offloaded work of the same "
                        "runtime (Executor::post(), offload()), it would wait for itself: co_await "
                        "the task in a coroutine there (Runtime::spawn()), or return and go on in "
                        "a completion");
}

// An event loop that drives this runtime goes on when the program has turned it meanwhile.
class LoopCalled {
  public:
    explicit LoopCalled(api::Node& node) : node_(node) {}
    ~LoopCalled() { node_.driver.call_loop(); }
    LoopCalled(const LoopCalled&) = delete;
    LoopCalled& operator=(const LoopCalled&) = delete;

  private:
    api::Node& node_;
};

// The task may use what its waiter has, which therefore stays: what something else in the
// simulation throws meanwhile waits for the end of the task.
static void pass_time_until_done(const api::Node& node, const bool& done) {
    std::exception_ptr thrown;
    while (!done) {
        try {
            if (node.parts.pass_time([&] { return done; }, Duration::max())) break;
        } catch (...) {
            if (!thrown) thrown = std::current_exception();
            continue;
        }
        base::abort_misused("Runtime::block_on()",
                            thrown
                                ? "a function or a host's program has thrown an exception in the "
                                  "simulation, and the task has not ended: what it waits for "
                                  "never comes"
                                : "nothing is left to happen in the simulation, and the task has "
                                  "not ended: what it waits for never comes");
    }
    if (thrown) std::rethrow_exception(thrown);
}

static void turn_until_done(api::Node& node, const bool& done) {
    if (node.parts.pass_time) return pass_time_until_done(node, done);
    const api::Node::Inside inside(node, "Runtime::block_on()");
    const LoopCalled after(node);
    while (!done) node.driver.turn_and_wait(10ms);
}

// For a thread that joins the waiter's, in the destructor of what it belongs to.
static bool help(api::Node& node, detail::BlockedThread& waiter) {
    {
        const std::lock_guard lock(waiter.mutex);
        if (waiter.done) return false;
    }
    if (node.context.is_entered()) {
        base::abort_misused("GroupAuthority::~GroupAuthority()",
                            "called in a callback, handler or coroutine of a runtime whose "
                            "block_on() its follow() waits in: each would wait for the other; "
                            "offload() it, or let a thread outside of the runtime destroy it");
    }
    if (!node.options.manual || node.parts.pass_time) return false;
    const core::OwnThread::Turning turns(node.context);
    if (!turns) return false;
    const LoopCalled after(node);
    node.driver.turn_and_wait(10ms);
    return true;
}

void Runtime::run_blocking(Function<void()> start, detail::BlockedThread& waiter) {
    static constexpr const char* call = "Runtime::block_on()";
    const std::shared_ptr<api::Node> kept = node_;  // The runtime may end meanwhile.
    api::Node& node = own(kept);
    if (node.context.is_forked()) {
        start();  // What it starts fails at once.
        return waiter.done ? void() : base::abort_forked(call);
    }
    check_may_wait(node, call);
    const api::Waiters::Within within(node.waiters, waiter);
    node.context.post(std::move(start));
    if (node.waiters.have_ended()) node.context.post([kept] { kept->waiters.end(); });
    const bool turns_here =
        node.options.manual && node.context.has_turned() && node.context.on_thread();
    if (node.parts.pass_time || turns_here) return turn_until_done(node, waiter.done);
    const core::JoinedThread::Wait helped([&] { return help(node, waiter); });
    api::TurnWait wait(call, node, waiter.mutex, waiter.changed, waiter.done);
    while (!wait.until_done()) {
        const api::Node::Inside inside(node, call);
        const LoopCalled after(node);
        wait.borrow_turns();
    }
}

static void check_manual(const api::Node& node, const char* call) {
    if (node.context.is_forked()) base::abort_forked(call);
    if (node.options.manual) return;
    base::abort_misused(call,
                        "the runtime has a thread of its own that turns it; only with "
                        "RuntimeOptions::manual a program does");
}

static void check_turner(const api::Node& node, const char* call) {
    if (!node.context.is_forked()) check_may_wait(node, call);
    check_manual(node, call);
}

[[noreturn, gnu::noinline]] static void refuse_turn(const api::Node& node) {
    check_turner(node, "Runtime::turn()");
    std::abort();  // Not reached: the runtime has a thread of its own.
}

// The context finds a turn in a turn and a forked child by itself.
std::uint32_t Runtime::turn() {
    if (!turned_) [[unlikely]]
        refuse_turn(own(node_));
    return turned_->context.turn(turned_->parts.clock->now()).events;
}

// What looks at a context between turns does so on the thread that turns.
static void check_own_thread(const api::Node& node, const char* call) {
    if (!node.context.has_turned()) return;
    node.context.require_thread(call,
                                "called on another thread than the one that turned the runtime "
                                "last: call it there, or turn() first");
}

bool Runtime::arm() {
    api::Node& node = own(node_);
    check_turner(node, "Runtime::arm()");  // Else its thread sleeps on the same descriptor.
    if (node.parts.pass_time) {
        base::abort_misused("Runtime::arm()",
                            "called for a host of a simulation, which turns it on virtual time: an "
                            "event loop or weft::AsioDriver would wait for ever; let time pass by "
                            "Simulation::run_until()");
    }
    check_own_thread(node, "Runtime::arm()");
    return node.driver.arm_for_loop();
}

TimePoint Runtime::next_deadline() const {
    api::Node& node = own(node_);
    check_manual(node, "Runtime::next_deadline()");
    check_own_thread(node, "Runtime::next_deadline()");
    return node.driver.next_deadline();
}

int Runtime::wait_fd() const {
    api::Node& node = own(node_);
    check_manual(node, "Runtime::wait_fd()");
    return node.driver.wait_fd();
}

void Runtime::be_driven(bool is_driven) { own(node_).be_driven(is_driven); }

bool Runtime::turn_until(Function<bool()> done, Duration limit) {
    api::Node& node = own(node_);
    check_turner(node, "Runtime::turn_until()");  // Also when it is done at once.
    if (!done) detail::refuse_empty("Runtime::turn_until()");
    if (node.parts.pass_time) {
        const std::shared_ptr<api::Node> kept = node_;  // done() may crash the host.
        return kept->parts.pass_time([&] { return done(); }, limit);
    }
    const api::Node::Inside inside(node, "Runtime::turn_until()");
    const LoopCalled after(node);
    const TimePoint end = saturating_add(node.parts.clock->now(), limit);
    while (!done()) {
        const TimePoint now = node.parts.clock->now();
        if (now >= end) return false;
        // What a timer ended is no event, and may be what is waited for.
        if (node.context.turn(now).events == 0 && !done()) node.driver.wait(now, end - now);
    }
    return true;
}

// ---- running until a signal --------------------------------------------------------------------

// Returns when there is a reason to end.
static void wait_for_end(api::Node& node, api::RunSignals& signals) {
    constexpr int look_every_ms = 1000;
    pollfd watched[3] = {{signals.arrived_fd(), POLLIN, 0},
                         {signals.passed_fd(), POLLIN, 0},
                         {node.stop_fd(), POLLIN, 0}};
    while (true) {
        const int found = poll(watched, 3, look_every_ms);
        node.look_for_stall();
        if (found <= 0) continue;
        base::check_polled(watched);
        const api::RunSignals::Taken taken = signals.take();
        if (taken.asks) {
            node.log.warning("the state of the runtime, as asked by a signal:\n" + node.state());
        }
        if (taken.ends || watched[2].revents != 0) break;
    }
    node.await_stops();  // The program may destroy the runtime next.
}

static Status why_no_run(const api::Node& node) {
    if (Status why = node.context.why_forked(); !why.ok()) return why;
    if (node.context.is_entered()) {
        return fail(Code::failed_precondition,
                    "Runtime::run() in a callback, handler or coroutine of the same runtime would "
                    "wait for itself: call it in main(), and Runtime::stop() there");
    }
    if (node.parts.pass_time) {
        return fail(Code::failed_precondition,
                    "Runtime::run() in a simulation, where nothing turns the host meanwhile: call "
                    "Simulation::run_until()");
    }
    return {};
}

Status Runtime::run() {
    api::Node& node = own(node_);
    if (Status why = why_no_run(node); !why.ok()) return why;
    base::mark_exit();  // However many calls came before, as of a static owner's constructor.
    const api::Node::Inside inside(node, "Runtime::run()");
    api::RunSignals signals(node.options.state_signal);
    if (!signals.is_usable()) {
        return fail(Code::resource_exhausted, "no file descriptor for signals left (ulimit -n)");
    }
    wait_for_end(node, signals);
    Status status = node.drain([&](Duration longest) {
        pollfd watched[2] = {{signals.arrived_fd(), POLLIN, 0}, {signals.passed_fd(), POLLIN, 0}};
        return poll(watched, 2, static_cast<int>(longest / 1ms)) > 0 && signals.take().ends;
    });
    if (status.code() == Code::deadline_exceeded) {
        node.log.warning("handlers or replies were left, the state of the runtime:\n" +
                         node.state());
    }
    return status;
}

void Runtime::stop() { own(node_).stop(); }

std::string Runtime::state() { return own(node_).state(); }

}  // namespace weft
