// The end of an endpoint: what unsent() no longer counts arrives, and what a close finds committed
// goes ahead of it.
#include <sys/resource.h>

#include "support/na_rig.h"

using namespace weft;
using namespace weft::na;
using namespace weft::test;
using namespace weft::test::wires;

// b polls alone, a few events at a time.
static void read_slowly(NaRig& rig, NaPair& pair) {
    rig.step_time();
    pair.b.poll(1);
}

// As much as there is room for, while b does not read.
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

CONFORMANCE("what unsent() no longer counts arrives though its sender ends") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    NaPair pair(rig);
    const std::uint64_t sent = fill(rig, pair);
    const auto has_all = [&] { return pair.b.at(pair.ba).received == sent; };
    const TimePoint end = rig.now() + patience;
    while (rig.now() < end) {
        if (pair.a->unsent(pair.ab) == 0 && (rig.caps().sent_survives || has_all())) break;
        pair.a.poll();
        pair.a->flush();
        read_slowly(rig, pair);
    }
    CHECK(pair.a->unsent(pair.ab) == 0);
    // What a never reads would reset a socket that is closed.
    for (int i = 0; i < 10; ++i) (void)pair.b.send(pair.ba, 1000);
    pair.b->flush();
    rig.step_time();
    rig.destroy(pair.a);
    const auto is_over = [&] { return !pair.b.downs.empty(); };
    while (!is_over() && rig.now() < end) read_slowly(rig, pair);
    if (rig.caps().reports_peer_death) CHECK(is_over());
    CHECK(has_all());
}

CONFORMANCE("what has_left() no longer waits for arrives ahead of a close") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    NaPair pair(rig);
    if (!rig.caps().sent_survives) return;
    const std::uint64_t sent = fill(rig, pair);
    const TimePoint end = rig.now() + patience;
    while (!pair.a->has_left(pair.ab) && rig.now() < end) {
        pair.a.poll();
        pair.a->flush();
        read_slowly(rig, pair);
    }
    CHECK(pair.a->has_left(pair.ab));
    // What a never reads would reset a socket that is closed.
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

CONFORMANCE("what was committed in the turn of a close arrives ahead of it") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    NaPair pair(rig);
    for (int i = 0; i < 20; ++i) REQUIRE(pair.a.send(pair.ab, 100));
    pair.a.close(pair.ab);
    const TimePoint end = rig.now() + patience;
    while (pair.b.downs.empty() && rig.now() < end) {
        pair.a.poll();
        rig.step_time();
        pair.b.poll();
    }
    CHECK(pair.b.downs.size() == 1);
    CHECK(pair.b.at(pair.ba).received == 20);
}

CONFORMANCE("an endpoint without a descriptor left keeps its peers and takes new ones later") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    NaPair pair(rig);
    NaNode& other = rig.open();
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    const rlimit none{0, before.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
    const Result<PeerId> started = rig.try_connect(pair.a, other->address());
    // Whatever becomes of it, the others go on.
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
