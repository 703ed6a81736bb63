// What a rank remembers of collectives, compared with a model: none begins twice, and completed
// ones are erased.
#include <set>

#include "base/random.h"
#include "coll/collective_table.h"
#include "support/catch.h"

using namespace weft;
using coll::CollectiveKey;

namespace {

// Counts its reads.
struct Running {
    bool is = true;
    static inline std::size_t looks = 0;

    operator bool() const { return ++looks, is; }  // NOLINT(google-explicit-constructor)
    Running& operator=(bool now) { return is = now, *this; }
};

struct StoredCollective {
    Running running;
    bool awaits_others = false;
    TimePoint keep_until{};
    TimePoint known_since{};
    coll::ClientKey client;
    std::vector<std::byte> subtree_reply;
    std::vector<std::byte> own_reply;
};
using Table = coll::CollectiveTable<StoredCollective>;
using Lookup = Table::Lookup;

TimePoint moment_at(Duration since) { return TimePoint(since); }

}  // namespace

TEST_CASE("collective table: a collective is known once begun, and completed once acknowledged") {
    Table known(12345);
    const CollectiveKey id{7, 5};
    CHECK(known.lookup(id, 5, moment_at(1s)) == Lookup::fresh);
    const auto collective = std::make_shared<StoredCollective>();
    known.add(id, 5, moment_at(1s), collective);
    CHECK(known.lookup(id, 5, moment_at(1s)) == Lookup::known);
    CHECK(known.find(id) == collective);
    CHECK(known.lookup({8, 5}, 5, moment_at(1s)) == Lookup::fresh);
    // It is acknowledged and still runs here: it is not erased.
    CHECK(known.lookup({7, 6}, 6, moment_at(1s)) == Lookup::fresh);
    CHECK(known.lookup(id, 5, moment_at(1s)) == Lookup::known);
    collective->running = false;
    CHECK(known.lookup(id, 5, moment_at(1s)) == Lookup::completed);
    CHECK(known.collectives() == 0);
    // A late request with an older acknowledgement gets the same result.
    CHECK(known.lookup({7, 4}, 0, moment_at(1s)) == Lookup::completed);
    CHECK(known.lookup({7, 6}, 0, moment_at(1s)) == Lookup::fresh);
}

TEST_CASE("collective table: a request does not walk over collectives that still run") {
    Table known(12345);
    constexpr std::uint64_t count = 4096;
    const auto begin = [&](std::uint64_t sequence) {
        REQUIRE(known.lookup({1, sequence}, sequence, moment_at(1s)) == Lookup::fresh);
        known.add({1, sequence}, sequence, moment_at(1s), std::make_shared<StoredCollective>());
    };
    Running::looks = 0;
    for (std::uint64_t sequence = 0; sequence < count; ++sequence) begin(sequence);
    CHECK(Running::looks <= 4 * count);
    // Each is dropped when it ends, because its origin has acknowledged it.
    for (std::uint64_t sequence = 0; sequence + 1 < count; ++sequence) {
        const CollectiveKey id{1, sequence};
        known.finish(*known.find(id));
        REQUIRE(known.is_acknowledged(id));
        known.drop(id);
    }
    CHECK(known.collectives() == 1);
    CHECK(known.lookup({1, 7}, 0, moment_at(1s)) == Lookup::completed);
}

TEST_CASE("collective table: each collective begins at most once, in any order of requests") {
    for (std::uint64_t seed = 1; seed <= 50; ++seed) {
        INFO("seed " << seed);
        base::SeededRandom random(seed);
        Table known(12345);
        std::set<std::uint64_t> begun;
        std::map<std::uint64_t, std::shared_ptr<StoredCollective>> running;
        for (int word = 0; word < 400; ++word) {
            const std::uint64_t sequence = random.next() % 64;
            const std::uint64_t acknowledged_below =
                random.next() % (sequence + 1) * (random.next() % 8 == 0);
            const CollectiveKey id{1, sequence};
            if (known.lookup(id, acknowledged_below, moment_at(1s)) == Lookup::fresh) {
                REQUIRE(begun.insert(sequence).second);
                running[sequence] = std::make_shared<StoredCollective>();
                known.add(id, acknowledged_below, moment_at(1s), running[sequence]);
            }
            if (running.empty() || random.next() % 2) continue;
            const auto ends = std::next(
                running.begin(), static_cast<std::ptrdiff_t>(random.next() % running.size()));
            ends->second->running = false;
            ends->second->keep_until = moment_at(100s);
            running.erase(ends);
        }
    }
}

TEST_CASE("collective table: any sequence number expires, and its replies with it") {
    Table known(12345);
    const CollectiveKey last{1, UINT64_MAX}, next{2, 7};
    for (const CollectiveKey id : {last, next}) {
        REQUIRE(known.lookup(id, 0, moment_at(1s)) == Lookup::fresh);
        auto collective = std::make_shared<StoredCollective>();
        collective->keep_until = moment_at(id.origin == 1 ? 50s : 620s);
        known.add(id, 0, moment_at(1s), collective);
        collective->subtree_reply.resize(90);
        collective->own_reply.resize(10);
        known.finish(*collective);
    }
    CHECK(known.reply_bytes() == 200);
    known.sweep(moment_at(51s));
    CHECK(known.collectives() == 1);
    CHECK(known.reply_bytes() == 100);
    CHECK(known.lookup(next, 0, moment_at(500s)) == Lookup::known);
    CHECK(known.lookup(next, 8, moment_at(500s)) == Lookup::completed);
    CHECK(known.reply_bytes() == 0);
    known.sweep(moment_at(620s));
    CHECK(known.origins() == 0);
}

TEST_CASE("collective table: replies take at most reply_bytes_max") {
    Table known(12345);
    std::uint64_t kept = 0;
    for (std::uint64_t i = 0; i < 10; ++i) {
        auto collective = std::make_shared<StoredCollective>();
        REQUIRE(known.lookup({1, i}, 0, moment_at(1s)) == Lookup::fresh);
        known.add({1, i}, 0, moment_at(1s), collective);
        collective->keep_until = moment_at(50s);
        collective->subtree_reply.resize(Table::reply_bytes_max / 4);
        if (i == 4) collective->own_reply.resize(1);
        known.finish(*collective);
        kept += !collective->subtree_reply.empty();
        CHECK(collective->subtree_reply.empty() == (i >= 4));
        CHECK(collective->own_reply.empty());
        CHECK_FALSE(collective->running);
    }
    CHECK(kept == 4);
    known.drop({1, 0});
    known.drop({1, 0});  // Dropped already.
    CHECK(known.collectives() == 9);
    CHECK(known.reply_bytes() == Table::reply_bytes_max / 4 * 3);
    CHECK(known.lookup({1, 10}, 10, moment_at(2s)) == Lookup::fresh);  // All are acknowledged.
    CHECK(known.collectives() == 0);
    CHECK(known.reply_bytes() == 0);
}

TEST_CASE("collective table: origins chosen by a peer do not collide in one bucket") {
    Table known(987654321);
    for (std::uint64_t i = 0; i < 20000; ++i) {
        const CollectiveKey id{i << 32, 0};
        REQUIRE(known.lookup(id, 0, moment_at(1s)) == Lookup::fresh);
        known.add(id, 0, moment_at(1s), std::make_shared<StoredCollective>());
    }
    CHECK(known.collectives() ==
          20000);  // Takes a moment; with the numbers as hashes it would take seconds.
}

TEST_CASE("collective table: unacknowledged entries expire, and their number is bounded") {
    Table known(12345);
    for (std::uint64_t i = 0; i < Table::entries_max / 2; ++i) {
        REQUIRE(known.lookup({i, 0}, 0, moment_at(1s)) == Lookup::fresh);
        auto collective = std::make_shared<StoredCollective>();
        collective->running = false;
        collective->keep_until = moment_at(50s);
        known.add({i, 0}, 0, moment_at(1s), collective);
    }
    CHECK(known.collectives() + known.origins() == Table::entries_max);
    CHECK(known.lookup({Table::entries_max, 0}, 0, moment_at(2s)) == Lookup::full);
    CHECK(known.lookup({0, 0}, 0, moment_at(2s)) == Lookup::known);
    CHECK(known.lookup({Table::entries_max, 0}, 0, moment_at(51s)) == Lookup::fresh);
    CHECK(known.collectives() == 0);
    CHECK(known.origins() == 0);
    for (std::uint64_t i = 0; i < Table::entries_max / 2; ++i) {
        REQUIRE(known.lookup({Table::entries_max + i, 0}, 0, moment_at(200s)) == Lookup::fresh);
        known.add({Table::entries_max + i, 0}, 0, moment_at(200s),
                  std::make_shared<StoredCollective>());
    }
    CHECK(known.origins() == Table::entries_max / 2);  // All earlier ones are erased.
}

TEST_CASE("collective table: acknowledged collectives stay completed until none may begin") {
    Table known(12345);
    for (std::uint64_t i = 0; i < 3; ++i) {
        REQUIRE(known.lookup({1, i}, i, moment_at(1s)) == Lookup::fresh);
        auto collective = std::make_shared<StoredCollective>();
        collective->running = false;
        collective->keep_until = moment_at(i == 0 ? 500s : 50s);
        known.add({1, i}, i, moment_at(1s), collective);
    }
    known.sweep(moment_at(400s));
    CHECK(known.collectives() == 0);
    CHECK(known.lookup({1, 0}, 0, moment_at(400s)) == Lookup::completed);
    known.sweep(moment_at(500s));
    CHECK(known.origins() == 0);
}

namespace {

// Collectives with an origin of their own each; they complete at once.
struct Crowd {
    Table& known;
    coll::SessionKey peer;
    std::uint64_t next = peer.first << 32;

    bool add(TimePoint now, bool is_over = true, std::uint16_t client = 0) {
        const CollectiveKey id{next++, 0};
        if (known.lookup(id, 0, now, peer) != Lookup::fresh) return false;
        auto collective = std::make_shared<StoredCollective>();
        collective->client = {peer, client};
        collective->keep_until = now + 100s;
        known.add(id, 0, now, collective);
        if (is_over) known.finish(*collective);
        collectives.push_back(std::move(collective));
        return true;
    }
    // Up to its share.
    std::size_t fill(TimePoint now, bool is_over = true, std::uint16_t client = 0) {
        for (std::size_t added = 0;; ++added) {
            if (added == share || !add(now, is_over, client)) return added;
        }
    }

    static constexpr std::size_t share = Table::entries_max / Table::share / 2;
    std::vector<std::shared_ptr<StoredCollective>> collectives{};
};

}  // namespace

TEST_CASE("collective table: a peer with a full share loses its own oldest entries only") {
    Table known(12345);
    Crowd honest{known, {2, 2}};
    CHECK(honest.add(moment_at(500ms)));
    Crowd crowd{known, {1, 1}};
    CHECK(crowd.fill(moment_at(1s)) == Crowd::share);
    CHECK(crowd.add(moment_at(2s)));
    CHECK(known.collectives() < Crowd::share);
    // The lost ones do not begin again for any peer; the others are known.
    CHECK(known.floor(std::uint64_t{1} << 32) == moment_at(1s));
    CHECK(known.lookup({crowd.next - 1, 0}, 0, moment_at(2s)) == Lookup::known);
    CHECK(known.lookup({honest.next - 1, 0}, 0, moment_at(2s)) == Lookup::known);
    // The number of entries stays bounded.
    for (std::size_t i = 0; i < 3 * Table::entries_max; ++i) {
        REQUIRE(crowd.add(moment_at(2s + Duration(i * 1us))));
        REQUIRE(known.collectives() + known.origins() <= 2 * Crowd::share + 2);
    }
}

TEST_CASE("collective table: a peer is refused when all of its share runs, and others are not") {
    Table known(12345);
    Crowd crowd{known, {1, 1}};
    CHECK(crowd.fill(moment_at(1s), false) == Crowd::share);
    CHECK_FALSE(crowd.add(moment_at(2s)));
    Crowd honest{known, {2, 2}};
    CHECK(honest.add(moment_at(2s)));
    CHECK(known.floor(crowd.next) < moment_at(1s));
}

TEST_CASE("collective table: the client with most entries makes room for its peer's others") {
    Table known(12345);
    Crowd crowd{known, {1, 1}};
    CHECK(crowd.add(moment_at(500ms), true, 7));
    for (std::size_t i = 1; i < Crowd::share; ++i) REQUIRE(crowd.add(moment_at(1s), true, 5));
    CHECK(crowd.add(moment_at(2s), true, 7));
    CHECK(known.lookup({std::uint64_t{1} << 32, 0}, 0, moment_at(2s)) == Lookup::known);
    CHECK(known.collectives() == 2);
}

TEST_CASE("collective table: collectives that await others give way when none has completed") {
    std::size_t given_up = 0;
    Table* table = nullptr;
    Table known(12345, {}, [&](StoredCollective& collective) {
        ++given_up;
        table->finish(collective);
    });
    table = &known;
    Crowd crowd{known, {1, 1}};
    for (std::size_t i = 0; i < Crowd::share; ++i) {
        REQUIRE(crowd.add(moment_at(1s + Duration(i * 1us)), false, 5));
        crowd.collectives.back()->awaits_others = true;
    }
    CHECK(crowd.add(moment_at(2s), false, 7));
    CHECK(given_up == Crowd::share / 2 + 1);
    CHECK_FALSE(crowd.collectives.front()->running);
    CHECK(crowd.collectives[Crowd::share - 1]->running);
    CHECK(known.floor(std::uint64_t{1} << 32) >= moment_at(1s));
}

TEST_CASE("collective table: a full table evicts completed entries of the peers with most") {
    std::set<coll::SessionKey> gone;
    Table known(12345, [&](const coll::SessionKey& one) { return !gone.contains(one); });
    std::vector<Crowd> crowds;
    for (std::uint64_t i = 1; i <= 4; ++i) {
        crowds.push_back({known, {i, i}});
        crowds.back().fill(moment_at(Duration(i * 1s)));
    }
    Crowd honest{known, {9, 9}};
    SECTION("of a disconnected peer first, and its oldest") {
        gone = {{3, 3}};
        CHECK(honest.add(moment_at(5s)));
        CHECK(known.floor(std::uint64_t{3} << 32) == moment_at(3s));
        CHECK(known.lookup({std::uint64_t{3} << 32, 0}, 0, moment_at(5s)) == Lookup::fresh);
        CHECK(known.lookup({std::uint64_t{4} << 32, 0}, 0, moment_at(5s)) == Lookup::known);
        CHECK(known.lookup({std::uint64_t{1} << 32, 0}, 0, moment_at(5s)) == Lookup::known);
    }
    SECTION("of one of the peers with most when all are connected") {
        CHECK(honest.add(moment_at(5s)));
        CHECK(known.collectives() == 3 * Crowd::share + 1);
    }
}

TEST_CASE("collective table: a full table cancels collectives of disconnected peers that wait") {
    std::set<coll::SessionKey> gone;
    std::size_t given_up = 0;
    Table* table = nullptr;
    const auto cancel_waiting = [&](StoredCollective& collective) {
        ++given_up;
        table->finish(collective);
    };
    Table known(
        12345, [&](const coll::SessionKey& one) { return !gone.contains(one); }, cancel_waiting);
    table = &known;
    std::vector<Crowd> crowds;
    for (std::uint64_t i = 1; i <= 4; ++i) {
        crowds.push_back({known, {i, i}});
        REQUIRE(crowds.back().fill(moment_at(Duration(i * 1s)), false) == Crowd::share);
        for (const auto& collective : crowds.back().collectives) collective->awaits_others = true;
    }
    Crowd honest{known, {9, 9}};
    SECTION("none of connected peers") {
        CHECK_FALSE(honest.add(moment_at(5s)));
        CHECK(given_up == 0);
    }
    SECTION("only those of the disconnected peer") {
        gone = {{3, 3}};
        for (int i = 0; i < 100; ++i) REQUIRE(honest.add(moment_at(5s)));
        CHECK(given_up == Crowd::share);  // All began at the same time.
        CHECK_FALSE(crowds[2].collectives.front()->running);
        CHECK(crowds[0].collectives.front()->running);
        CHECK(known.floor(std::uint64_t{3} << 32) == moment_at(3s));
    }
}

TEST_CASE("collective table: peers with most make room when a disconnected one has little") {
    std::set<coll::SessionKey> gone;
    Table known(12345, [&](const coll::SessionKey& one) { return !gone.contains(one); });
    Crowd small{known, {8, 8}};
    REQUIRE(small.add(moment_at(1s)));
    std::vector<Crowd> crowds;
    for (std::uint64_t i = 1; i <= 4; ++i) {
        crowds.push_back({known, {i, i}});
        const std::size_t count = Crowd::share - (i == 4);
        for (std::size_t added = 0; added < count; ++added) {
            REQUIRE(crowds.back().add(moment_at(2s)));
        }
    }
    REQUIRE(known.collectives() + known.origins() == Table::entries_max);
    gone = {{8, 8}};
    Crowd honest{known, {9, 9}};
    for (int i = 0; i < 100; ++i) REQUIRE(honest.add(moment_at(5s)));
}

// Whichever entries are erased for lack of room, no number begins a second time.
TEST_CASE("collective table: erased collectives began no later than the floor") {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        INFO("seed " << seed);
        base::SeededRandom random(seed);
        Table known(12345);
        std::map<std::uint64_t, TimePoint> begun;  // By origin.
        for (std::uint64_t step = 0; step < 3 * Table::entries_max; ++step) {
            const TimePoint now = moment_at(1s + Duration(step * 100us));
            const coll::SessionKey peer{1 + random.next() % 16 * (random.next() % 16), 1};
            const CollectiveKey id{step, 0};
            if (known.lookup(id, 0, now, peer) != Lookup::fresh) continue;
            auto collective = std::make_shared<StoredCollective>();
            collective->client = peer;
            collective->keep_until = now + 100s;
            known.add(id, 0, now, collective);
            if (random.next() % 8 != 0) known.finish(*collective);
            begun[step] = now;
            const std::uint64_t before = random.next() % (step + 1);
            const auto known_before = begun.find(before);
            if (known_before == begun.end()) continue;
            const Lookup place = known.lookup({before, 0}, 0, now, peer);
            const bool may_begin =
                place != Lookup::known && known_before->second > known.floor(before);
            REQUIRE_FALSE(may_begin);
        }
        CHECK(known.collectives() + known.origins() <= Table::entries_max + 1);
        CHECK(known.floor(0) > moment_at(1s));
    }
}

TEST_CASE("collective table: the replies of a client and of a peer take a share of all") {
    Table known(12345);
    const auto kept = [&](std::uint64_t origin, coll::ClientKey client, std::size_t bytes) {
        auto collective = std::make_shared<StoredCollective>();
        collective->client = client;
        REQUIRE(known.lookup({origin, 0}, 0, moment_at(1s), client.peer) == Lookup::fresh);
        known.add({origin, 0}, 0, moment_at(1s), collective);
        collective->subtree_reply.resize(bytes);
        known.finish(*collective);
        return !collective->subtree_reply.empty();
    };
    constexpr std::size_t fourth = Table::reply_bytes_max / Table::share;
    CHECK(kept(1, {{1, 1}, 1}, fourth - 10));
    CHECK_FALSE(kept(2, {{1, 1}, 1}, 11));
    CHECK(kept(3, {{1, 1}, 1}, 10));
    CHECK(kept(4, {{1, 1}, 2}, fourth));
    CHECK_FALSE(kept(5, {{1, 1}, 3}, 1));
    CHECK(kept(6, {{2, 2}, 1}, fourth));
    CHECK(known.reply_bytes() == 3 * fourth);
}
