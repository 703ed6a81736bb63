// Requests to the context by threads that do not turn it.
#include <condition_variable>
#include <exception>
#include <mutex>

#include "api/node.h"
#include "api/turn_wait.h"
#include "base/assert.h"
#include "base/fork.h"
#include "base/state.h"
#include "core/joined_thread.h"

namespace weft::api {

// Work for the context's thread that another thread waits for.
struct PostedWork {
    std::atomic<bool> is_taken{false};
    std::mutex mutex;  // Guards the rest.
    std::condition_variable changed;
    bool done = false;
    std::exception_ptr thrown;  // By the program's part of the work.

    // False: another call has taken the work, which may be destroyed by now.
    bool run(Function<void()>& work) {
        if (is_taken.exchange(true)) return false;
        std::exception_ptr by_work;
        try {
            work();
        } catch (...) {
            by_work = std::current_exception();
        }
        const std::lock_guard lock(mutex);
        WEFT_ASSERT(!done);
        thrown = by_work;
        done = true;
        changed.notify_one();
        return true;
    }
};

// Two turns at once would corrupt the context. The check sees an overlap, and costs no atomic
// exchange. Borrowed turns exclude each other, and wait for no thread that turns.
std::uint32_t Node::turn(TimePoint now) {
    if (!context.has_turned() && !context.end_borrowing()) return context.turn(now).events;
    if (is_turned()) [[unlikely]] {
        base::abort_misused("Runtime::turn()",
                            "called, or made by turn_until(), block_on() or an event loop, while "
                            "another thread is in a turn of the same context: one thread at a time "
                            "turns a context");
    }
    is_turned_.store(true, std::memory_order_relaxed);
    const std::uint32_t events = context.turn(now).events;
    is_turned_.store(false, std::memory_order_relaxed);
    return events;
}

// Before the first turn the guard excludes a thread that borrows the turns.
bool Node::try_run_on_thread(const std::function<bool()>& work) {
    const core::ThreadOwnership::UseGuard here(context);
    if (!here && !context.in_turn()) return false;
    const bool ran = work();
    context.request_turn();
    return ran;
}

bool Node::on_context(Function<void()> work) {
    WEFT_ASSERT(work && !context.is_forked());
    const auto at_once = [&] {
        work();
        return true;
    };
    if (try_run_on_thread(at_once)) return true;
    // Simulated, and not on the simulation's thread: no turn would follow, so advance_time()
    // aborts.
    if (commons.parts.advance_time) {
        commons.parts.advance_time([] { return true; }, Duration::zero());
    }
    const auto kept = context.share();  // The runtime may end meanwhile.
    const auto posted = std::make_shared<PostedWork>();
    const auto run = [&work, posted] { return posted->run(work); };
    const core::JoinedThread::Wait helped([&] { return try_run_on_thread(run); });
    TurnWait wait("an operation of weft::Runtime or weft::Group", *this, posted->mutex,
                  posted->changed, posted->done);
    context.post([run] { run(); });
    try {
        while (!wait.until_done()) wait.borrow_turns();
    } catch (const BadResult&) {
        if (!posted->is_taken.exchange(true)) return false;
        std::unique_lock lock(posted->mutex);
        posted->changed.wait(lock, [&] { return posted->done; });
    }
    if (posted->thrown) std::rethrow_exception(posted->thrown);
    return true;
}

// Work that run_in_turn_until() has posted.
enum class PostedTurnState : std::uint8_t { queued, running, done, abandoned };
static constexpr bool can_move(PostedTurnState from, PostedTurnState to) {
    switch (to) {
        case PostedTurnState::queued: return false;
        case PostedTurnState::running:
        case PostedTurnState::abandoned: return from == PostedTurnState::queued;
        case PostedTurnState::done: return from == PostedTurnState::running;
    }
    return false;
}
struct PostedTurn {
    std::mutex mutex;  // Guards the state.
    std::condition_variable changed;
    base::State<PostedTurnState> state{PostedTurnState::queued};

    // False: the work was abandoned before it began.
    bool begin() {
        const std::lock_guard lock(mutex);
        if (state == PostedTurnState::abandoned) return false;
        state.move_to(PostedTurnState::running);
        return true;
    }
    void end() {
        const std::lock_guard lock(mutex);
        state.move_to(PostedTurnState::done);
        changed.notify_one();
    }
};

bool Node::run_in_turn_until(TimePoint by, const InterruptWait& interrupted,
                             Function<void()> work) {
    WEFT_ASSERT(work && !context.is_entered());
    if (commons.options.manual) {
        if (const core::ThreadOwnership::TurnPermit turns(context); turns) {
            turn_for(std::move(work));
            return true;
        }
    }
    const auto turn = std::make_shared<PostedTurn>();
    context.post([turn, work = std::move(work)]() mutable {
        if (!turn->begin()) return;
        work();
        turn->end();
    });
    std::unique_lock lock(turn->mutex);
    const auto is_done = [&] { return turn->state == PostedTurnState::done; };
    while (!turn->changed.wait_for(lock, 1ms, is_done)) {
        lock.unlock();
        check_for_stall();
        const bool abandons = interrupted(0ms) || commons.parts.clock->now() >= by;
        lock.lock();
        if (!abandons || is_done()) continue;
        if (turn->state == PostedTurnState::queued) turn->state.move_to(PostedTurnState::abandoned);
        return false;
    }
    return true;
}

// Longer than opening a transport may take on a busy machine, which is no blocked handler.
static constexpr Duration stall_min = 2s;

// Thread: any.
void Node::check_for_stall() {
    const TimePoint since = driver.turning_since();
    const Duration took = commons.parts.clock->now() - since;
    if (since == TimePoint{} || took < stall_min || stall_logged_.exchange(since) == since) return;
    if (!driver.has_started()) {
        return commons.log.warning(
            "the thread of " + name_text() + " has waited for " + std::to_string(took / 1ms) +
            " ms to begin, which takes the loader's lock: dlopen() holds that while it runs the "
            "constructors of a library, which must wait for no runtime");
    }
    commons.log.warning("the thread of " + name_text() + " has been blocked or stopped for " +
                        std::to_string(took / 1ms) + " ms, and still is; " + last_handler() +
                        ". Peers get no answer meanwhile: what blocks belongs in weft::offload");
}

// Thread: any. With options.manual it is known only whether a thread has turned it.
na::ContextLoad Node::load(TimePoint now) const {
    if (commons.options.manual)
        return {!context.has_turned() && !commons.parts.advance_time, driver.busy_share(now)};
    const TimePoint since = driver.turning_since();
    const bool is_blocked = since != TimePoint{} && now - since >= core::Driver::blocked_min;
    return {is_blocked, driver.busy_share(now)};
}

std::string Node::name_text() const {
    return commons.contexts() == 1 ? "the runtime" : "context " + std::to_string(index);
}

// Thread: any.
std::string Node::last_handler() const {
    const std::string_view method = server.last_method();
    return "the last handler that began: " + (method.empty() ? "none" : std::string(method));
}

// Thread: one that may turn the context. Requires: commons.options.manual.
void Node::turn_for(Function<void()> work) {
    WEFT_ASSERT(commons.options.manual && work && !context.is_entered());
    bool done = false;
    context.post([&] {
        work();
        done = true;
    });
    while (!done) driver.turn_and_wait(Duration::zero());
}

// Thread: the context's.
std::string Node::describe(std::size_t lines_max) {
    WEFT_ASSERT(!context.is_on_other_thread() && !context.is_forked());
    return context.state(lines_max) + client.state(lines_max) + server.state(lines_max) +
           "transfers: " + std::to_string(bulk.transfers.in_flight()) + " in flight, " +
           std::to_string(bulk.rendezvous.bytes_in_use()) + " of " +
           std::to_string(bulk.rendezvous.bytes_held()) + " bytes held for large bodies in use\n" +
           "the last events:\n" + context.recorder().last(lines_max, context.clock().now());
}

std::string Node::state() {
    if (context.is_forked()) return std::string(base::forked_text) + "\n";
    if (const core::ThreadOwnership::UseGuard here(context); here || context.in_turn())
        return describe();
    struct Answer {
        std::mutex mutex;
        std::condition_variable changed;
        std::optional<std::string> text;
    };
    const auto answer = std::make_shared<Answer>();
    context.post([this, self = context.share(), answer] {
        const std::lock_guard lock(answer->mutex);
        answer->text = describe();
        answer->changed.notify_one();
    });
    std::unique_lock lock(answer->mutex);
    if (!answer->changed.wait_for(lock, report_timeout, [&] { return answer->text.has_value(); }))
        return why_no_report() + "\n";
    return *std::move(answer->text);
}

std::string Node::why_no_report() const {
    return (commons.options.manual ? "no thread turns the runtime (RuntimeOptions::manual), or a "
                                     "handler, completion or coroutine blocks it; "
                                   : "the runtime's thread does not turn: a handler, completion or "
                                     "coroutine blocks it; ") +
           last_handler();
}

// A context with less to do needs no advice, in thousandths of its thread's time.
static constexpr std::uint32_t busy_min = 800;
// Of its calls.
static constexpr double busiest_share_min = 0.5;

// Thread: the context's.
Node::Report Node::make_report(std::size_t lines_max) {
    Report report;
    report.figures = context.figures();
    report.figures.append(client.figures());
    report.figures.append(server.figures());
    report.figures.add_line("transfers",
                            {{"in flight", bulk.transfers.in_flight()},
                             {"bytes held for large bodies", bulk.rendezvous.bytes_held()},
                             {"of them in use", bulk.rendezvous.bytes_in_use()}});
    if (lines_max != 0) report.details = describe(lines_max);
    if (driver.busy_share(commons.parts.clock->now()) < busy_min) return report;
    const rpc::ServerSessions::Busiest busiest = server.busiest_session();
    if (!busiest.session || busiest.share < busiest_share_min) return report;
    report.advice = "one connection fills context " + std::to_string(index) + ": " +
                    busiest.session->client + " makes " +
                    std::to_string(static_cast<int>(busiest.share * 100)) +
                    " of 100 of its calls; spread them (ConnectOptions::spread)";
    return report;
}

bool Node::report(std::size_t lines_max, Function<void(Report)> done) {
    if (const core::ThreadOwnership::UseGuard here(context); here || context.in_turn()) {
        done(make_report(lines_max));
        return true;
    }
    context.post([this, self = context.share(), lines_max, done = std::move(done)]() mutable {
        done(make_report(lines_max));
    });
    return false;
}

}  // namespace weft::api
