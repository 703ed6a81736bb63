// The end of a runtime: drained in order, then shut down.
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <tuple>

#include "api/node.h"
#include "api/served.h"
#include "base/assert.h"
#include "base/exiting.h"
#include "base/own_descriptor.h"
#include "base/standard_error.h"

namespace weft::api {

static constexpr int last_turns_max = 1000;
// How long the end of a runtime waits for peers that are in the middle of a copy, or have no room
// for what was sent to them last. One that is neither stopped nor dead takes well below a
// millisecond, and some more where it has no processor.
static constexpr Duration leave_patience = 1s;
// What handlers and coroutines do when they are cancelled, to clean up, has at least so long.
static constexpr Duration cleanup_patience = 1s;

void Node::stop() {
    if (context.is_forked()) return;
    is_stopped_ = true;
    ++stops_;
    const std::uint64_t one = 1;
    (void)base::check_open(write(stop_fd_.get(), &one, sizeof one));
    --stops_;
}

void Node::await_stops() const {
    while (stops_ != 0) std::this_thread::yield();
}

void Node::begin_drain(TimePoint by) {
    ends_by_ = by;
    server.drain();
    collectives.in_turn([&] { collectives.drain(); });
}

std::pair<std::uint32_t, std::uint64_t> Node::left_to_drain() {
    const std::uint32_t left = server.executing() + static_cast<std::uint32_t>(collectives.owed());
    const std::uint64_t leaving =
        bulk.staging.replies_lent() + collectives.delivering() + server.awaited_sessions();
    if (left != 0 || collectives.delivering() != 0) return {left, leaving};
    server.end_sessions();
    return {left, leaving + context.undelivered() + (context.is_leaving() ? 1 : 0)};
}

Status Node::drain(const Hurried& hurried) {
    const TimePoint by = saturating_add(parts.clock->now(), options.drain_timeout);
    // Of the turn that looks, which may still be under way when this has returned.
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
    bool has_turned = in_turn_by(by, hurried, begin);
    if (!has_turned && ends_by_.load() == never) ends_by_ = by;
    while (has_turned) {
        has_turned = in_turn_by(by, hurried, [this, left] { *left = left_to_drain(); });
        if (!has_turned) break;
        const auto [calls, leaving] = *left;
        if (calls == 0 && leaving == 0) {
            ends_by_ = never;  // What the program begins from here on ends with the runtime.
            return {};
        }
        if (parts.clock->now() < by && !hurried(1ms)) continue;
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

// As in_turn(). False: it was hurried, or took no turn until `by`; the work does not run any more,
// or is under way. Work that is left so must not use what its caller destroys.
bool Node::in_turn_by(TimePoint by, const Hurried& hurried, Function<void()> work) {
    if (options.manual) {
        if (const core::OwnThread::Turning turns(context); turns) {
            turn_for(std::move(work));
            return true;
        }
    }
    enum class State : std::uint8_t { waits, runs, done, given_up };
    struct Turn {
        std::mutex mutex;
        std::condition_variable changed;
        State state = State::waits;
        bool move_to(State next) {
            const std::lock_guard lock(mutex);
            if (state == State::given_up) return false;
            state = next;
            changed.notify_one();
            return true;
        }
    };
    const auto turn = std::make_shared<Turn>();
    context.post([turn, work = std::move(work)]() mutable {
        if (!turn->move_to(State::runs)) return;
        work();
        turn->move_to(State::done);
    });
    std::unique_lock lock(turn->mutex);
    const auto is_done = [&] { return turn->state == State::done; };
    while (!turn->changed.wait_for(lock, 1ms, is_done)) {
        lock.unlock();
        look_for_stall();
        const bool gives_up = hurried(0ms) || parts.clock->now() >= by;
        lock.lock();
        if (!gives_up || is_done()) continue;
        if (turn->state == State::waits) turn->state = State::given_up;
        return false;
    }
    return true;
}

// Longer than a transport may take to open on a busy machine, which blocks no handler.
static constexpr Duration stall_least = 2s;

// Thread: any.
void Node::look_for_stall() {
    const TimePoint since = driver.turning_since();
    const Duration took = parts.clock->now() - since;
    if (since == TimePoint{} || took < stall_least || stall_named_.exchange(since) == since) return;
    if (!driver.has_begun()) {
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
std::string Node::last_handler() const {
    const std::string_view method = server.last_method();
    return "the last handler that began: " + (method.empty() ? "none" : std::string(method));
}

// As on_context(), for work that runs user code or looks at the time.
void Node::in_turn(Function<void()> work) {
    const core::OwnThread::Turning turns(context);
    if (!options.manual || !turns) return on_context(std::move(work));
    turn_for(std::move(work));
}

// Thread: one that may turn the context, which is the program's to turn.
void Node::turn_for(Function<void()> work) {
    bool done = false;
    context.post([&] {
        work();
        done = true;
    });
    while (!done) driver.turn_and_wait(Duration::zero());
}

// Coroutines see their cancelled calls and end, and so does offloaded work, which may wait for a
// turn. Work that posts itself for ever does not count. Work that runs is waited for however long
// it takes: what it uses is destroyed next.
void Node::end_work() {
    const TimePoint began = parts.clock->now();
    const TimePoint leave_by = saturating_add(began, leave_patience);
    bool is_late = false;
    for (int turns = 0;;) {
        if (!is_late && !pool.is_idle() && parts.clock->now() >= ends_by_.load()) {
            is_late = true;
            log.warning(
                "offloaded work goes on " + std::to_string(options.drain_timeout / 1ms) +
                " ms (drain_timeout) after the runtime began to end, which waits for what "
                "runs and drops the rest: work that takes long looks at Call::stop_token()");
        }
        if (is_late) pool.refuse();
        if (!pool.is_idle()) {
            driver.turn_and_wait(10ms);
        } else if (context.turn(parts.clock->now()).events != 0 && ++turns < last_turns_max &&
                   parts.clock->now() < ends_by_.load()) {
            continue;
        } else if (const TimePoint now = parts.clock->now();
                   now >= leave_by || (bulk.regions->unfenced_regions() == 0 &&
                                       // Simulated time stands still here.
                                       (!context.is_leaving() || now == began))) {
            return;
        } else if (turns < last_turns_max) {
            driver.turn_and_wait(1ms);
        }
    }
}

// A policy decides when the caller goes on, not which ranks get the request.
void Node::deliver_collectives() {
    if (collectives.delivering() == 0) return;
    {
        const core::Context::Entered scope(context);
        context.refresh_time();
        server.drain();
    }
    while (collectives.delivering() != 0 && parts.clock->now() < ends_by_.load()) {
        const TimePoint before = parts.clock->now();
        driver.turn_and_wait(10ms);
        // Simulated: time is moved by what ends this runtime.
        if (parts.clock->now() == before) return;
    }
}

// exit() never returns to what called it.
void Node::stay_for_exit(const char* why) {
    base::put_last_words({why});
    base::keep_for_ever(shared_from_this());
    down_ = true;
    // In a turn the coroutine that called exit() is in the middle of something, and the thread may
    // wait for this one.
    if (options.manual || core::Context::is_any_entered() || !driver.stop()) return;
    is_left_ = true;
}

// Aborts where what called this would return into what is gone, or is what the end waits for. True:
// in exit(), where it stays as it is.
bool Node::stays_in_use() {
    if (context.is_entered() || pool.is_here()) {
        if (base::is_exiting()) {
            stay_for_exit(
                "weft: exit() in a callback, handler, coroutine or offloaded work of a runtime "
                "that is destroyed with the program: its calls end without a word; call "
                "Runtime::stop() there, and let main() return\n");
            return true;
        }
        base::abort_misused("Runtime::~Runtime()",
                            "called in a callback, handler, coroutine or offloaded work of the "
                            "same runtime (Executor::post(), offload()), which would be waited "
                            "for; call Runtime::stop() there, and let the thread that is in "
                            "Runtime::run() destroy it");
    }
    if (inside_ == 0) return false;
    if (base::is_exiting()) {
        stay_for_exit(
            "weft: exit() while another thread is in a call of a runtime that is destroyed with "
            "the program: its calls end without a word; call Runtime::stop(), and join that thread "
            "first\n");
        return true;
    }
    const std::string why = std::string("called while a thread is in ") + inside_in_.load() +
                            " of the same runtime, which would go on in freed memory: call "
                            "Runtime::stop(), and join that thread first";
    base::abort_misused("Runtime::~Runtime()", why.c_str());
}

void Node::mark_exit() noexcept {
    static constexpr int marks_max = 4;
    if (exit_marks_ < marks_max && ++exit_marks_ <= marks_max) base::mark_exit();
}

void Node::be_driven(bool is_driven) {
    mark_exit();
    if (is_driven && is_driven_) {
        base::abort_misused("weft::AsioDriver",
                            "made for a runtime that another one turns: stop that one first");
    }
    is_driven_ = is_driven;
    // It turns on the thread of an executor, which may be any. In a forked child none turns it.
    if (is_driven && !context.is_forked()) context.give_away();
}

// In exit() no event loop comes back to it.
void Node::require_undriven() const {
    if (!is_driven_ || base::is_exiting()) return;
    base::abort_misused("Runtime::~Runtime()",
                        "called while a weft::AsioDriver turns the runtime, which would go on in "
                        "freed memory: stop or destroy the driver first");
}

void Node::shutdown() {
    if (context.is_forked() || std::exchange(down_, true)) return;
    if (stays_in_use()) return;
    require_undriven();
    const bool has_ended = driver.stop([this] {
        log.warning(
            "the end of the runtime waits for its thread, which a handler, completion or coroutine "
            "blocks; " +
            last_handler());
    });
    if (!has_ended) {
        return stay_for_exit(
            "weft: exit() while a handler, completion or coroutine of a runtime that is destroyed "
            "with the program waits for another runtime: its calls end without a word; call "
            "Runtime::stop(), and let main() return\n");
    }
    context.begin_turns();
    if (ends_by_.load() == never) {
        ends_by_ = saturating_add(parts.clock->now(), options.drain_timeout);
    }
    deliver_collectives();
    // The calls that it was queued for are about to be cancelled; what their handlers queue then,
    // to clean up, runs.
    pool.drop_for_calls();
    ends_by_ = std::max(ends_by_.load(), saturating_add(parts.clock->now(), cleanup_patience));
    {
        // What completes here runs user code, which is in the context then as it always is.
        const core::Context::Entered scope(context);
        context.refresh_time();
        const Status why = fail(Code::cancelled, "the runtime is shutting down");
        server.drain();
        if (server.executing() == 0 && collectives.owed() == 0) server.end_sessions();
        collectives.shutdown();
        client.end_sessions();  // While there are connections to say so.
        context.shutdown(why);
        client.shutdown(why);
        server.shutdown(why);
        bulk.transfers.shutdown(why);
        bulk.regions->close_all();
    }
    end_work();
    pool.stop();
    {
        const core::Context::Entered scope(context);
        bulk.transfers.keep_held();
        context.close_endpoints();
        bulk.regions->shutdown();
    }
    context.close_submissions();
    context.post([this] { waiters.end(); });
    log.end_sink();
    forget_served(*this);
    close_descriptors();
}

// A channel, or a coroutine that holds one, may keep the node to the end of the program.
void Node::close_descriptors() {
    await_stops();
    stop_fd_.reset();
    driver.close();
    context.close_wake();
    arena->close_fd();
}

}  // namespace weft::api
