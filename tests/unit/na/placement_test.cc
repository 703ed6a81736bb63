#include "na/common/placement.h"

#include <algorithm>
#include <array>
#include <thread>
#include <vector>

#include "base/random.h"
#include "na/hello.h"
#include "support/catch.h"

using namespace weft;
using namespace weft::na;

namespace {

constexpr TimePoint start{1s};
constexpr Incarnation own_life{3, 1000}, former_life{4, 1001};

// Placements of clients with random incarnations, that name no context unless they are told to.
struct PlacedClients {
    std::array<ContextLoad, 64> loads{};
    Placement placement;
    base::SeededRandom random{7};
    std::vector<Placement::Place> places;

    explicit PlacedClients(std::uint16_t contexts, std::uint32_t peers_max = 1024)
        : placement(contexts, own_life, peers_max,
                    [this](std::uint16_t context, TimePoint) { return loads[context]; }) {}

    Result<Placement::Place> try_place(std::uint16_t wanted = 0, TimePoint now = start) {
        return placement.place({{random.next(), random.next()}, 0, wanted}, now, random);
    }
    std::uint16_t place(std::uint16_t wanted = 0, TimePoint now = start) {
        places.push_back(try_place(wanted, now).value());
        return places.back().context();
    }
    std::uint32_t least() const {
        std::uint32_t least = placement.connections(0);
        for (std::uint16_t i = 1; i < placement.contexts(); ++i)
            least = std::min(least, placement.connections(i));
        return least;
    }
    std::uint32_t most() const {
        std::uint32_t most = 0;
        for (std::uint16_t i = 0; i < placement.contexts(); ++i)
            most = std::max(most, placement.connections(i));
        return most;
    }
};

}  // namespace

TEST_CASE("placement: connections without a wish differ by at most one between contexts") {
    for (const std::uint16_t contexts : {1, 2, 3, 4, 8, 64}) {
        PlacedClients clients(contexts);
        for (int i = 0; i < 640; ++i) {
            clients.place();
            REQUIRE(clients.most() <= clients.least() + 1);
        }
        CHECK(clients.most() == clients.least() + (640 % contexts == 0 ? 0 : 1));
    }
}

TEST_CASE("placement: the context of a session is used in the life of the server that has it") {
    PlacedClients clients(4);
    const std::uint16_t of_now = encode_wanted(3, &own_life);
    const std::uint16_t of_before = encode_wanted(3, &former_life);
    for (int i = 0; i < 100; ++i) REQUIRE(clients.place(of_now) == 2);
    for (int i = 0; i < 99; ++i) REQUIRE(clients.place(of_before) != 2);
    CHECK(clients.placement.connections(0) == 33);
    // Neither these clients nor returning ones count as clients that name a context.
    PlacedClients back(4, 16);
    for (int i = 0; i < 16; ++i) back.place(of_now);
    CHECK(back.placement.connections(2) == 16);
    PlacedClients few(4, 16);
    for (int i = 0; i < 16; ++i) few.place(of_before);
    CHECK(few.least() == 4);
}

TEST_CASE("placement: the context of a busy client does not get the next one") {
    PlacedClients clients(2);
    clients.loads[0].busy_share = 900;
    for (std::uint16_t round = 0; round < 40; ++round) {
        const Placement::Client of_zero{{0, 2u * round}, 0, 0};
        CHECK(clients.placement.place(of_zero, start, clients.random).value().context() == 1);
    }
    // Somewhat busier is no reason to leave the context that a client had.
    clients.loads[0].busy_share = 200;
    const Placement::Client of_zero{{0, 0}, 0, 0};
    CHECK(clients.placement.place(of_zero, start, clients.random).value().context() == 0);
}

TEST_CASE("placement: the context that a client names is used, and an unknown one is any") {
    PlacedClients clients(5);
    for (std::uint16_t wanted = 1; wanted <= 5; ++wanted) {
        for (int i = 0; i < 100; ++i) REQUIRE(clients.place(wanted) == wanted - 1);
    }
    for (const std::uint16_t unknown : {6, 7, 0xffff}) CHECK(clients.place(unknown) < 5);
    CHECK(clients.most() <= 101);
}

TEST_CASE("placement: a client comes back to the context that it had") {
    PlacedClients clients(8);
    const Placement::Client client{{1, 21}, 2, 0};
    for (int i = 0; i < 10; ++i) {
        CHECK(clients.placement.place(client, start, clients.random).value().context() ==
              (21 + 2) % 8);
    }
    // Its contexts are spread.
    for (std::uint16_t context = 0; context < 8; ++context) {
        const Placement::Client other{{1, 21}, context, 0};
        CHECK(clients.placement.place(other, start, clients.random).value().context() ==
              (21u + context) % 8);
    }
    CHECK(clients.most() == 0);
}

TEST_CASE("placement: each way out counts once") {
    PlacedClients clients(2);
    {
        Placement::Place first = clients.try_place(1).value();
        Placement::Place second = clients.try_place(2).value();
        CHECK(clients.placement.connections(0) == 1);
        first = std::move(second);
        CHECK(clients.placement.connections(0) == 0);
        CHECK(clients.placement.connections(1) == 1);
        CHECK_FALSE(second);
        Placement::Place moved(std::move(first));
        CHECK(moved.context() == 1);
        CHECK(clients.placement.connections(1) == 1);
    }
    CHECK(clients.most() == 0);
}

TEST_CASE("placement: a blocked context gets only clients that name it") {
    PlacedClients clients(3);
    clients.loads[1].is_blocked = true;
    for (int i = 0; i < 100; ++i) REQUIRE(clients.place() != 1);
    CHECK(clients.place(2) == 1);
    // If all are blocked, all are equal.
    for (ContextLoad& load : clients.loads) load.is_blocked = true;
    for (int i = 0; i < 100; ++i) clients.place();
    CHECK(clients.placement.connections(1) > 50);
}

TEST_CASE("placement: of contexts with equally many connections the least busy one is used") {
    PlacedClients clients(4);
    for (std::uint16_t i = 0; i < 4; ++i) {
        clients.place(static_cast<std::uint16_t>(i + 1));
        clients.place(static_cast<std::uint16_t>(i + 1));
        clients.loads[i].busy_share = i == 2 ? 100 : 900;
    }
    clients.place(1);  // The client's own context has one more than the least.
    const Placement::Client of_zero{{0, 0}, 0, 0};
    CHECK(clients.placement.place(of_zero, start, clients.random).value().context() == 2);
}

TEST_CASE("placement: contexts with equal load get random clients") {
    std::array<int, 4> chosen{};
    PlacedClients clients(4);
    for (int i = 0; i < 4; ++i) clients.place(1);  // Context 0 has more.
    const Placement::Client of_zero{{0, 0}, 0, 0};
    for (int i = 0; i < 3000; ++i) {
        ++chosen[clients.placement.place(of_zero, start, clients.random).value().context()];
    }
    CHECK(chosen[0] == 0);
    for (int i = 1; i < 4; ++i) CHECK(chosen[i] > 900);
}

TEST_CASE("placement: clients that name one context get half of the peers, and others the rest") {
    PlacedClients clients(2, 20);
    for (int i = 0; i < 10; ++i) clients.place(1);
    const Result<Placement::Place> refused = clients.try_place(1);
    REQUIRE_FALSE(refused);
    CHECK(refused.status().code() == Code::resource_exhausted);
    CHECK(refused.status().text() == "context 0 of this listener has its 10 clients that name it");
    CHECK(clients.placement.connections(0) == 10);
    CHECK(clients.try_place(2));
    CHECK(clients.try_place());
    clients.places.pop_back();
    CHECK(clients.try_place(1));
}

TEST_CASE("placement: threads may place and leave at once") {
    Placement placement(3, own_life, 1024);
    std::vector<std::thread> threads;
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
        threads.emplace_back([&placement, seed] {
            base::SeededRandom random(seed);
            std::vector<Placement::Place> places(8);
            for (int i = 0; i < 5000; ++i) {
                const auto wanted = static_cast<std::uint16_t>(random.next() % 5);
                places[random.next() % places.size()] =
                    placement.place({{1, random.next()}, 0, wanted}, start, random).value();
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    for (std::uint16_t i = 0; i < 3; ++i) CHECK(placement.connections(i) == 0);
}
