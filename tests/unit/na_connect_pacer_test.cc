// In what order one endpoint's connects start, and how long they pause.
#include <vector>

#include "base/random.h"
#include "na/connect_pacer.h"
#include "support/catch.h"

using namespace weft;
using namespace weft::na;

static PeerId peer(std::uint32_t index) { return {index, 1}; }

TEST_CASE("connect pacer: some of one destination start, the others follow in order") {
    constexpr std::uint32_t max = ConnectPacer::half_open_max;
    ConnectPacer pacer;
    for (std::uint32_t i = 0; i < max; ++i) CHECK(pacer.enter("a", peer(i)));
    for (std::uint32_t i = max; i < 3 * max; ++i) CHECK_FALSE(pacer.enter("a", peer(i)));
    CHECK(pacer.enter("b", peer(1000)));  // Another destination does not wait for the first.
    CHECK_FALSE(pacer.has_turns());
    std::vector<std::uint32_t> started;
    for (std::uint32_t over = 0; over < 2 * max; ++over) {
        pacer.leave("a");
        REQUIRE(pacer.has_turns());
        const ConnectPacer::Turn turn = pacer.next();
        CHECK(turn.to == "a");
        started.push_back(turn.peer.index);
        REQUIRE_FALSE(pacer.has_turns());
    }
    for (std::uint32_t i = 0; i < 2 * max; ++i) CHECK(started[i] == max + i);
    for (std::uint32_t i = 0; i < max; ++i) pacer.leave("a");
    CHECK_FALSE(pacer.has_turns());
    for (std::uint32_t i = 0; i < max; ++i) CHECK(pacer.enter("a", peer(i)));
}

TEST_CASE("connect pacer: an attempt without an answer says nothing of a listener that answers") {
    ConnectPacer pacer;
    CHECK(pacer.enter("a", peer(1)));
    CHECK(pacer.enter("a", peer(2)));
    pacer.answered("a", TimePoint(2s));  // The second, while the first waits since 1 s.
    pacer.unanswered("a", TimePoint(1s));
    CHECK(pacer.answered_at("a") == TimePoint(2s));
    pacer.unanswered("a", TimePoint(3s));
    CHECK(pacer.answered_at("a") == TimePoint::min());
}

TEST_CASE("connect pacer: an answer is known until nothing is under way there") {
    ConnectPacer pacer;
    pacer.answered("a", TimePoint(1s));
    CHECK(pacer.answered_at("a") == TimePoint::min());
    CHECK(pacer.enter("a", peer(1)));
    pacer.answered("a", TimePoint(2s));
    CHECK(pacer.answered_at("a") == TimePoint(2s));
    pacer.unanswered("a", TimePoint(2s));
    CHECK(pacer.answered_at("a") == TimePoint::min());
    pacer.answered("a", TimePoint(3s));
    pacer.leave("a");
    CHECK(pacer.answered_at("a") == TimePoint::min());
}

TEST_CASE("connect pacer: why a listener refused is known to all that wait there") {
    ConnectPacer pacer;
    pacer.refused("a", "it is full");
    CHECK(pacer.why_waiting("a").empty());
    CHECK(pacer.enter("a", peer(1)));
    pacer.refused("a", "it is full");
    CHECK(pacer.why_waiting("a") == "it is full");
    CHECK(pacer.why_waiting("b").empty());
    pacer.leave("a");
    CHECK(pacer.why_waiting("a").empty());
}

TEST_CASE("connect pacer: hang-ups in a row are bounded by their number and by time") {
    HangUps quick;
    for (int round = 0; round < 2; ++round) {
        for (std::uint32_t i = 0; i < HangUps::max; ++i) CHECK(quick.may_try_again(TimePoint(9s)));
        CHECK_FALSE(quick.may_try_again(TimePoint(9s)));
        quick.clear();
    }
    HangUps slow;
    CHECK(slow.may_try_again(TimePoint(5s)));
    CHECK(slow.may_try_again(TimePoint(5s) + HangUps::last - 1ns));
    CHECK_FALSE(slow.may_try_again(TimePoint(5s) + HangUps::last));
    slow.clear();
    CHECK(slow.may_try_again(TimePoint(60s)));
    // With the pauses before each, whatever chance says.
    base::SeededRandom random(1);
    Duration all{};
    for (std::uint32_t i = 1; i <= HangUps::max; ++i) all += ConnectPacer::pause(i, random);
    CHECK(all < 3s);
}

TEST_CASE("connect pacer: time in which this process stands still counts for no hang-up") {
    const TimePoint start(5s);
    HangUps row;
    row.postpone(3s, start);  // None so far.
    CHECK(row.may_try_again(start));
    row.postpone(3s, start + 4s);
    CHECK(row.may_try_again(start + 3s + HangUps::last - 1ns));
    CHECK_FALSE(row.may_try_again(start + 3s + HangUps::last));
    // One that began after a part of the stall has no more time than others.
    HangUps late;
    CHECK(late.may_try_again(start));
    late.postpone(3s, start + 1s);
    CHECK(late.may_try_again(start + 1s + HangUps::last - 1ns));
    CHECK_FALSE(late.may_try_again(start + 1s + HangUps::last));
}

TEST_CASE("connect pacer: pauses at a busy listener grow, differ and are bounded") {
    base::SeededRandom random(1);
    for (std::uint32_t attempt = 1; attempt < 100; ++attempt) {
        const Duration mean = std::min<Duration>(1ms * (1 << std::min(attempt, 8u)), 128ms);
        const Duration pause = ConnectPacer::pause(attempt, random);
        CHECK(pause >= mean / 2);
        CHECK(pause < mean / 2 + mean);
    }
    CHECK(ConnectPacer::pause(5, random) != ConnectPacer::pause(5, random));
}
