// A rank of a group, or the client, is stopped during collectives for longer than any rank
// remembers them, and then continued. No handler runs twice.
//
// PAUSE_SECONDS=n instead of 45; tools/soak.py also pauses for 120.
#include "support/process_group.h"
#include "support/seed.h"

#include <chrono>
#include <thread>

#include "base/random.h"

using namespace weft;
using test::test_timeout, test::ProcessGroup;

namespace {

constexpr std::uint32_t ranks = 7;
constexpr std::uint32_t broadcasts = 200;

// Broadcasts one after the other; the pause interrupts the middle ones.
class Rig {
  public:
    explicit Rig(const std::string& uri) : servers(ranks, uri) {
        for (std::uint32_t rank = 0; rank < ranks; ++rank) servers.open(rank, UINT32_MAX);
    }
    void begin(Duration timeout) {
        std::byte body[4];
        base::store(body, ++last);
        group.collective(
            test::run_method, BodyWriter::of(body),
            {.timeout = timeout, .topology = {.shape = Topology::Shape::k_ary, .fanout = 2}},
            [this](const GroupOutcome& outcome) {
                ++completions;
                ok += outcome.status.ok();
            });
    }
    bool turn_until_all_completed() {
        return client.turn_until([&] { return completions == last; }, test_timeout);
    }
    void turn_for(Duration time) {
        client.turn_until([] { return false; }, time);
    }

    ProcessGroup servers;
    std::uint32_t last = 0;
    std::uint32_t completions = 0;
    std::uint32_t ok = 0;
    Runtime client = Runtime::create({.manual = true}).value();
    const Group group = client.group(servers.view()).value();
};

void stand_still(const std::string& uri, std::optional<std::uint32_t> stopped) {
    const std::uint64_t seed = test::seed_of(0);
    const Duration pause = 1s * static_cast<std::int64_t>(test::setting("PAUSE_SECONDS", 45));
    base::SeededRandom random(seed);
    INFO(uri << ", TEST_SEED=" << seed
             << ", stopped: " << (stopped ? "rank " + std::to_string(*stopped) : "the client")
             << " for " << pause / 1s << " s");
    Rig rig(uri);
    rig.begin(5s);
    REQUIRE(rig.turn_until_all_completed());
    REQUIRE(rig.ok == 1);
    while (rig.last < broadcasts) {
        rig.begin(5s);
        // At the pause some are answered, some are in handlers, and some are still in sockets.
        if (rig.last % 8 == 0) rig.turn_for(Duration(random.next() % 500'000));
        if (stopped && rig.last == broadcasts / 2) rig.servers.stop(*stopped);
    }
    if (stopped) {
        rig.turn_for(pause);
        rig.servers.go_on(*stopped);
    } else {
        // A client that does not turn is as good as stopped, and this process continues.
        std::this_thread::sleep_for(pause);
    }
    REQUIRE(rig.turn_until_all_completed());
    rig.turn_for(8s);  // Long enough to read all queued frames.
    for (std::uint32_t number = 1; number <= rig.last; ++number) {
        for (std::uint32_t rank = 0; rank < ranks; ++rank) {
            INFO("broadcast " << number << " at rank " << rank);
            CHECK(rig.servers.ran(rank, number) <= 1);
        }
    }
    const std::uint32_t ok = rig.ok;
    rig.begin(10s);
    REQUIRE(rig.turn_until_all_completed());
    CHECK(rig.ok == ok + 1);
}

}  // namespace

TEST_CASE("sm: no handler runs twice when a rank pauses longer than collectives are kept",
          "[.][pause]") {
    stand_still("sm://group-pause-" + std::to_string(::getpid()), 1);
}

TEST_CASE("tcp: no handler runs twice when a rank pauses longer than collectives are kept",
          "[.][pause]") {
    const std::uint32_t rank = GENERATE(1u, 0u, 2u);
    stand_still("tcp://127.0.0.1:0", rank);
}

TEST_CASE("tcp: no handler runs twice when the client pauses longer than collectives are kept",
          "[.][pause]") {
    stand_still("tcp://127.0.0.1:0", std::nullopt);
}
