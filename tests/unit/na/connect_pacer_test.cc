// The order in which one endpoint's connects start, and the pauses between them.
#include <string>
#include <vector>

#include "base/random.h"
#include "na/common/connect_attempt.h"
#include "support/catch.h"

using namespace weft;
using namespace weft::na;

static PeerId peer(std::uint32_t index) { return {index, 1}; }

TEST_CASE("connect pacer: a few connects to one destination start, the others follow in order") {
    constexpr std::uint32_t max = ConnectPacer::half_open_max;
    ConnectPacer pacer;
    for (std::uint32_t i = 0; i < max; ++i) CHECK(pacer.acquire("a", peer(i)));
    for (std::uint32_t i = max; i < 3 * max; ++i) CHECK_FALSE(pacer.acquire("a", peer(i)));
    CHECK(pacer.acquire("b", peer(1000)));  // Another destination does not wait for the first one.
    CHECK_FALSE(pacer.has_started());
    std::vector<std::uint32_t> started;
    for (std::uint32_t over = 0; over < 2 * max; ++over) {
        pacer.release("a");
        REQUIRE(pacer.has_started());
        const ConnectPacer::Started turn = pacer.next();
        CHECK(turn.to == "a");
        started.push_back(turn.peer.index);
        REQUIRE_FALSE(pacer.has_started());
    }
    for (std::uint32_t i = 0; i < 2 * max; ++i) CHECK(started[i] == max + i);
    for (std::uint32_t i = 0; i < max; ++i) pacer.release("a");
    CHECK_FALSE(pacer.has_started());
    for (std::uint32_t i = 0; i < max; ++i) CHECK(pacer.acquire("a", peer(i)));
}

TEST_CASE("connect pacer: a connect that lets others go takes its turn after all that wait") {
    constexpr std::uint32_t max = ConnectPacer::half_open_max;
    ConnectPacer pacer;
    for (std::uint32_t i = 0; i < max; ++i) CHECK(pacer.acquire("a", peer(i)));
    CHECK_FALSE(pacer.give_way("a", peer(0)));  // No other waits.
    CHECK_FALSE(pacer.acquire("a", peer(100)));
    CHECK_FALSE(pacer.acquire("a", peer(101)));
    CHECK(pacer.give_way("a", peer(0)));
    CHECK(pacer.next().peer == peer(100));
    pacer.release("a");
    CHECK(pacer.next().peer == peer(101));
    pacer.release("a");
    CHECK(pacer.next().peer == peer(0));
    CHECK_FALSE(pacer.has_started());
}

namespace {

// One connect with a slot, and as many others as start at a time: the last one waits.
struct Attempt {
    ConnectPacer pacer;
    ConnectAttempt attempt;
    base::SeededRandom random{1};

    Attempt() {
        CHECK(attempt.take_slot(pacer, "a", peer(0)));
        for (std::uint32_t i = 1; i <= ConnectPacer::half_open_max; ++i)
            (void)pacer.acquire("a", peer(i));
        REQUIRE_FALSE(pacer.has_started());
    }
    bool take_slot() { return attempt.take_slot(pacer, "a", peer(0)); }
    std::uint32_t next() { return pacer.has_started() ? pacer.next().peer.index : 0; }
};

}  // namespace

TEST_CASE("connect attempt: it keeps its slot from one attempt to the next") {
    Attempt one;
    one.attempt.back_off(TimePoint(1s), one.random);
    CHECK(one.attempt.retry_at > TimePoint(1s));
    CHECK(one.take_slot());
    CHECK(one.attempt.retry_at == never);
    CHECK(one.next() == 0);
}

TEST_CASE("connect attempt: one that a busy listener refused lets others go after its pause") {
    Attempt one;
    one.attempt.lets_others_go = true;
    one.attempt.back_off(TimePoint(1s), one.random);
    CHECK_FALSE(one.take_slot());
    CHECK(one.attempt.retry_at == never);
    CHECK(one.next() == ConnectPacer::half_open_max);
    one.pacer.release("a");
    CHECK(one.pacer.next().peer == peer(0));
    one.attempt.start_turn();
    CHECK(one.take_slot());  // Once for each refusal.
}

TEST_CASE("connect attempt: one that another context of the listener has gives up its slot once") {
    Attempt one;
    one.attempt.leave(one.pacer, "a");
    CHECK(one.next() == ConnectPacer::half_open_max);
    one.attempt.leave(one.pacer, "a");
    CHECK(one.next() == 0);
    // That one refuses it.
    one.attempt.lets_others_go = true;
    one.attempt.back_off(TimePoint(1s), one.random);
    CHECK_FALSE(one.take_slot());
    one.pacer.release("a");
    CHECK(one.pacer.next().peer == peer(0));
    for (std::uint32_t i = 0; i < ConnectPacer::half_open_max; ++i) one.pacer.release("a");
    CHECK(one.pacer.acquire("a", peer(0)));
}

TEST_CASE("connect pacer: an unanswered older attempt keeps a newer answer of the listener") {
    ConnectPacer pacer;
    CHECK(pacer.acquire("a", peer(1)));
    CHECK(pacer.acquire("a", peer(2)));
    pacer.on_answer("a", TimePoint(2s));  // The second attempt; the first one waits since 1 s.
    pacer.on_no_answer("a", TimePoint(1s));
    CHECK(pacer.answered_at("a") == TimePoint(2s));
    pacer.on_no_answer("a", TimePoint(3s));
    CHECK(pacer.answered_at("a") == TimePoint::min());
}

TEST_CASE("connect pacer: an answer is kept while a connect to that destination is pending") {
    ConnectPacer pacer;
    pacer.on_answer("a", TimePoint(1s));
    CHECK(pacer.answered_at("a") == TimePoint::min());
    CHECK(pacer.acquire("a", peer(1)));
    pacer.on_answer("a", TimePoint(2s));
    CHECK(pacer.answered_at("a") == TimePoint(2s));
    pacer.on_no_answer("a", TimePoint(2s));
    CHECK(pacer.answered_at("a") == TimePoint::min());
    pacer.on_answer("a", TimePoint(3s));
    pacer.release("a");
    CHECK(pacer.answered_at("a") == TimePoint::min());
}

TEST_CASE("connect pacer: the reason of a refusal is reported to all connects that wait") {
    ConnectPacer pacer;
    pacer.on_refused("a", "it is full");
    CHECK(pacer.why_waiting("a").empty());
    CHECK(pacer.acquire("a", peer(1)));
    pacer.on_refused("a", "it is full");
    CHECK(pacer.why_waiting("a") == "it is full");
    CHECK(pacer.why_waiting("b").empty());
    pacer.release("a");
    CHECK(pacer.why_waiting("a").empty());
}

TEST_CASE("connect pacer: consecutive hang-ups are bounded by their number and by time") {
    HangUps quick;
    for (int round = 0; round < 2; ++round) {
        for (std::uint32_t i = 0; i < HangUps::count_max; ++i)
            CHECK(quick.may_retry(TimePoint(9s)));
        CHECK_FALSE(quick.may_retry(TimePoint(9s)));
        quick.clear();
    }
    HangUps slow;
    CHECK(slow.may_retry(TimePoint(5s)));
    CHECK(slow.may_retry(TimePoint(5s) + HangUps::time_max - 1ns));
    CHECK_FALSE(slow.may_retry(TimePoint(5s) + HangUps::time_max));
    slow.clear();
    CHECK(slow.may_retry(TimePoint(60s)));
    // With the longest pauses that the random numbers allow.
    base::SeededRandom random(1);
    Duration all{};
    for (std::uint32_t i = 1; i <= HangUps::count_max; ++i) all += ConnectPacer::backoff(i, random);
    CHECK(all < 3s);
}

TEST_CASE("connect pacer: time in which this process is stalled does not count for hang-ups") {
    const TimePoint start(5s);
    HangUps row;
    row.postpone(3s, start);  // No hang-up so far.
    CHECK(row.may_retry(start));
    row.postpone(3s, start + 4s);
    CHECK(row.may_retry(start + 3s + HangUps::time_max - 1ns));
    CHECK_FALSE(row.may_retry(start + 3s + HangUps::time_max));
    // A row that began during the stall has no more time than others.
    HangUps late;
    CHECK(late.may_retry(start));
    late.postpone(3s, start + 1s);
    CHECK(late.may_retry(start + 1s + HangUps::time_max - 1ns));
    CHECK_FALSE(late.may_retry(start + 1s + HangUps::time_max));
}

TEST_CASE("connect pacer: pauses at a busy listener grow, differ and are bounded") {
    base::SeededRandom random(1);
    for (std::uint32_t attempt = 1; attempt < 100; ++attempt) {
        const Duration mean = std::min<Duration>(1ms * (1 << std::min(attempt, 8u)), 128ms);
        const Duration pause = ConnectPacer::backoff(attempt, random);
        CHECK(pause >= mean / 2);
        CHECK(pause < mean / 2 + mean);
    }
    CHECK(ConnectPacer::backoff(5, random) != ConnectPacer::backoff(5, random));
}
