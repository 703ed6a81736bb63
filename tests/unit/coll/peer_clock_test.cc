// Times of another rank's clock: a converted time is never later than the real one.
#include "coll/peer_clock.h"
#include "base/random.h"
#include "support/catch.h"

using namespace weft;

namespace coll_clock {

using coll::OwnClock;
using coll::PeerClock;

TimePoint moment_at(Duration since) { return TimePoint(since); }

// Two clocks that drift, and readings that arrive late: by a moment, or by minutes in a socket
// buffer.
TEST_CASE("coll clock: a time converted to a peer's clock is never later than the true one") {
    for (std::uint64_t seed = 1; seed <= 100; ++seed) {
        INFO("seed " << seed);
        base::SeededRandom random(seed);
        const OwnClock there(random.next());
        // Parts per million.
        const auto drift = static_cast<std::int64_t>(random.next() % 2001) - 1000;
        const auto at_peer = [&](Duration true_time) {
            return moment_at(1h + true_time + true_time / 1'000'000 * drift);
        };
        PeerClock known;
        Duration now = 0s;
        while (now < 1h) {
            now += Duration(static_cast<std::int64_t>(random.next() % 20'000'000'000));
            const auto delay = static_cast<std::int64_t>(
                random.next() % (random.next() % 4 == 0 ? 60'000'000'000 : 1'000'000));
            known.note(there.read(at_peer(now)), moment_at(now + Duration(delay)));
            now += Duration(delay);
            const Duration then =
                now - Duration(static_cast<std::int64_t>(random.next() % 30'000'000'000));
            const Duration age = there.age(known.peer_time(moment_at(then)), at_peer(now));
            const Duration true_age = at_peer(now) - at_peer(then);
            REQUIRE(age >= true_age - 1us);
        }
    }
}

TEST_CASE("coll clock: the better reading is used, and any reading is taken after a refusal") {
    const OwnClock there(5);
    PeerClock known;
    CHECK_FALSE(known.is_known());
    known.note(there.read(moment_at(10s)), moment_at(13s));  // In flight for three seconds.
    CHECK(there.age(known.peer_time(moment_at(13s)), moment_at(13s)) >= 3s);
    known.note(there.read(moment_at(14s)), moment_at(14s));
    CHECK(there.age(known.peer_time(moment_at(14s)), moment_at(14s)) < 1ms);
    known.note(there.read(moment_at(14s)), moment_at(15s));
    CHECK(there.age(known.peer_time(moment_at(15s)), moment_at(15s)) < 10ms);
    known.note(0, moment_at(15s));
    CHECK(known.is_known());
}

TEST_CASE("coll clock: a collective of long ago, or by an earlier run's clock, may not begin") {
    CHECK(coll::may_begin(0s, 5s));
    CHECK(coll::may_begin(5s, 5s));
    CHECK_FALSE(coll::may_begin(5s + 1ns, 5s));
    CHECK(coll::may_begin(10min, Duration::max()));
    CHECK_FALSE(coll::may_begin(10min + 1ns, Duration::max()));
    CHECK_FALSE(coll::may_begin(10min + 1ns, 1h));
    CHECK(coll::may_begin(-10us, 5s));
    CHECK_FALSE(coll::may_begin(-1s, 5s));
    base::SeededRandom random(1);
    const OwnClock here(random.next());
    for (int i = 0; i < 1000; ++i) {
        const OwnClock before(random.next());
        const coll::Ticks then = before.read(moment_at(100s));
        REQUIRE_FALSE(coll::may_begin(here.age(then, moment_at(100s)), Duration::max()));
    }
}

}  // namespace coll_clock
