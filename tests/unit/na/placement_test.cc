#include "na/common/placement.h"

#include <algorithm>
#include <array>
#include <thread>
#include <vector>

#include "base/random.h"
#include "support/catch.h"

using namespace weft;
using namespace weft::na;

namespace {

constexpr TimePoint start{1s};

// Placements of clients with random incarnations, that name no context unless they are told to.
struct Door {
    Placement placement;
    base::SeededRandom random{7};
    std::vector<Placement::Place> places;

    explicit Door(std::uint16_t contexts, std::uint32_t peers_max = 1024)
        : placement(contexts, peers_max) {}

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

TEST_CASE("placement: connections without a wish differ by at most two between contexts") {
    for (const std::uint16_t contexts : {1, 2, 3, 4, 64}) {
        Door door(contexts);
        for (int i = 0; i < 640; ++i) {
            door.place();
            REQUIRE(door.most() <= door.least() + 2);
        }
    }
    Door door(4);
    for (int i = 0; i < 64; ++i) door.place();
    CHECK(door.least() >= 15);
    CHECK(door.most() <= 17);
}

TEST_CASE("placement: the context that a client names is used, and an unknown one is any") {
    Door door(5);
    for (std::uint16_t wanted = 1; wanted <= 5; ++wanted) {
        for (int i = 0; i < 100; ++i) REQUIRE(door.place(wanted) == wanted - 1);
    }
    for (const std::uint16_t unknown : {6, 7, 0xffff}) CHECK(door.place(unknown) < 5);
    CHECK(door.most() <= 101);
}

TEST_CASE("placement: a client comes back to the context that it had") {
    Door door(8);
    const Placement::Client client{{1, 21}, 2, 0};
    for (int i = 0; i < 10; ++i) {
        CHECK(door.placement.place(client, start, door.random).value().context() == (21 + 2) % 8);
    }
    // Its contexts are spread.
    for (std::uint16_t context = 0; context < 8; ++context) {
        const Placement::Client other{{1, 21}, context, 0};
        CHECK(door.placement.place(other, start, door.random).value().context() ==
              (21u + context) % 8);
    }
    CHECK(door.most() == 0);
}

TEST_CASE("placement: each way out counts once") {
    Door door(2);
    {
        Placement::Place first = door.try_place(1).value();
        Placement::Place second = door.try_place(2).value();
        CHECK(door.placement.connections(0) == 1);
        first = std::move(second);
        CHECK(door.placement.connections(0) == 0);
        CHECK(door.placement.connections(1) == 1);
        CHECK_FALSE(second);
        Placement::Place moved(std::move(first));
        CHECK(moved.context() == 1);
        CHECK(door.placement.connections(1) == 1);
    }
    CHECK(door.most() == 0);
}

TEST_CASE("placement: a context that does not report gets only clients that name it") {
    Door door(3);
    for (std::uint16_t i = 0; i < 3; ++i) door.placement.stamp(i, start, 0);
    const TimePoint later = start + 1500ms;
    door.placement.stamp(0, later, 0);
    door.placement.stamp(2, later, 0);
    for (int i = 0; i < 100; ++i) REQUIRE(door.place(0, later) != 1);
    CHECK(door.place(2, later) == 1);
    // If none reports, all are equal.
    const TimePoint much_later = later + 10s;
    for (int i = 0; i < 3; ++i) CHECK(door.place(0, much_later) < 3);
}

TEST_CASE("placement: of contexts with equally many connections the least busy one is used") {
    Door door(4);
    for (std::uint16_t i = 0; i < 4; ++i) {
        door.place(static_cast<std::uint16_t>(i + 1));
        door.place(static_cast<std::uint16_t>(i + 1));
        door.placement.stamp(i, start, i == 2 ? 100 : 900);
    }
    // The client's own context has two more than the least.
    door.place(1);
    door.place(1);
    const Placement::Client of_zero{{0, 0}, 0, 0};
    CHECK(door.placement.place(of_zero, start, door.random).value().context() == 2);
}

TEST_CASE("placement: contexts with equal load get random clients") {
    std::array<int, 4> chosen{};
    Door door(4);
    for (int i = 0; i < 4; ++i) door.place(1);  // Context 0 has more.
    const Placement::Client of_zero{{0, 0}, 0, 0};
    for (int i = 0; i < 3000; ++i) {
        ++chosen[door.placement.place(of_zero, start, door.random).value().context()];
    }
    CHECK(chosen[0] == 0);
    for (int i = 1; i < 4; ++i) CHECK(chosen[i] > 900);
}

TEST_CASE("placement: clients that name one context get half of the peers, and others the rest") {
    Door door(2, 20);
    for (int i = 0; i < 10; ++i) door.place(1);
    const Result<Placement::Place> refused = door.try_place(1);
    REQUIRE_FALSE(refused);
    CHECK(refused.status().code() == Code::resource_exhausted);
    CHECK(refused.status().text() == "context 0 of this listener has its 10 clients that name it");
    CHECK(door.placement.connections(0) == 10);
    CHECK(door.try_place(2));
    CHECK(door.try_place());
    door.places.pop_back();
    CHECK(door.try_place(1));
}

TEST_CASE("placement: threads may place and leave at once") {
    Placement placement(3, 1024);
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
