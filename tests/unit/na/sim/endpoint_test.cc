// Guarantees of the simulated network only; the common ones are in tests/conformance.
#include <malloc.h>

#include <array>
#include <vector>

#include "base/log.h"
#include "base/manual_clock.h"
#include "base/random.h"
#include "na/arena.h"
#include "na/sim/sim.h"
#include "support/catch.h"

using namespace weft;
using namespace weft::na;

namespace {

struct Cluster {
    base::SeededRandom random;
    base::Log log{LogLevel::off};
    std::shared_ptr<Arena> arena = Arena::make(64u << 20);
    std::shared_ptr<na::sim::World> world;
    std::unique_ptr<Provider> provider;
    base::ManualClock clock;

    explicit Cluster(std::uint64_t seed, na::sim::WorldOptions options = {})
        : random(seed),
          world(std::make_shared<na::sim::World>(random, options)),
          provider(na::sim::make_sim_provider(world)) {}

    std::unique_ptr<Endpoint> open(const std::string& name, std::size_t peers_max = 1024) {
        Address address{"sim", name, "", 0};
        EndpointParts parts{random, log, *arena, {random.next(), random.next()}, "", peers_max};
        auto endpoint = provider->open(name.empty() ? nullptr : &address, parts, clock.now());
        REQUIRE(endpoint);
        return std::move(*endpoint);
    }

    // Advances to the next event, if there is one.
    bool step() {
        if (world->next_event() == never) return false;
        clock.advance(world->next_event() - clock.now());
        world->advance(clock.now());
        return true;
    }
};

// Some traffic among five nodes; the order of arrival depends on the seed.
std::uint64_t trace_of(std::uint64_t seed) {
    Cluster cluster(seed, {.link = {.jitter = 20us}});
    std::vector<std::unique_ptr<Endpoint>> nodes;
    for (int i = 0; i < 5; ++i) nodes.push_back(cluster.open("n" + std::to_string(i)));
    for (auto& from : nodes) {
        for (int to = 0; to < 5; ++to) {
            const Address address{"sim", "n" + std::to_string(to), "", 0};
            REQUIRE(from->connect(address, cluster.clock.now()));
        }
    }
    std::array<Event, 16> events;
    for (int turns = 0; turns < 2000 && cluster.step(); ++turns) {
        for (auto& node : nodes) {
            const std::size_t count = node->poll(events, cluster.clock.now());
            for (std::size_t i = 0; i < count; ++i) {
                if (events[i].kind == EventKind::peer_down) continue;
                if (std::byte* claim = node->reserve(events[i].peer, 64)) {
                    std::fill(claim, claim + 64, std::byte{1});
                    node->commit(64);
                }
            }
            node->flush();
        }
    }
    return cluster.world->trace_hash();
}

}  // namespace

TEST_CASE("a simulation repeats its trace with the same seed, and differs with another one") {
    CHECK(trace_of(7) == trace_of(7));
    CHECK(trace_of(7) != trace_of(8));
}

TEST_CASE("4096 ranks that start in one second all reach a listener that stalls meanwhile") {
    constexpr std::size_t ranks = 4096;
    Cluster cluster(1, {.connect_timeout = 2s});
    auto listener = cluster.open("rank0", ranks);
    std::vector<std::unique_ptr<Endpoint>> others;
    std::vector<TimePoint> starts;
    const TimePoint begun = cluster.clock.now();
    for (std::size_t i = 1; i < ranks; ++i) {
        others.push_back(cluster.open(""));
        starts.push_back(
            begun + Duration(static_cast<std::int64_t>(cluster.random.next() % 1'000'000'000)));
    }
    std::array<Event, 16> events;
    std::size_t up = 0, down = 0;
    const auto poll = [&](Endpoint& endpoint) {
        const std::size_t count = endpoint.poll(events, cluster.clock.now());
        for (std::size_t i = 0; i < count; ++i) {
            up += events[i].kind == EventKind::peer_up && !events[i].incoming;
            down += events[i].kind == EventKind::peer_down;
        }
    };
    while (up + down < ranks - 1 && cluster.clock.now() < begun + 10s) {
        cluster.clock.advance(200us);
        const TimePoint now = cluster.clock.now();
        cluster.world->advance(now);
        const bool stands_still = now > begun + 200ms && now < begun + 4s;
        if (!stands_still) poll(*listener);
        for (std::size_t i = 0; i < others.size(); ++i) {
            if (starts[i] <= now) {
                starts[i] = never;
                REQUIRE(others[i]->connect({"sim", "rank0", "", 0}, now));
            }
            if (others[i]->next_deadline() <= now) poll(*others[i]);
        }
    }
    CHECK(up == ranks - 1);
    CHECK(down == 0);
}

TEST_CASE("simulated messages arrive at their virtual time and not before") {
    Cluster cluster(1);
    auto server = cluster.open("server");
    auto client = cluster.open("");
    const TimePoint start = cluster.clock.now();
    CHECK(cluster.world->next_event() == never);
    REQUIRE(client->connect({"sim", "server", "", 0}, start));
    CHECK(cluster.world->next_event() == start + 5us);
    std::array<Event, 4> events;
    CHECK(server->poll(events, start + 4us) == 0);
    CHECK(server->poll(events, start + 5us) == 1);
    CHECK(client->poll(events, start + 9us) == 0);
    CHECK(client->poll(events, start + 10us) == 1);
}

TEST_CASE("a killed node sends nothing, its peers get peer_down and its name is free") {
    Cluster cluster(1);
    auto server = cluster.open("server");
    auto client = cluster.open("");
    REQUIRE(client->connect({"sim", "server", "", 0}, cluster.clock.now()));
    while (cluster.step()) {
    }
    std::array<Event, 4> events;
    REQUIRE(server->poll(events, cluster.clock.now()) == 1);
    const PeerId peer = events[0].peer;
    while (cluster.step()) {
    }
    REQUIRE(client->poll(events, cluster.clock.now()) == 1);
    CHECK_FALSE(cluster.world->kill("nobody"));
    CHECK(cluster.world->kill("server"));
    CHECK_FALSE(cluster.world->kill("server"));
    CHECK(server->reserve(peer, 8) == nullptr);
    CHECK_FALSE(server->connect({"sim", "server", "", 0}, cluster.clock.now()));
    auto successor = cluster.open("server");
    while (cluster.step()) {
    }
    CHECK(server->poll(events, cluster.clock.now()) == 0);
    REQUIRE(client->poll(events, cluster.clock.now()) == 1);
    CHECK(events[0].kind == EventKind::peer_down);
    CHECK(events[0].code == Code::unavailable);
    CHECK(client->error() == "the peer died");
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("an idle simulated node costs less than 2 KiB") {
    Cluster cluster(1);
    std::vector<std::unique_ptr<Endpoint>> nodes;
    constexpr std::size_t count = 10'000;
    nodes.reserve(count);
    const std::size_t before = mallinfo2().uordblks;
    for (std::size_t i = 0; i < count; ++i) nodes.push_back(cluster.open("n" + std::to_string(i)));
    const std::size_t bytes = (mallinfo2().uordblks - before) / count;
    UNSCOPED_INFO(bytes << " bytes per node");
    CHECK(bytes < 2048);
}
#endif
