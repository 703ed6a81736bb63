// Events that wait for the next poll: none is lost, the order stays, and an event with a reason
// ends its batch.
#include <array>

#include "na/common/event_queue.h"
#include "support/catch.h"

using namespace weft;
using namespace weft::na;

static Event event_of(EventKind kind, std::uint64_t cookie, PeerId peer = {}) {
    Event event;
    event.kind = kind;
    event.cookie = cookie;
    event.peer = peer;
    return event;
}

TEST_CASE("event queue: events that exceed the batch wait, in order") {
    EventQueue queue;
    std::array<Event, 3> batch;
    queue.push(event_of(EventKind::message, 1));
    queue.begin(batch);
    for (std::uint64_t i = 2; i <= 8; ++i) queue.push(event_of(EventKind::message, i));
    CHECK_FALSE(queue.has_room());
    std::uint64_t next = 1;
    for (std::size_t count = queue.end(); count != 0; count = queue.end()) {
        for (std::size_t i = 0; i < count; ++i) CHECK(batch[i].cookie == next++);
        queue.begin(batch);
    }
    CHECK(next == 9);
    CHECK(queue.empty());
}

TEST_CASE("event queue: an event with a reason is the last of its batch") {
    EventQueue queue;
    std::array<Event, 8> batch;
    queue.begin(batch);
    queue.push(event_of(EventKind::message, 1));
    queue.push(event_of(EventKind::peer_down, 2), "gone");
    queue.push(event_of(EventKind::peer_down, 3), "gone, too");
    queue.push(event_of(EventKind::message, 4));
    REQUIRE(queue.end() == 2);
    CHECK(queue.reason() == "gone");
    queue.begin(batch);
    queue.push(event_of(EventKind::message, 5));
    REQUIRE(queue.end() == 1);
    CHECK(batch[0].cookie == 3);
    CHECK(queue.reason() == "gone, too");
    queue.begin(batch);
    REQUIRE(queue.end() == 2);
    CHECK(batch[0].cookie == 4);
    CHECK(batch[1].cookie == 5);
}

TEST_CASE("event queue: of a closed peer only completions of transfers are delivered") {
    EventQueue queue;
    const PeerId closed{1, 1}, other{2, 1};
    queue.push(event_of(EventKind::message, 1, closed));
    queue.push(event_of(EventKind::message, 2, other));
    queue.push(event_of(EventKind::rma_done, 3, closed));
    queue.push(event_of(EventKind::peer_down, 4, closed), "gone");
    int dropped = 0;
    queue.drop_events_of(closed, [&](const Event&) { ++dropped; });
    CHECK(dropped == 2);
    std::array<Event, 8> batch;
    queue.begin(batch);
    REQUIRE(queue.end() == 2);
    CHECK(batch[0].cookie == 2);
    CHECK(batch[1].cookie == 3);
}
