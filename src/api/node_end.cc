// The end of a runtime: drained in order, then shut down.
#include <poll.h>

#include <algorithm>
#include <cstdio>
#include <thread>
#include <tuple>

#include "api/node.h"
#include "base/assert.h"
#include "base/exiting.h"

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
    ++stops_;
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto put = write(stop_fd_.get(), &one, sizeof one);
    --stops_;
}

void Node::await_stops() const {
    while (stops_ != 0) std::this_thread::yield();
}

void Node::begin_drain() {
    ends_by_ = saturating_add(parts.clock->now(), options.drain_timeout);
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

Status Node::drain(int impatience_fd) {
    in_turn([&] { begin_drain(); });
    while (true) {
        std::uint32_t left = 0;
        std::uint64_t leaving = 0;
        in_turn([&] { std::tie(left, leaving) = left_to_drain(); });
        if (left == 0 && leaving == 0) {
            ends_by_ = never;  // What the program begins from here on ends with the runtime.
            return {};
        }
        const auto still = [&](const std::string& until) {
            return left != 0 ? std::to_string(left) + " calls were still in their handlers " + until
                             : std::to_string(leaving) +
                                   " bytes or messages of replies, or collectives, had not been "
                                   "delivered " +
                                   until;
        };
        if (parts.clock->now() >= ends_by_) {
            return fail(Code::deadline_exceeded,
                        still("after drain_timeout (" +
                              std::to_string(options.drain_timeout / 1ms) + " ms)"));
        }
        pollfd impatience{impatience_fd, POLLIN, 0};
        if (poll(&impatience, 1, 1) > 0) {
            return fail(Code::cancelled, still("when another signal came"));
        }
    }
}

// As on_context(), for work that runs user code or looks at the time.
void Node::in_turn(Function<void()> work) {
    if (!options.manual || !context.on_thread()) return on_context(std::move(work));
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
        if (!is_late && !pool.is_idle() && parts.clock->now() >= ends_by_) {
            is_late = true;
            log.warning(
                "offloaded work goes on " + std::to_string(options.drain_timeout / 1ms) +
                " ms (drain_timeout) after the runtime began to end, which waits for what "
                "runs and drops the rest: work that takes long looks at Call::stop_token()");
        }
        if (is_late) pool.refuse();
        if (!pool.is_idle()) {
            driver.turn_and_wait(10ms);
        } else if (context.turn(parts.clock->now()).events != 0 && ++turns < last_turns_max) {
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
    while (collectives.delivering() != 0 && parts.clock->now() < ends_by_) {
        const TimePoint before = parts.clock->now();
        driver.turn_and_wait(10ms);
        // Simulated: time is moved by what ends this runtime.
        if (parts.clock->now() == before) return;
    }
}

// exit() never returns to what called it, which may be in the middle of anything.
void Node::stay_for_exit() {
    std::fputs(
        "weft: exit() in a callback, handler, coroutine or offloaded work of a runtime that is "
        "destroyed with the program: its calls end without a word; call Runtime::stop() there, and "
        "let main() return\n",
        stderr);
    base::keep_for_ever(shared_from_this());
    if (pool.is_here()) driver.stop();  // What it runs uses what is destroyed next.
}

void Node::shutdown() {
    if (context.is_forked() || std::exchange(down_, true)) return;
    // What called this would return into what is gone, or is what the end waits for.
    if (context.in_turn() || pool.is_here()) {
        if (base::is_exiting()) return stay_for_exit();
        base::abort_misused("Runtime::~Runtime()",
                            "called in a callback, handler, coroutine or offloaded work of the "
                            "same runtime (Executor::post(), offload()), which would be waited "
                            "for; call Runtime::stop() there, and let the thread that is in "
                            "Runtime::run() destroy it");
    }
    driver.stop();
    context.adopt_thread();
    if (ends_by_ == never) {
        ends_by_ = saturating_add(parts.clock->now(), options.drain_timeout);
    }
    deliver_collectives();
    // The calls that it was queued for are about to be cancelled; what their handlers queue then,
    // to clean up, runs.
    pool.drop_for_calls();
    ends_by_ = std::max(ends_by_, saturating_add(parts.clock->now(), cleanup_patience));
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
    context.release_thread();
}

}  // namespace weft::api
