// The end of one context.
#include "api/node.h"
#include "base/assert.h"

namespace weft::api {

static constexpr int last_turns_max = 1000;
// The end of a runtime waits so long for peers that are in the middle of a copy, or have no room
// for their last frames. A running peer takes well below a millisecond, and some more while it has
// no processor.
static constexpr Duration linger_timeout = 1s;

void Node::cancel_all(const Status& why) {
    WEFT_ASSERT(context.is_entered() && !why.ok());
    client.end_sessions();  // While there are connections to send it.
    context.shutdown(why);
    client.shutdown(why);
    server.shutdown(why);
    bulk.transfers.shutdown(why);
    bulk.regions->close_all();
}

void Node::drain_work(TimePoint deadline) {
    WEFT_ASSERT(context.is_closed() && !context.is_entered());
    const TimePoint began = commons.parts.clock->now();
    const TimePoint leave_by = saturating_add(began, linger_timeout);
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
            driver.turn_and_wait(10ms);
        } else if (context.turn(commons.parts.clock->now()).events != 0 &&
                   ++turns < last_turns_max && commons.parts.clock->now() < deadline) {
            continue;
        } else if (const TimePoint now = commons.parts.clock->now();
                   now >= leave_by || (bulk.regions->unfenced_regions() == 0 &&
                                       // Simulated time stands still here.
                                       (!context.has_lingering_connections() || now == began))) {
            return;
        } else if (turns < last_turns_max) {
            driver.turn_and_wait(1ms);
        }
    }
}

void Node::close_endpoints() {
    const core::Context::EnterGuard scope(context);
    bulk.transfers.keep_held();
    context.close_endpoints();
    bulk.regions->shutdown();
}

void Node::close_descriptors() {
    WEFT_ASSERT(context.has_ended());
    driver.close();
    context.close_wake_fd();
}

}  // namespace weft::api
