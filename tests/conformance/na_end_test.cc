// The end of an endpoint: bytes that unsent() no longer counts arrive, and bytes committed before a
// close arrive before it.
#include <sys/resource.h>

#include "support/na_rig.h"

using namespace weft;
using namespace weft::na;
using namespace weft::test;
using namespace weft::test::wires;

// Only b polls, a few events at a time.
static void read_slowly(NaRig& rig, NaPair& pair) {
    rig.step_time();
    pair.b.poll(1);
}

// Sends as much as there is room for, while b does not read.
static std::uint64_t fill(NaRig& rig, NaPair& pair) {
    const std::size_t largest = pair.a->info(pair.ab)->message_bytes_max;
    for (int turn = 0; turn < 100; ++turn) {
        while (pair.a.send(pair.ab, largest)) {
        }
        while (pair.a.send(pair.ab, 64)) {
        }
        pair.a->flush();
        pair.a.poll();
        rig.step_time();
    }
    REQUIRE(pair.a.at(pair.ab).sent > 0);
    return pair.a.at(pair.ab).sent;
}

CONFORMANCE("messages that unsent() no longer counts arrive even if their sender ends") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    NaPair pair(rig);
    const std::uint64_t sent = fill(rig, pair);
    const auto has_all = [&] { return pair.b.at(pair.ba).received == sent; };
    const TimePoint end = rig.now() + test_timeout;
    while (rig.now() < end) {
        if (pair.a->unsent(pair.ab) == 0 && (rig.caps().sent_survives || has_all())) break;
        pair.a.poll();
        pair.a->flush();
        read_slowly(rig, pair);
    }
    CHECK(pair.a->unsent(pair.ab) == 0);
    // Bytes that a never reads would reset a socket that is closed.
    for (int i = 0; i < 10; ++i) (void)pair.b.send(pair.ba, 1000);
    pair.b->flush();
    rig.step_time();
    rig.destroy(pair.a);
    const auto is_over = [&] { return !pair.b.downs.empty(); };
    while (!is_over() && rig.now() < end) read_slowly(rig, pair);
    if (rig.caps().reports_peer_death) CHECK(is_over());
    CHECK(has_all());
}

CONFORMANCE("messages arrive ahead of a close after has_left() has returned true") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    NaPair pair(rig);
    if (!rig.caps().sent_survives) return;
    const std::uint64_t sent = fill(rig, pair);
    const TimePoint end = rig.now() + test_timeout;
    while (!pair.a->has_left(pair.ab) && rig.now() < end) {
        pair.a.poll();
        pair.a->flush();
        read_slowly(rig, pair);
    }
    CHECK(pair.a->has_left(pair.ab));
    // Bytes that a never reads would reset a socket that is closed.
    for (int i = 0; i < 10; ++i) (void)pair.b.send(pair.ba, 1000);
    pair.b->flush();
    rig.step_time();
    pair.a.close(pair.ab);
    while (pair.b.downs.empty() && rig.now() < end) {
        pair.a.poll();
        read_slowly(rig, pair);
    }
    CHECK(pair.b.downs.size() == 1);
    CHECK(pair.b.at(pair.ba).received == sent);
}

CONFORMANCE("messages committed in the turn of a close arrive ahead of it") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    NaPair pair(rig);
    for (int i = 0; i < 20; ++i) REQUIRE(pair.a.send(pair.ab, 100));
    pair.a.close(pair.ab);
    const TimePoint end = rig.now() + test_timeout;
    while (pair.b.downs.empty() && rig.now() < end) {
        pair.a.poll();
        rig.step_time();
        pair.b.poll();
    }
    CHECK(pair.b.downs.size() == 1);
    CHECK(pair.b.at(pair.ba).received == 20);
}

CONFORMANCE("an endpoint without free descriptors keeps its peers and accepts new ones later") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    NaPair pair(rig);
    NaNode& other = rig.open();
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    const rlimit none{0, before.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
    const Result<PeerId> started = rig.try_connect(pair.a, other->address());
    // Whatever its outcome, the other connections continue.
    for (int i = 0; i < 50; ++i) {
        (void)pair.a.send(pair.ab, 64);
        pair.a->flush();
        rig.pump();
    }
    const auto arrived = [&] { return pair.b.at(pair.ba).received == pair.a.at(pair.ab).sent; };
    const bool has_arrived = rig.pump_until(arrived);
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(has_arrived);
    CHECK(pair.a.at(pair.ab).sent > 0);
    if (started && pair.a.at(*started).state != weft::test::PeerState::down) pair.a.close(*started);
    CHECK(rig.connect(pair.b, other));
    CHECK(pair.a.at(pair.ab).state == weft::test::PeerState::up);
}
