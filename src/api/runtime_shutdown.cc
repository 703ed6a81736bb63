// The end of a runtime: orderly drain, then shutdown.
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <tuple>

#include "api/runtime_impl.h"
#include "api/served_services.h"
#include "base/assert.h"
#include "base/exiting.h"
#include "base/own_descriptor.h"
#include "base/standard_error.h"
#include "base/state.h"

namespace weft::api {

static constexpr int last_turns_max = 1000;
// The end of a runtime waits so long for peers that are in the middle of a copy, or have no room
// for their last frames. A running peer takes well below a millisecond, and some more while it has
// no processor.
static constexpr Duration linger_timeout = 1s;
// The cleanup of cancelled handlers and coroutines has at least so long.
static constexpr Duration cleanup_timeout = 1s;

void RuntimeImpl::begin_drain(TimePoint by) {
    WEFT_ASSERT(!context.is_on_other_thread());
    end_.deadline = by;
    server.drain();
    collectives.in_turn([&] { collectives.drain(); });
}

std::pair<std::uint32_t, std::uint64_t> RuntimeImpl::left_to_drain() {
    WEFT_ASSERT(!context.is_on_other_thread() && server.is_draining());
    const std::uint32_t left =
        server.executing() + static_cast<std::uint32_t>(collectives.parents_expected());
    const std::uint64_t leaving =
        bulk.rendezvous.unfetched_replies() + collectives.delivering() + server.awaited_sessions();
    if (left != 0 || collectives.delivering() != 0) return {left, leaving};
    server.end_sessions();
    return {left, leaving + context.undelivered() + (context.has_lingering_connections() ? 1 : 0)};
}

Status RuntimeImpl::drain(const InterruptWait& interrupted) {
    const TimePoint by = saturating_add(parts.clock->now(), options.drain_timeout);
    // Shared with the turn that writes it, which may still run after this has returned.
    const auto left = std::make_shared<std::pair<std::uint32_t, std::uint64_t>>();
    const auto why = [&](const std::string& still) {
        if (parts.clock->now() < by) {
            return fail(Code::cancelled, still + " when another signal came");
        }
        return fail(Code::deadline_exceeded, still + " after drain_timeout (" +
                                                 std::to_string(options.drain_timeout / 1ms) +
                                                 " ms)");
    };
    const auto begin = [this, by] { begin_drain(by); };
    bool has_turned = run_in_turn_until(by, interrupted, begin);
    if (!has_turned && end_.deadline.load() == never) end_.deadline = by;
    while (has_turned) {
        has_turned = run_in_turn_until(by, interrupted, [this, left] { *left = left_to_drain(); });
        if (!has_turned) break;
        const auto [calls, leaving] = *left;
        if (calls == 0 && leaving == 0) {
            end_.deadline = never;  // Later work of the program ends with the runtime.
            return {};
        }
        if (parts.clock->now() < by && !interrupted(1ms)) continue;
        if (calls != 0) return why(std::to_string(calls) + " calls were still in their handlers");
        return why(std::to_string(leaving) +
                   " bytes or messages of replies, or collectives, had not been delivered");
    }
    return why((options.manual ? "no thread turned the runtime (RuntimeOptions::manual), or a "
                                 "handler, completion or coroutine blocked it ("
                               : "the runtime's thread was still blocked by a handler, completion "
                                 "or coroutine (") +
               last_handler() + ")");
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

// As run_in_turn(). False: it was interrupted, or there was no turn until `by`; the work is
// dropped, or is still running. So the work must not use objects that its caller destroys.
bool RuntimeImpl::run_in_turn_until(TimePoint by, const InterruptWait& interrupted,
                                    Function<void()> work) {
    WEFT_ASSERT(work && !context.is_entered());
    if (options.manual) {
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
        const bool abandons = interrupted(0ms) || parts.clock->now() >= by;
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
void RuntimeImpl::check_for_stall() {
    const TimePoint since = driver.turning_since();
    const Duration took = parts.clock->now() - since;
    if (since == TimePoint{} || took < stall_min || stall_logged_.exchange(since) == since) return;
    if (!driver.has_started()) {
        return log.warning(
            "the context's thread has waited for " + std::to_string(took / 1ms) +
            " ms to begin, which takes the loader's lock: dlopen() holds that while it runs the "
            "constructors of a library, which must wait for no runtime");
    }
    log.warning("the context's thread has been blocked or stopped for " +
                std::to_string(took / 1ms) + " ms, and still is; " + last_handler() +
                ". Peers get no answer meanwhile: what blocks belongs in weft::offload");
}

// Thread: any.
std::string RuntimeImpl::last_handler() const {
    const std::string_view method = server.last_method();
    return "the last handler that began: " + (method.empty() ? "none" : std::string(method));
}

// As on_context(), for work that runs user code or reads the time.
void RuntimeImpl::run_in_turn(Function<void()> work) {
    const core::ThreadOwnership::TurnPermit turns(context);
    if (!options.manual || !turns) return on_context(std::move(work));
    turn_for(std::move(work));
}

// Thread: one that may turn the context. Requires: options.manual.
void RuntimeImpl::turn_for(Function<void()> work) {
    WEFT_ASSERT(options.manual && work && !context.is_entered());
    bool done = false;
    context.post([&] {
        work();
        done = true;
    });
    while (!done) driver.turn_and_wait(Duration::zero());
}

// Turns until coroutines, which see their cancelled calls, and offloaded work, which may wait for a
// turn, have ended. Work that posts itself for ever does not count. The wait for running work is
// unbounded: the objects that it uses are destroyed next.
void RuntimeImpl::drain_work() {
    WEFT_ASSERT(end_.has_begun && context.is_closed() && !context.is_entered());
    const TimePoint began = parts.clock->now();
    const TimePoint leave_by = saturating_add(began, linger_timeout);
    bool is_late = false;
    for (int turns = 0;;) {
        if (!is_late && !pool.is_idle() && parts.clock->now() >= end_.deadline.load()) {
            is_late = true;
            log.warning(
                "offloaded work still runs " + std::to_string(options.drain_timeout / 1ms) +
                " ms (drain_timeout) after the runtime began to end, which waits for running "
                "work and drops the rest: long work must check Call::stop_token()");
        }
        if (is_late) pool.reject_all();
        if (!pool.is_idle()) {
            driver.turn_and_wait(10ms);
        } else if (context.turn(parts.clock->now()).events != 0 && ++turns < last_turns_max &&
                   parts.clock->now() < end_.deadline.load()) {
            continue;
        } else if (const TimePoint now = parts.clock->now();
                   now >= leave_by || (bulk.regions->unfenced_regions() == 0 &&
                                       // Simulated time stands still here.
                                       (!context.has_lingering_connections() || now == began))) {
            return;
        } else if (turns < last_turns_max) {
            driver.turn_and_wait(1ms);
        }
    }
}

// A policy decides when the caller continues, not which ranks get the request.
void RuntimeImpl::deliver_collectives() {
    if (collectives.delivering() == 0) return;
    {
        const core::Context::EnterGuard scope(context);
        context.refresh_time();
        server.drain();
    }
    while (collectives.delivering() != 0 && parts.clock->now() < end_.deadline.load()) {
        const TimePoint before = parts.clock->now();
        driver.turn_and_wait(10ms);
        // Simulated: the simulation, which ends this runtime, moves the time.
        if (parts.clock->now() == before) return;
    }
}

// exit() never returns to its caller.
void RuntimeImpl::keep_until_exit(const char* why) {
    base::write_fatal_message({why});
    base::keep_forever(shared_from_this());
    end_.has_begun = true;
    // In a turn the coroutine that called exit() is still running, and the driver's thread may wait
    // for this thread.
    if (options.manual || core::Context::is_any_entered() || !driver.stop()) return;
    end_.is_abandoned = true;
}

// Aborts if the caller would return into destroyed objects, or if the end would wait for the
// caller. True: in exit(), where the runtime stays as it is.
bool RuntimeImpl::must_stay_for_exit() {
    if (context.is_entered() || pool.is_pool_thread()) {
        if (base::is_exiting()) {
            keep_until_exit(
                "weft: exit() in a callback, handler, coroutine or offloaded work of a runtime "
                "that is destroyed with the program: its calls end without a word; call "
                "Runtime::stop() there, and let main() return\n");
            return true;
        }
        base::abort_misused("Runtime::~Runtime()",
                            "called in a callback, handler, coroutine or offloaded work of the "
                            "same runtime (Executor::post(), offload()), which would be waited "
                            "for; call Runtime::stop() there, and destroy the runtime "
                            "outside, after run() or block_on() has returned");
    }
    if (active_.count == 0) return false;
    if (base::is_exiting()) {
        keep_until_exit(
            "weft: exit() while another thread is in a call of a runtime that is destroyed with "
            "the program: its calls end without a word; call Runtime::stop(), and join that thread "
            "first\n");
        return true;
    }
    const std::string why = std::string("called while a thread is in ") + active_.last.load() +
                            " of the same runtime, which would go on in freed memory: call "
                            "Runtime::stop(), and join that thread first";
    base::abort_misused("Runtime::~Runtime()", why.c_str());
}

void RuntimeImpl::mark_exit() noexcept {
    static constexpr int marks_max = 4;
    if (end_.exit_marks < marks_max && ++end_.exit_marks <= marks_max) base::mark_exit();
}

void RuntimeImpl::set_driven(bool is_driven) {
    mark_exit();
    if (is_driven && is_driven_) {
        base::abort_misused("weft::AsioDriver",
                            "made for a runtime that another one turns: stop that one first");
    }
    is_driven_ = is_driven;
    // The driver turns it on the thread of an executor, which may be any. In a forked child none
    // does.
    if (is_driven && !context.is_forked()) context.give_away();
}

// After exit() no event loop turns it again.
void RuntimeImpl::require_undriven() const {
    if (!is_driven_ || base::is_exiting()) return;
    base::abort_misused("Runtime::~Runtime()",
                        "called while a weft::AsioDriver turns the runtime, which would go on in "
                        "freed memory: stop or destroy the driver first");
}

void RuntimeImpl::shutdown() {
    if (context.is_forked() || std::exchange(end_.has_begun, true)) return;
    if (must_stay_for_exit()) return;
    require_undriven();
    const bool has_ended = driver.stop([this] {
        log.warning(
            "the end of the runtime waits for its thread, which a handler, completion or coroutine "
            "blocks; " +
            last_handler());
    });
    if (!has_ended) {
        return keep_until_exit(
            "weft: exit() while a handler, completion or coroutine of a runtime that is destroyed "
            "with the program waits for another runtime: its calls end without a word; call "
            "Runtime::stop(), and let main() return\n");
    }
    context.end_borrowing();
    if (end_.deadline.load() == never) {
        end_.deadline = saturating_add(parts.clock->now(), options.drain_timeout);
    }
    deliver_collectives();
    // The calls of the queued work are about to be cancelled; work that their handlers queue then,
    // to clean up, runs.
    pool.drop_for_calls();
    end_.deadline =
        std::max(end_.deadline.load(), saturating_add(parts.clock->now(), cleanup_timeout));
    {
        // Completions run user code here, which must be in the context as usual.
        const core::Context::EnterGuard scope(context);
        context.refresh_time();
        const Status why = fail(Code::cancelled, "the runtime is shutting down");
        server.drain();
        if (server.executing() == 0 && collectives.parents_expected() == 0) server.end_sessions();
        collectives.shutdown();
        client.end_sessions();  // While there are connections to send it.
        context.shutdown(why);
        client.shutdown(why);
        server.shutdown(why);
        bulk.transfers.shutdown(why);
        bulk.regions->close_all();
    }
    drain_work();
    pool.stop();
    {
        const core::Context::EnterGuard scope(context);
        bulk.transfers.keep_held();
        context.close_endpoints();
        bulk.regions->shutdown();
    }
    context.close_submissions();
    context.post([this] { waiters.destroy_all(); });
    log.end_sink();
    unregister_served(*this);
    close_descriptors();
}

// A channel, or a coroutine that holds one, may keep this object to the end of the program.
void RuntimeImpl::close_descriptors() {
    stop_event_.await_stops();
    stop_event_.close();
    driver.close();
    context.close_wake_fd();
    arena->close_fd();
}

}  // namespace weft::api
