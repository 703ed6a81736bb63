// The end of a runtime: orderly drain, then shutdown.
#include <algorithm>
#include <utility>

#include "api/runtime_impl.h"
#include "api/served_services.h"
#include "api/turns.h"
#include "base/assert.h"
#include "base/exiting.h"
#include "base/own_descriptor.h"
#include "base/standard_error.h"

namespace weft::api {

// The cleanup of cancelled handlers and coroutines has at least so long.
static constexpr Duration cleanup_timeout = 1s;
static constexpr int last_turns_max = 1000;
// The end of a runtime waits so long for peers that are in the middle of a copy, or have no room
// for their last frames. A running peer takes well below a millisecond, and some more while it has
// no processor.
static constexpr Duration linger_timeout = 1s;

void RuntimeImpl::begin_drain(Node& at, TimePoint by) {
    WEFT_ASSERT(!at.context.is_on_other_thread());
    end_.deadline = by;
    at.server.drain();
    if (&at == &node) collectives.in_turn([&] { collectives.drain(); });
}

RuntimeImpl::Left RuntimeImpl::work_to_drain(Node& at) {
    WEFT_ASSERT(!at.context.is_on_other_thread() && at.server.is_draining());
    const std::uint32_t calls = at.server.executing();
    if (&at != &node) return {calls, 0};
    return {calls + static_cast<std::uint32_t>(collectives.parents_expected()),
            collectives.delivering()};
}

RuntimeImpl::Left RuntimeImpl::left_to_drain(Node& at) {
    const auto [calls, delivering] = work_to_drain(at);
    const std::uint64_t leaving =
        at.bulk.rendezvous.unfetched_replies() + delivering + at.server.awaited_sessions();
    if (calls != 0 || delivering != 0) return {calls, leaving};
    at.server.end_sessions();
    return {0,
            leaving + at.context.undelivered() + (at.context.has_lingering_connections() ? 1 : 0)};
}

Status RuntimeImpl::drain(const Node::InterruptWait& interrupted) {
    const TimePoint by = saturating_add(commons.parts.clock->now(), commons.options.drain_timeout);
    const auto why = [&](const std::string& still) {
        if (commons.parts.clock->now() < by) {
            return fail(Code::cancelled, still + " when another signal came");
        }
        return fail(Code::deadline_exceeded,
                    still + " after drain_timeout (" +
                        std::to_string(commons.options.drain_timeout / 1ms) + " ms)");
    };
    const Node* blocked = nullptr;
    // One that does not turn delays none of the others.
    for (const auto& one : nodes) {
        if (nodes.size() > 1)
            one->context.post([this, at = one.get(), by] { begin_drain(*at, by); });
    }
    for (const auto& one : nodes) {
        const bool has_turned = one->run_in_turn_until(
            by, interrupted, [this, at = one.get(), by] { begin_drain(*at, by); });
        if (!has_turned && !blocked) blocked = one.get();
    }
    if (blocked && end_.deadline.load() == never) end_.deadline = by;
    // The sum of all contexts.
    const auto ask_each = [&](Left (RuntimeImpl::*ask)(Node&)) {
        Left sum;
        for (const auto& one : nodes) {
            // Shared with the turn that writes it, which may still run after this has returned.
            const auto left = std::make_shared<Left>();
            const bool has_turned = one->run_in_turn_until(
                by, interrupted, [this, ask, at = one.get(), left] { *left = (this->*ask)(*at); });
            if (!has_turned) {
                blocked = one.get();
                break;
            }
            sum.first += left->first;
            sum.second += left->second;
        }
        return sum;
    };
    while (!blocked) {
        // No context ends its sessions while another one has work: to clients, and to the other
        // members of a group, the server is one.
        Left left;
        if (nodes.size() > 1) left = ask_each(&RuntimeImpl::work_to_drain);
        if (!blocked && left == Left()) left = ask_each(&RuntimeImpl::left_to_drain);
        if (blocked) break;
        const auto [calls, leaving] = left;
        if (calls == 0 && leaving == 0) {
            end_.deadline = never;  // Later work of the program ends with the runtime.
            return {};
        }
        if (commons.parts.clock->now() < by && !interrupted(1ms)) continue;
        if (calls != 0) return why(std::to_string(calls) + " calls were still in their handlers");
        return why(std::to_string(leaving) +
                   " bytes or messages of replies, or collectives, had not been delivered");
    }
    return why((commons.options.manual
                    ? "no thread turned " + blocked->name_text() +
                          " (RuntimeOptions::manual), or a handler, completion or coroutine "
                          "blocked it ("
                    : "the thread of " + blocked->name_text() +
                          " was still blocked by a handler, completion or coroutine (") +
               blocked->last_handler() + ")");
}

// A policy decides when the caller continues, not which ranks get the request.
void RuntimeImpl::deliver_collectives() {
    if (collectives.delivering() == 0) return;
    drain_servers();
    const TurnSet all = TurnSet::all(commons);
    while (collectives.delivering() != 0 && commons.parts.clock->now() < end_.deadline.load()) {
        const TimePoint before = commons.parts.clock->now();
        all.turn_and_wait(10ms);
        // Simulated: the simulation, which ends this runtime, moves the time.
        if (commons.parts.clock->now() == before) return;
    }
}

// exit() never returns to its caller.
void RuntimeImpl::keep_until_exit(const char* why) {
    base::write_fatal_message({why});
    base::keep_forever(shared_from_this());
    end_.has_begun = true;
    if (commons.options.manual) return;
    for (const auto& one : nodes) one->driver.request_stop();
    const bool in_turn = core::Context::is_any_entered();
    bool have_ended = true;
    for (const auto& one : nodes) {
        if (one->context.is_entered()) continue;  // The turn that called exit() never ends.
        const bool has_ended = in_turn ? one->driver.stop_in_turn() : one->driver.stop();
        have_ended = have_ended && has_ended;
    }
    // In a turn the program ends with the code of exit(), and no wait of its threads throws.
    if (have_ended && !in_turn) commons.is_abandoned = true;
}

// The call of another thread that uses the runtime; nullptr: none is known. An event loop may begin
// a turn at any time.
const char* RuntimeImpl::call_elsewhere() const {
    if (active_.count != 0) return active_.last;
    for (const auto& one : nodes) {
        const bool may_turn = (driven_ >> one->index & 1) != 0 && one->context.has_turned() &&
                              !one->context.on_thread();
        if (one->is_turned() || (may_turn && base::is_exiting())) return "Runtime::turn()";
    }
    return nullptr;
}

// Aborts if the caller would return into destroyed objects, or if the end would wait for the
// caller. True: in exit(), where the runtime stays as it is.
bool RuntimeImpl::must_stay_for_exit() {
    if (is_entered() || commons.pool.is_pool_thread()) {
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
    const char* const call = call_elsewhere();
    if (!call) return false;
    if (base::is_exiting()) {
        keep_until_exit(
            "weft: exit() while another thread is in a call of a runtime that is destroyed with "
            "the program: its calls end without a word; call Runtime::stop(), and join that thread "
            "first\n");
        return true;
    }
    const std::string why = std::string("called while a thread is in ") + call +
                            " of the same runtime, which would go on in freed memory: call "
                            "Runtime::stop(), and join that thread first";
    base::abort_misused("Runtime::~Runtime()", why.c_str());
}

void RuntimeImpl::mark_exit() noexcept {
    static constexpr int marks_max = 4;
    if (end_.exit_marks < marks_max && ++end_.exit_marks <= marks_max) base::mark_exit();
}

void RuntimeImpl::set_driven(bool is_driven, std::uint64_t contexts) {
    mark_exit();
    if (!is_driven) {
        driven_ &= ~contexts;
        return;
    }
    if ((driven_.fetch_or(contexts) & contexts) != 0) {
        base::abort_misused("weft::AsioDriver",
                            "made for a runtime, or a context of it, that another one turns: stop "
                            "that one first");
    }
    // The driver turns it on the thread of an executor, which may be any. In a forked child none
    // does.
    if (node.context.is_forked()) return;
    for (const auto& one : nodes) {
        if ((contexts >> one->index & 1) != 0) one->context.give_away();
    }
}

// After exit() no event loop turns it again.
void RuntimeImpl::require_undriven() const {
    if (driven_ == 0 || base::is_exiting()) return;
    base::abort_misused("Runtime::~Runtime()",
                        "called while a weft::AsioDriver turns the runtime, which would go on in "
                        "freed memory: stop or destroy the driver first");
}

// False, in exit() only: a turn has not ended. It may wait for another runtime, or for the turn
// that called exit().
bool RuntimeImpl::stop_drivers() {
    const bool in_turn = base::is_exiting() && core::Context::is_any_entered();
    bool have_ended = true;
    for (const auto& one : nodes) {
        const auto on_slow = [this, &one] {
            commons.log.warning("the end of the runtime waits for its thread" +
                                (nodes.size() == 1 ? std::string() : " of " + one->name_text()) +
                                ", which a handler, completion or coroutine blocks; " +
                                one->last_handler());
        };
        const bool has_ended = in_turn ? one->driver.stop_in_turn() : one->driver.stop(on_slow);
        have_ended = have_ended && has_ended;
    }
    return have_ended;
}

void RuntimeImpl::shutdown() {
    if (node.context.is_forked() || std::exchange(end_.has_begun, true)) return;
    if (must_stay_for_exit()) return;
    require_undriven();
    // exit() has destroyed objects that handlers use: no context takes a turn while another one is
    // waited for.
    if (base::is_exiting()) {
        for (const auto& one : nodes) one->driver.request_stop();
    }
    if (!stop_drivers()) {
        return keep_until_exit(
            "weft: exit() while a handler, completion or coroutine of a runtime that is destroyed "
            "with the program has not ended: its calls end without a word; call Runtime::stop(), "
            "and let main() return\n");
    }
    for (const auto& one : nodes) one->context.end_borrowing();
    if (end_.deadline.load() == never) {
        end_.deadline = saturating_add(commons.parts.clock->now(), commons.options.drain_timeout);
    }
    deliver_collectives();
    // The calls of the queued work are about to be cancelled; work that their handlers queue then,
    // to clean up, runs.
    commons.pool.drop_for_calls();
    end_.deadline =
        std::max(end_.deadline.load(), saturating_add(commons.parts.clock->now(), cleanup_timeout));
    cancel_all();
    drain_work(end_.deadline);
    commons.pool.stop();
    for (const auto& one : nodes) one->close_endpoints();
    for (const auto& one : nodes) one->close_regions();
    for (const auto& one : nodes) one->context.close_submissions();
    for (const auto& one : nodes)
        one->context.post([at = one.get()] { at->waiters.destroy_all(); });
    release_made_services();
    commons.log.end_sink();
    unregister_served(*this);
    close_descriptors();
}

// Notices run user code here, which must be in the context as usual.
void RuntimeImpl::drain_servers() {
    for (const auto& one : nodes) {
        const core::Context::EnterGuard scope(one->context);
        one->context.refresh_time();
        one->server.drain();
    }
}

// So do completions. As in drain(), no context ends its sessions if another one has work.
void RuntimeImpl::cancel_all() {
    drain_servers();
    const bool has_work =
        collectives.parents_expected() != 0 ||
        std::ranges::any_of(nodes, [](const auto& one) { return one->server.executing() != 0; });
    for (const auto& one : nodes) {
        const core::Context::EnterGuard scope(one->context);
        one->context.refresh_time();
        if (!has_work) one->server.end_sessions();
        if (one.get() == &node) collectives.shutdown();
        one->cancel_all(fail(Code::cancelled, "the runtime is shutting down"));
    }
}

// Turns until coroutines, which see their cancelled calls, and offloaded work, which may wait for a
// turn, have ended. Work that posts itself for ever does not count. The wait for running work is
// unbounded: the objects that it uses are destroyed next.
void RuntimeImpl::drain_work(TimePoint deadline) {
    const TimePoint began = commons.parts.clock->now();
    const TimePoint leave_by = saturating_add(began, linger_timeout);
    const TurnSet all = TurnSet::all(commons);
    bool is_late = false;
    for (int turns = 0;;) {
        if (!is_late && !commons.pool.is_idle() && commons.parts.clock->now() >= deadline) {
            is_late = true;
            commons.log.warning(
                "offloaded work still runs " + std::to_string(commons.options.drain_timeout / 1ms) +
                " ms (drain_timeout) after the runtime began to end, which waits for running "
                "work and drops the rest: long work must check Call::stop_token()");
        }
        if (is_late) commons.pool.reject_all();
        if (!commons.pool.is_idle()) {
            all.turn_and_wait(10ms);
        } else if (all.turn_and_wait(Duration::zero()) != 0 && ++turns < last_turns_max &&
                   commons.parts.clock->now() < deadline) {
            continue;
            // NOLINTNEXTLINE(bugprone-branch-clone): two reasons to leave.
        } else if (const TimePoint now = commons.parts.clock->now(); now >= leave_by) {
            return;
        } else if (std::ranges::all_of(nodes, [&](const auto& one) {
                       // Simulated time stands still here.
                       return one->bulk.regions->unfenced_regions() == 0 &&
                              (!one->context.has_lingering_connections() || now == began);
                   })) {
            return;
        } else if (turns < last_turns_max) {
            all.turn_and_wait(1ms);
        }
    }
}

// No handler runs any more, unless it awaits an object of the program: then its coroutine destroys
// them at its end.
void RuntimeImpl::release_made_services() {
    const std::shared_ptr<MadeServices> made = std::move(made_services_);
    if (made.use_count() > 1 && !made->empty()) {
        commons.log.warning(
            "the services that a function made for this runtime stay: a coroutine still awaits an "
            "object of the program, and may use them; a handler ends such a wait in "
            "Call::on_cancel()");
        return;
    }
    for (const auto& one : nodes) one->context.post([own = std::move((*made)[one->index])] {});
    node.context.post([own = std::move(made->late)] {});
}

// A channel, or a coroutine that holds one, may keep this object to the end of the program.
void RuntimeImpl::close_descriptors() {
    stop_event_.await_stops();
    stop_event_.close();
    loop_.reset();
    for (const auto& one : nodes) one->close_descriptors();
    commons.arena->close_fd();
}

}  // namespace weft::api
