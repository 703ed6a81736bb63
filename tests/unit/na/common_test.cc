// What all transports are made of: slots of peers, phases, schedules, the backlog of messages.
#include <array>
#include <string>

#include "na/common/descriptor_polls.h"
#include "na/common/event_queue.h"
#include "na/common/events.h"
#include "na/common/peer_phase.h"
#include "na/common/peer_slots.h"
#include "na/common/schedule.h"
#include "na/common/send_backlog.h"
#include "support/catch.h"

using namespace weft;
using namespace weft::na;

namespace na_common_test {
namespace {

struct Slot : base::ListNode {
    std::byte* frames() const { return message; }
    void reset() { used = 0; }

    std::byte* message = nullptr;
    std::uint32_t used = 0;
};

struct Peer : PeerBacklog<Slot>, ScheduledNode {
    PeerId id;
    PeerInfo info;
};

struct Backlog {
    Backlog() { peer.info.message_bytes_max = 64; }
    ~Backlog() {
        while (Slot* slot = peer.backlog.pop_front()) pool.give_back(*slot);
        sends.clear();
    }
    std::byte* claim(std::size_t bytes) {
        return sends.claim(peer, peer.backlog.back(), bytes, 64, [this] { return pool.take(0); });
    }
    auto commit(std::size_t bytes, bool at_once, Peer* to) {
        return sends.commit(to, bytes, at_once, [this](Slot& slot) { pool.give_back(slot); });
    }

    std::array<std::byte, 128> memory{};
    SlotPool<Slot> pool{2, [this](std::uint32_t i) { return memory.data() + 64 * i; }};
    SendBacklog<Peer, Slot> sends;
    Peer peer;
};

}  // namespace

TEST_CASE("peer slots: an id finds nothing after its peer is removed") {
    PeerSlots<Peer> peers;
    const PeerId first = peers.add(std::make_unique<Peer>()).id;
    const PeerId second = peers.add(std::make_unique<Peer>()).id;
    CHECK(peers.find(first)->id == first);
    CHECK(peers.find({7, 1}) == nullptr);
    CHECK(peers.remove(first)->id == first);
    CHECK(peers.find(first) == nullptr);
    CHECK(peers.at(first.index) == nullptr);
    CHECK(peers.size() == 1);
    const PeerId third = peers.add(std::make_unique<Peer>()).id;
    CHECK(third.index == first.index);
    CHECK(third.generation != first.generation);
    CHECK(peers.find(first) == nullptr);
    peers.for_each([&](Peer& peer) { peers.remove(peer.id); });
    CHECK(peers.size() == 0);
    CHECK(peers.find(second) == nullptr);
}

TEST_CASE(
    "peer slots: the index of a released peer is used again after the poll of its peer_down") {
    PeerSlots<Peer> peers;
    const PeerId first = peers.add(std::make_unique<Peer>()).id;
    CHECK(peers.release(first)->id == first);
    CHECK(peers.find(first) == nullptr);
    CHECK(peers.size() == 0);
    const PeerId second = peers.add(std::make_unique<Peer>()).id;
    CHECK(second.index != first.index);
    CHECK(peers.taken() == 2);
    peers.begin_poll();
    peers.note_reported({});
    const std::array events{down_event(first, Code::unavailable), up_event(second, true)};
    peers.note_reported(events);  // A peer_down ends its batch: this one is none.
    peers.begin_poll();
    CHECK(peers.try_add()->id.index != first.index);
    peers.note_reported(std::span(events).first(1));
    CHECK(peers.try_add()->id.index != first.index);
    peers.begin_poll();
    CHECK(peers.try_add()->id.index == first.index);
}

TEST_CASE(
    "peer slots: the index of a peer that is removed with its peer_down waits for the next poll") {
    PeerSlots<Peer> peers;
    const PeerId first = peers.try_add()->id;
    CHECK(peers.remove_reported(first)->id == first);
    CHECK(peers.find(first) == nullptr);
    CHECK(peers.try_add()->id.index != first.index);
    CHECK(peers.taken() == 2);
    peers.begin_poll();
    CHECK(peers.taken() == 1);
    CHECK(peers.try_add()->id.index == first.index);
}

TEST_CASE("peer slots: without memory for a peer nothing changes") {
    static bool has_memory = true;
    struct Peer {
        Peer() {
            if (!has_memory) throw std::bad_alloc();
        }
        PeerId id;
        PhaseState phase{PeerPhase::waiting};
    };
    PeerSlots<Peer> peers;
    REQUIRE(peers.prepare_add());
    CHECK(peers.taken() == 0);
    has_memory = false;
    CHECK(peers.try_add() == nullptr);
    CHECK(peers.size() == 0);
    has_memory = true;
    Peer* const first = peers.try_add();
    REQUIRE(first);
    CHECK(peers.find(first->id) == first);
    CHECK(peers.taken() == 1);
}

TEST_CASE("peer phase: a peer that is down or retired never comes up again") {
    using enum PeerPhase;
    for (const PeerPhase from : {down, retired}) {
        for (const PeerPhase to : {resolving, waiting, connecting, handshaking, up, ending}) {
            CHECK_FALSE(can_move(from, to));
        }
    }
    for (const PeerPhase phase : {resolving, waiting, connecting, handshaking, up, ending, down}) {
        CHECK_FALSE(can_move(phase, phase));
        CHECK((phase == down || can_move(phase, down)));
    }
    CHECK_FALSE(can_move(resolving, up));
    CHECK_FALSE(can_move(up, waiting));
    CHECK(can_move(handshaking, waiting));
}

TEST_CASE("schedule: peers that are due are served once, the others stay") {
    const TimePoint start{};
    Schedule<Peer> schedule;
    Peer early, late;
    schedule.add(late, start + 5ms);
    schedule.add(early, start + 1ms);
    CHECK(schedule.next() == start + 1ms);
    int served = 0;
    schedule.serve_due(start + 1ms, [&](Peer& peer) { served += &peer == &early ? 1 : 100; });
    CHECK(served == 1);
    CHECK(schedule.next() == start + 5ms);
    schedule.remove(late);
    schedule.serve_due(start + 9ms, [&](Peer&) { ++served; });
    CHECK(served == 1);
    CHECK(schedule.next() == never);
}

TEST_CASE("send backlog: the first commit of a turn leaves at once, later ones are joined") {
    Backlog rig;
    std::byte* const first = rig.claim(5);
    REQUIRE(first);
    const auto one = rig.commit(5, true, &rig.peer);
    CHECK(one.leaves_now);
    CHECK(one.bytes == 5);
    CHECK_FALSE(rig.sends.has_unflushed());
    first[6] = std::byte{1};
    CHECK(rig.claim(8) == first + 8);  // Aligned.
    const auto two = rig.commit(8, true, &rig.peer);
    CHECK_FALSE(two.leaves_now);
    CHECK(two.bytes == 11);
    CHECK(first[6] == std::byte{0});  // The gap is cleared.
    CHECK(rig.sends.has_unflushed());
    CHECK(rig.claim(60) == first + 64);  // No room behind the others: the next slot.
    CHECK_FALSE(rig.commit(60, true, &rig.peer).leaves_now);
    CHECK(rig.peer.slots == 2);
}

TEST_CASE("send backlog: a claim returns its slot when it is abandoned or its peer is gone") {
    Backlog rig;
    for (Peer* to : {&rig.peer, static_cast<Peer*>(nullptr)}) {
        REQUIRE(rig.claim(8));
        CHECK(rig.pool.remaining() == 1);
        CHECK(rig.commit(to ? 0 : 8, true, to).bytes == 0);
        CHECK(rig.pool.remaining() == 2);
        CHECK_FALSE(rig.sends.has_claim());
    }
}

TEST_CASE("send backlog: a peer without room waits until it has some") {
    Backlog rig;
    for (int i = 0; i < 2; ++i) {
        REQUIRE(rig.claim(64));
        (void)rig.commit(64, false, &rig.peer);
    }
    CHECK(rig.claim(64) == nullptr);
    bool has_room = false;
    int woken = 0;
    const auto room = [&](const Peer&) { return has_room; };
    rig.sends.wake_writers(room, [&](Peer&) { ++woken; });
    CHECK(woken == 0);
    has_room = true;
    CHECK(rig.sends.can_wake(room));
    rig.sends.wake_writers(room, [&](Peer&) { ++woken; });
    rig.sends.wake_writers(room, [&](Peer&) { ++woken; });
    CHECK(woken == 1);
}

TEST_CASE("descriptor polls: they are due on request, after some polls, and after some time") {
    const TimePoint start{};
    DescriptorPolls polls({1ms, 3, 10ms}, start);
    CHECK(polls.is_due(true, start));
    CHECK(polls.begin(start) == Duration::zero());
    CHECK_FALSE(polls.is_due(true, start + 999us));
    CHECK(polls.is_due(true, start + 1ms));
    CHECK(polls.begin(start + 1ms) == Duration::zero());
    CHECK_FALSE(polls.is_due(false, start + 1ms));
    CHECK_FALSE(polls.is_due(false, start + 1ms));
    CHECK(polls.is_due(false, start + 1ms));
    CHECK(polls.begin(start + 1s) > Duration::zero());  // This thread was stalled.
    polls.request();
    CHECK(polls.is_due(true, start + 1s));
}

TEST_CASE("waiting events: none is written behind a part of a batch that is over already") {
    WaitingEvents waiting;
    waiting.push(Event{});
    std::array<Event, 4> batch{};
    std::size_t count = 3;  // Beyond the half that is offered.
    std::string error;
    const auto all = [](const Event&) { return EventUse::hand_out; };
    CHECK_FALSE(waiting.hand_out(std::span(batch).first(2), count, error, all));
    CHECK(count == 3);
    CHECK_FALSE(waiting.empty());
}

}  // namespace na_common_test
