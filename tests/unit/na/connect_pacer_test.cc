// The order in which one endpoint's connects start, and the pauses between them.
#include <string>
#include <vector>

#include "base/random.h"
#include "na/common/connect_attempt.h"
#include "na/hello.h"
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

TEST_CASE("connect pacer: a connect without an answer for long gives its slot to the next one") {
    constexpr std::uint32_t max = ConnectPacer::half_open_max, most = ConnectPacer::yielded_max;
    ConnectPacer pacer;
    for (std::uint32_t i = 0; i < 2 * max + most; ++i)
        CHECK(pacer.acquire("a", peer(i)) == (i < max));
    CHECK_FALSE(pacer.yield("a"));  // It may be in the queue of a listener with one context.
    pacer.on_contexts("a", true);
    for (std::uint32_t i = 0; i < most; ++i) {
        CHECK(pacer.yield("a"));
        CHECK(pacer.next().peer == peer(max + i));
    }
    CHECK_FALSE(pacer.yield("a"));
    CHECK_FALSE(pacer.has_started());
    pacer.end_yielded("a");
    CHECK(pacer.yield("a"));
    CHECK(pacer.next().peer == peer(max + most));
}

TEST_CASE("connect pacer: whether a listener has several contexts is as its last answer said") {
    ConnectPacer pacer;
    CHECK(pacer.acquire("a", peer(1)));
    CHECK(pacer.acquire("a", peer(2)));
    pacer.on_contexts("a", true);
    CHECK(pacer.yield("a"));
    pacer.on_contexts("a", false);  // It has started again.
    CHECK_FALSE(pacer.yield("a"));
    pacer.end_yielded("a");
    pacer.release("a");
    CHECK(pacer.acquire("a", peer(1)));
    CHECK_FALSE(pacer.yield("a"));
    CHECK_FALSE(names_later_context(0));
    CHECK_FALSE(names_later_context(encode_wanted(1, nullptr)));
    const Incarnation life{7, 9};
    CHECK_FALSE(names_later_context(encode_wanted(1, &life)));  // As each session wants.
    CHECK(names_later_context(encode_wanted(2, &life)));
}

TEST_CASE("connect pacer: a listener is crowded while others wait and no more may yield") {
    ConnectPacer pacer;
    for (std::uint32_t i = 1; i <= ConnectPacer::yielded_max; ++i) {
        CHECK(pacer.acquire("a", peer(i)));
        pacer.on_contexts("a", true);
        CHECK(pacer.yield("a"));
    }
    for (std::uint32_t i = 0; i < ConnectPacer::half_open_max; ++i)
        CHECK(pacer.acquire("a", peer(100 + i)));
    CHECK_FALSE(pacer.is_crowded("a"));
    CHECK_FALSE(pacer.acquire("a", peer(200)));
    CHECK(pacer.is_crowded("a"));
    pacer.end_yielded("a");
    CHECK_FALSE(pacer.is_crowded("a"));
}

TEST_CASE("connect pacer: that a listener has several contexts is known to the end") {
    ConnectPacer pacer;
    CHECK(pacer.acquire("a", peer(1)));
    pacer.on_contexts("a", true);
    pacer.on_answer("a", TimePoint(1s));
    pacer.on_refused("a", "busy");
    CHECK(pacer.yield("a"));
    CHECK(pacer.answered_at("a") == TimePoint(1s));
    pacer.end_yielded("a");
    CHECK(pacer.answered_at("a") == TimePoint::min());
    CHECK(pacer.why_waiting("a").empty());
    CHECK(pacer.acquire("a", peer(2)));
    CHECK(pacer.yield("a"));
    pacer.end_yielded("a");
    // Of so many others at most.
    for (int i = 0; i < 2000; ++i) {
        const std::string other = "other" + std::to_string(i);
        CHECK(pacer.acquire(other, peer(3)));
        pacer.on_contexts(other, true);
        pacer.release(other);
    }
    CHECK(pacer.acquire("other1999", peer(4)));
    CHECK_FALSE(pacer.yield("other1999"));
}

namespace {

// One connect, and as many others as start at a time.
struct Attempt {
    ConnectPacer pacer;
    ConnectAttempt attempt;

    explicit Attempt(bool has_contexts = true) {
        CHECK(attempt.take_slot(pacer, "a", peer(0)));
        if (has_contexts) pacer.on_contexts("a", true);
        for (std::uint32_t i = 1; i <= ConnectPacer::half_open_max; ++i)
            (void)pacer.acquire("a", peer(i));
        REQUIRE_FALSE(pacer.has_started());
        attempt.note_hello(TimePoint(1s));
    }
    void end_turn(bool is_answered) {
        attempt.end_turn(pacer, "a", peer(0), is_answered, attempt.slot_until);
    }
    std::uint32_t next() { return pacer.has_started() ? pacer.next().peer.index : 0; }
};

}  // namespace

TEST_CASE("connect attempt: its turn ends a while after its first hello") {
    Attempt one;
    one.attempt.note_hello(TimePoint(1001ms));
    CHECK(one.attempt.slot_until == TimePoint(1s) + ConnectPacer::slot_time);
    one.end_turn(false);
    CHECK(one.next() == ConnectPacer::half_open_max);
    CHECK_FALSE(one.attempt.has_slot());
    CHECK(one.attempt.slot_until == never);
    // It fails, and takes another turn.
    CHECK_FALSE(one.attempt.take_slot(one.pacer, "a", peer(0)));
    one.pacer.release("a");
    CHECK(one.pacer.next().peer == peer(0));
    one.attempt.start_turn();
    one.attempt.leave(one.pacer, "a");
    for (std::uint32_t i = 1; i < ConnectPacer::half_open_max; ++i) one.pacer.release("a");
    CHECK(one.pacer.acquire("a", peer(0)));
}

TEST_CASE("connect attempt: one that a busy listener refused waits for its next turn") {
    Attempt one;
    one.attempt.retry_at = TimePoint(2s);
    one.end_turn(true);
    CHECK(one.next() == ConnectPacer::half_open_max);
    CHECK(one.attempt.slot == PacerSlot::none);
    CHECK(one.attempt.retry_at == never);
    one.pacer.release("a");
    CHECK(one.pacer.next().peer == peer(0));
}

TEST_CASE("connect attempt: to a listener of one context it keeps its slot, as in its queue") {
    Attempt one(false);
    one.attempt.retry_at = TimePoint(2s);
    for (const bool is_answered : {false, true, false}) {
        const TimePoint until = one.attempt.slot_until;
        one.end_turn(is_answered);
        CHECK(one.attempt.has_slot());
        CHECK(one.attempt.slot_until == until + ConnectPacer::slot_time);
    }
    CHECK(one.attempt.retry_at == TimePoint(2s));
    CHECK(one.next() == 0);
}

TEST_CASE("connect attempt: a refused one keeps its slot and the reason while no other one waits") {
    ConnectPacer pacer;
    ConnectAttempt attempt;
    CHECK(attempt.take_slot(pacer, "a", peer(0)));
    pacer.on_contexts("a", true);
    pacer.on_refused("a", "busy");
    attempt.note_hello(TimePoint(1s));
    attempt.retry_at = TimePoint(2s);
    attempt.end_turn(pacer, "a", peer(0), true, attempt.slot_until);
    CHECK(attempt.has_slot());
    CHECK(attempt.retry_at == TimePoint(2s));
    CHECK(pacer.why_waiting("a") == "busy");
}

TEST_CASE("connect attempt: it keeps its slot while too many others wait without one") {
    ConnectPacer pacer;
    for (std::uint32_t i = 1; i <= ConnectPacer::yielded_max; ++i) {
        CHECK(pacer.acquire("a", peer(i)));
        pacer.on_contexts("a", true);
        CHECK(pacer.yield("a"));
    }
    ConnectAttempt attempt;
    CHECK(attempt.take_slot(pacer, "a", peer(0)));
    attempt.note_hello(TimePoint(1s));
    const TimePoint now = attempt.slot_until;
    attempt.end_turn(pacer, "a", peer(0), false, now);
    CHECK(attempt.has_slot());
    CHECK(attempt.slot_until == now + ConnectPacer::slot_time);
    pacer.end_yielded("a");
    attempt.end_turn(pacer, "a", peer(0), false, attempt.slot_until);
    CHECK(attempt.slot == PacerSlot::yielded);
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
