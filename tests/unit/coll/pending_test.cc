// Items that wait for this rank's own program, compared with a model: the oldest of the client and
// the peer with most is evicted.
#include <map>
#include <optional>

#include "base/random.h"
#include "coll/pending.h"
#include "support/catch.h"

using namespace weft;
using PendingGathers = coll::Pending<std::uint64_t>;

namespace {

coll::SessionKey peer_of(std::uint64_t peer) { return {peer, 7}; }

// Keeps the items that it adds, and removes the evicted ones.
struct Line {
    PendingGathers table;
    std::map<std::uint64_t, PendingGathers::Slot> slots{};
    std::uint64_t next = 0;

    // The evicted item; nullopt: none.
    std::optional<std::uint64_t> add(std::uint64_t peer, std::uint16_t client) {
        std::optional<std::uint64_t> gone;
        const coll::ClientKey of(peer_of(peer), client);
        if (const std::uint64_t* oldest = table.eviction_candidate(of.peer)) gone = *oldest;
        if (gone) REQUIRE(slots.erase(*gone) == 1);
        slots.emplace(next, table.add(of, next));
        ++next;
        return gone;
    }
};

}  // namespace

TEST_CASE("the oldest item of the client with most is evicted when a peer's share is full") {
    Line line;
    CHECK_FALSE(line.add(1, 7));
    for (std::size_t i = 1; i < PendingGathers::per_peer_max; ++i) CHECK_FALSE(line.add(1, 5));
    CHECK(line.add(1, 7) == 1);
    CHECK(line.add(1, 5) == 2);
    CHECK_FALSE(line.add(2, 5));
    CHECK(line.table.size() == PendingGathers::per_peer_max + 1);
}

TEST_CASE("the oldest item of the peer with most is evicted when all slots are taken") {
    Line line;
    CHECK_FALSE(line.add(9, 1));
    for (std::uint64_t peer = 1; peer <= 4; ++peer) {
        for (std::size_t i = 0; i + 1 < PendingGathers::per_peer_max; ++i)
            CHECK_FALSE(line.add(peer, 1));
    }
    for (int i = 0; i < 3; ++i) CHECK_FALSE(line.add(9, 1));
    CHECK(line.table.size() == PendingGathers::items_max);
    for (std::uint64_t i = 0; i < 100; ++i) {
        const std::optional<std::uint64_t> gone = line.add(9, 1);
        REQUIRE(gone);
        CHECK(*gone > 0);
    }
    CHECK(line.table.size() == PendingGathers::items_max);
    line.slots.clear();
    CHECK(line.table.size() == 0);
    CHECK(line.table.peers() == 0);
}

TEST_CASE("pending items stay within each peer's share in any order of arrivals and ends") {
    base::SeededRandom random(1);
    Line line;
    std::map<std::uint64_t, std::uint64_t> peers;  // By number.
    for (int step = 0; step < 50'000; ++step) {
        const std::uint64_t peer = 1 + random.next() % 8 * (random.next() % 2);
        peers[line.next] = peer;
        if (const auto gone = line.add(peer, random.next() % 4)) peers.erase(*gone);
        if (random.next() % 4 == 0) {
            const auto ends =
                std::next(line.slots.begin(),
                          static_cast<std::ptrdiff_t>(random.next() % 16 % line.slots.size()));
            peers.erase(ends->first);
            line.slots.erase(ends);
        }
        REQUIRE(line.table.size() == line.slots.size());
        REQUIRE(line.table.size() <= PendingGathers::items_max);
    }
    std::map<std::uint64_t, std::size_t> held;
    for (const auto& [number, peer] : peers) ++held[peer];
    for (const auto& [peer, count] : held) CHECK(count <= PendingGathers::per_peer_max);
    CHECK(held.size() == line.table.peers());
}
