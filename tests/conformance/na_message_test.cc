// Messages: whole, in order, at most once, and bounded.
#include <array>
#include <vector>

#include "support/na_rig.h"

using namespace weft;
using namespace weft::na;
using namespace weft::test;
using namespace weft::test::wires;

// Polls b, without checks, until there are events; a makes progress meanwhile.
static std::size_t poll_alone(NaRig& rig, NaPair& pair, std::span<Event> events) {
    std::size_t count = 0;
    for (const TimePoint end = rig.now() + test_timeout; count == 0 && rig.now() < end;) {
        pair.a.poll();
        rig.step_time();
        count = pair.b->poll(events, rig.now());
    }
    REQUIRE(count != 0);
    return count;
}

CONFORMANCE("messages of every size arrive complete, alone in their turn") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    NaPair pair(rig);
    const std::size_t largest = pair.a->info(pair.ab)->message_bytes_max;
    std::vector<std::size_t> sizes;
    for (std::size_t bytes = 8; bytes <= 300; ++bytes) sizes.push_back(bytes);
    for (std::size_t power = 512; power < largest; power *= 2) {
        for (const std::size_t bytes : {power - 1, power, power + 1}) sizes.push_back(bytes);
    }
    sizes.push_back(largest - 1);
    sizes.push_back(largest);
    std::uint64_t sent = 0;
    for (const std::size_t bytes : sizes) {
        INFO(bytes << " bytes");
        REQUIRE(rig.pump_until([&] { return pair.a.send(pair.ab, bytes); }));
        pair.a->flush();
        ++sent;
        REQUIRE(rig.pump_until([&] { return pair.b.at(pair.ba).received == sent; }));
    }
    CHECK(pair.a->reserve(pair.ab, largest + 1) == nullptr);
    CHECK(pair.a->reserve(pair.ab, ~std::size_t{0}) == nullptr);
}

CONFORMANCE("many commits in one turn all arrive, in order") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    NaPair pair(rig);
    const std::size_t largest = pair.a->info(pair.ab)->message_bytes_max;
    // As many as there is room for, at every alignment, with a large one in between.
    for (int round = 0; round < 20; ++round) {
        for (int i = 0; i < 150; ++i) {
            if (!pair.a.send(pair.ab, 8 + static_cast<std::size_t>(i * 7 + round) % 500)) break;
            if (i == 20) pair.a.send(pair.ab, largest - 64);
        }
        pair.a->flush();
        REQUIRE(
            rig.pump_until([&] { return pair.b.at(pair.ba).received == pair.a.at(pair.ab).sent; }));
    }
    CHECK(pair.b.at(pair.ba).received >= 20);
}

CONFORMANCE("the first commit of a turn is sent without flush") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    NaPair pair(rig);
    pair.a->flush();
    REQUIRE(pair.a.send(pair.ab, 64));
    // Polls only: the turn does not end.
    const TimePoint end = rig.now() + test_timeout;
    while (pair.b.at(pair.ba).received == 0 && rig.now() < end) {
        pair.a.poll();
        rig.step_time();
        pair.b.poll();
    }
    CHECK(pair.b.at(pair.ba).received == 1);
}

CONFORMANCE("commit may shorten a claim, and commit(0) abandons it") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    NaPair pair(rig);
    const std::size_t largest = pair.a->info(pair.ab)->message_bytes_max;
    for (int round = 0; round < 300; ++round) {
        std::byte* claim = pair.a->reserve(pair.ab, largest);
        REQUIRE(claim);
        std::fill(claim, claim + largest, std::byte{0xee});
        pair.a->commit(0);
        claim = pair.a->reserve(pair.ab, largest);
        REQUIRE(claim);
        const std::size_t bytes = 8 + static_cast<std::size_t>(round);
        fill_frame({claim, bytes}, pair.a.at(pair.ab).sent++);
        pair.a->commit(bytes);
        pair.a->flush();
        REQUIRE(rig.pump_until(
            [&] { return pair.b.at(pair.ba).received == static_cast<std::uint64_t>(round) + 1; }));
    }
}

CONFORMANCE("reserve refuses while the peer does not poll, and writable follows without loss") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    const std::size_t bytes = GENERATE(std::size_t{64}, std::size_t{4096}, std::size_t{60'000});
    NaPair pair(rig);
    const std::size_t size = std::min(bytes, pair.a->info(pair.ab)->message_bytes_max);
    INFO("messages of " << size << " bytes");
    // 256 MiB without a refusal counts as unbounded.
    std::size_t accepted = 0;
    while (accepted * size < (256u << 20) && pair.a.send(pair.ab, size)) {
        ++accepted;
        pair.a->flush();
    }
    REQUIRE(accepted * size < (256u << 20));
    REQUIRE(accepted >= 1);
    const std::uint64_t goal = pair.a.at(pair.ab).sent * 2 + 50;
    bool refused = true;
    const TimePoint end = rig.now() + test_timeout;
    while (pair.a.at(pair.ab).sent < goal) {
        REQUIRE(rig.now() < end);
        if (refused) REQUIRE(rig.pump_until([&] { return pair.a.at(pair.ab).writable; }));
        refused = !pair.a.send(pair.ab, size);
    }
    pair.a->flush();
    REQUIRE(rig.pump_until([&] { return pair.b.at(pair.ba).received == goal; }));
}

CONFORMANCE("a peer that does not poll does not delay another one") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    NaNode& sender = rig.open();
    NaNode& stuck = rig.open();
    NaNode& lively = rig.open();
    const PeerId to_stuck = rig.connect(sender, stuck);
    const PeerId to_lively = rig.connect(sender, lively);
    std::size_t accepted = 0;
    while (accepted++ < 100'000 && sender.send(to_stuck, 4096)) sender->flush();
    REQUIRE(accepted < 100'000);
    const PeerId seen = lively.peer_of(sender.incarnation);
    for (std::uint64_t sent = 0; sent < 100; ++sent) {
        const TimePoint end = rig.now() + test_timeout;
        while (!sender.send(to_lively, 100)) {
            REQUIRE(rig.now() < end);
            sender.poll();
        }
        sender->flush();
        while (lively.at(seen).received <= sent) {
            REQUIRE(rig.now() < end);
            sender.poll();
            rig.step_time();
            lively.poll();
        }
    }
    const PeerId seen_late = stuck.peer_of(sender.incarnation);
    CHECK(rig.pump_until([&] { return stuck.at(seen_late).received == sender.at(to_stuck).sent; }));
}

CONFORMANCE("the bytes of a message stay valid until the next poll while the peer keeps sending") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    NaPair pair(rig);
    for (int round = 0; round < 50; ++round) {
        for (int i = 0; i < 8; ++i) {
            // One message per turn, so that each is a frame of its own.
            if (pair.a.send(pair.ab, 200)) pair.a->flush();
        }
        std::array<Event, 16> events;
        const std::size_t count = poll_alone(rig, pair, events);
        // A megabyte at most: for some sockets the kernel accepts more and more.
        for (int i = 0; i < 3000 && pair.a.send(pair.ab, 333); ++i) pair.a->flush();
        for (std::size_t i = 0; i < count; ++i) pair.b.judge(events[i]);
        REQUIRE(
            rig.pump_until([&] { return pair.b.at(pair.ba).received == pair.a.at(pair.ab).sent; }));
    }
}

CONFORMANCE("a poll returns at most the events that fit, and loses none") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    NaPair pair(rig);
    for (int i = 0; i < 40; ++i) {
        REQUIRE(rig.pump_until([&] { return pair.a.send(pair.ab, 48); }));
        pair.a->flush();
    }
    const TimePoint end = rig.now() + test_timeout;
    while (pair.b.at(pair.ba).received < 40 && rig.now() < end) {
        pair.a.poll(1);
        rig.step_time();
        pair.b.poll(1);
    }
    CHECK(pair.b.at(pair.ba).received == 40);
    CHECK(pair.b->poll({}, rig.now()) == 0);
}

CONFORMANCE("messages flow both ways at once and keep their order for each peer") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    NaPair pair(rig);
    const std::uint64_t goal = rig.caps().virtual_time ? 3000 : 20'000;
    const TimePoint end = rig.now() + test_timeout;
    while (pair.a.at(pair.ab).sent < goal || pair.b.at(pair.ba).sent < goal) {
        REQUIRE(rig.now() < end);
        for (int i = 0; i < 10; ++i) {
            if (pair.a.at(pair.ab).sent < goal) pair.a.send(pair.ab, 8 + rig.random.next() % 300);
            if (pair.b.at(pair.ba).sent < goal) pair.b.send(pair.ba, 8 + rig.random.next() % 300);
        }
        rig.pump();
    }
    CHECK(rig.pump_until([&] {
        return pair.a.at(pair.ab).received == goal && pair.b.at(pair.ba).received == goal;
    }));
}

CONFORMANCE("a message held by the receiver at peer_down stays readable") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    NaPair pair(rig);
    REQUIRE(pair.a.send(pair.ab, 1000));
    pair.a->flush();
    std::array<Event, 1> events;
    poll_alone(rig, pair, events);
    rig.destroy(pair.a);
    REQUIRE(events[0].kind == EventKind::message);
    CHECK(is_frame(events[0].bytes.first(1000), 0));
    pair.b.judge(events[0]);
    CHECK(rig.pump_until([&] { return pair.b.downs.size() == 1; }));
}
