// What waits for this rank's own program, by a model of it: the oldest of the client and the peer
// with most gives way.
#include <map>
#include <optional>

#include "base/random.h"
#include "coll/pending.h"
#include "support/catch.h"

using namespace weft;
using Gatherings = coll::Pending<std::uint64_t>;

namespace {

coll::AskerId peer_of(std::uint64_t peer) { return {peer, 7}; }

// Keeps what it adds, and gives up what gives way.
struct Line {
    Gatherings table;
    std::map<std::uint64_t, Gatherings::Place> places{};
    std::uint64_t next = 0;

    // What gave way; nullopt: nothing.
    std::optional<std::uint64_t> add(std::uint64_t peer, std::uint16_t client) {
        std::optional<std::uint64_t> gone;
        const coll::Client of(peer_of(peer), client);
        if (const std::uint64_t* oldest = table.gives_way_to(of.peer)) gone = *oldest;
        if (gone) REQUIRE(places.erase(*gone) == 1);
        places.emplace(next, table.add(of, next));
        ++next;
        return gone;
    }
};

}  // namespace

TEST_CASE("the oldest of the client with most gives way when a peer's share is full") {
    Line line;
    CHECK_FALSE(line.add(1, 7));
    for (std::size_t i = 1; i < Gatherings::of_peer; ++i) CHECK_FALSE(line.add(1, 5));
    CHECK(line.add(1, 7) == 1);
    CHECK(line.add(1, 5) == 2);
    CHECK_FALSE(line.add(2, 5));
    CHECK(line.table.size() == Gatherings::of_peer + 1);
}

TEST_CASE("the oldest of the peer with most gives way when all places are taken") {
    Line line;
    CHECK_FALSE(line.add(9, 1));
    for (std::uint64_t peer = 1; peer <= 4; ++peer) {
        for (std::size_t i = 0; i + 1 < Gatherings::of_peer; ++i) CHECK_FALSE(line.add(peer, 1));
    }
    for (int i = 0; i < 3; ++i) CHECK_FALSE(line.add(9, 1));
    CHECK(line.table.size() == Gatherings::most);
    for (std::uint64_t i = 0; i < 100; ++i) {
        const std::optional<std::uint64_t> gone = line.add(9, 1);
        REQUIRE(gone);
        CHECK(*gone > 0);
    }
    CHECK(line.table.size() == Gatherings::most);
    line.places.clear();
    CHECK(line.table.size() == 0);
    CHECK(line.table.peers() == 0);
}

TEST_CASE("what waits stays within each peer's share in any order of arrivals and ends") {
    base::SeededRandom random(1);
    Line line;
    std::map<std::uint64_t, std::uint64_t> peers;  // By number.
    for (int step = 0; step < 50'000; ++step) {
        const std::uint64_t peer = 1 + random.next() % 8 * (random.next() % 2);
        peers[line.next] = peer;
        if (const auto gone = line.add(peer, random.next() % 4)) peers.erase(*gone);
        if (random.next() % 4 == 0) {
            const auto ends =
                std::next(line.places.begin(),
                          static_cast<std::ptrdiff_t>(random.next() % 16 % line.places.size()));
            peers.erase(ends->first);
            line.places.erase(ends);
        }
        REQUIRE(line.table.size() == line.places.size());
        REQUIRE(line.table.size() <= Gatherings::most);
    }
    std::map<std::uint64_t, std::size_t> held;
    for (const auto& [number, peer] : peers) ++held[peer];
    for (const auto& [peer, count] : held) CHECK(count <= Gatherings::of_peer);
    CHECK(held.size() == line.table.peers());
}
