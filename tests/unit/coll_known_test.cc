// What a rank remembers of collectives, by a model of it: none begins twice, and what is over is
// forgotten.
#include <set>

#include "base/random.h"
#include "coll/known.h"
#include "support/catch.h"

using namespace weft;
using coll::Identity;

namespace {

// Counts how often it was looked at.
struct Running {
    bool is = true;
    static inline std::size_t looks = 0;

    operator bool() const { return ++looks, is; }  // NOLINT(google-explicit-constructor)
    Running& operator=(bool now) { return is = now, *this; }
};

struct Part {
    Running running;
    bool waits = false;
    TimePoint keep_until{};
    TimePoint known_since{};
    coll::Client brought_by;
    std::vector<std::byte> answer;
    std::vector<std::byte> own_answer;
};
using KnownParts = coll::Known<Part>;
using Place = KnownParts::Place;

TimePoint moment_at(Duration since) { return TimePoint(since); }

}  // namespace

TEST_CASE("known collectives: one that began is known, and over when its origin says so") {
    KnownParts known(12345);
    const Identity id{7, 5};
    CHECK(known.look(id, 5, moment_at(1s)) == Place::fresh);
    const auto part = std::make_shared<Part>();
    known.add(id, 5, moment_at(1s), part);
    CHECK(known.look(id, 5, moment_at(1s)) == Place::known);
    CHECK(known.find(id) == part);
    CHECK(known.look({8, 5}, 5, moment_at(1s)) == Place::fresh);
    // It is settled, and still runs here: it is not forgotten.
    CHECK(known.look({7, 6}, 6, moment_at(1s)) == Place::fresh);
    CHECK(known.look(id, 5, moment_at(1s)) == Place::known);
    part->running = false;
    CHECK(known.look(id, 5, moment_at(1s)) == Place::over);
    CHECK(known.parts() == 0);
    // Whoever comes late with an older word is told the same.
    CHECK(known.look({7, 4}, 0, moment_at(1s)) == Place::over);
    CHECK(known.look({7, 6}, 0, moment_at(1s)) == Place::fresh);
}

TEST_CASE("known collectives: a request does not walk over what still runs in front of it") {
    KnownParts known(12345);
    constexpr std::uint64_t count = 4096;
    const auto begin = [&](std::uint64_t sequence) {
        REQUIRE(known.look({1, sequence}, sequence, moment_at(1s)) == Place::fresh);
        known.add({1, sequence}, sequence, moment_at(1s), std::make_shared<Part>());
    };
    Running::looks = 0;
    for (std::uint64_t sequence = 0; sequence < count; ++sequence) begin(sequence);
    CHECK(Running::looks <= 4 * count);
    // Each goes when it ends, for its origin has settled it.
    for (std::uint64_t sequence = 0; sequence + 1 < count; ++sequence) {
        const Identity id{1, sequence};
        known.finish(*known.find(id));
        REQUIRE(known.is_settled(id));
        known.drop(id);
    }
    CHECK(known.parts() == 1);
    CHECK(known.look({1, 7}, 0, moment_at(1s)) == Place::over);
}

TEST_CASE("known collectives: any order of words begins each at most once") {
    for (std::uint64_t seed = 1; seed <= 50; ++seed) {
        INFO("seed " << seed);
        base::SeededRandom random(seed);
        KnownParts known(12345);
        std::set<std::uint64_t> begun;
        std::map<std::uint64_t, std::shared_ptr<Part>> running;
        for (int word = 0; word < 400; ++word) {
            const std::uint64_t sequence = random.next() % 64;
            const std::uint64_t settled = random.next() % (sequence + 1) * (random.next() % 8 == 0);
            const Identity id{1, sequence};
            if (known.look(id, settled, moment_at(1s)) == Place::fresh) {
                REQUIRE(begun.insert(sequence).second);
                running[sequence] = std::make_shared<Part>();
                known.add(id, settled, moment_at(1s), running[sequence]);
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

TEST_CASE("known collectives: any number is forgotten in time, and its answers with it") {
    KnownParts known(12345);
    const Identity last{1, UINT64_MAX}, next{2, 7};
    for (const Identity id : {last, next}) {
        REQUIRE(known.look(id, 0, moment_at(1s)) == Place::fresh);
        auto part = std::make_shared<Part>();
        part->keep_until = moment_at(id.origin == 1 ? 50s : 620s);
        known.add(id, 0, moment_at(1s), part);
        part->answer.resize(90);
        part->own_answer.resize(10);
        known.finish(*part);
    }
    CHECK(known.answer_bytes() == 200);
    known.sweep(moment_at(51s));
    CHECK(known.parts() == 1);
    CHECK(known.answer_bytes() == 100);
    CHECK(known.look(next, 0, moment_at(500s)) == Place::known);
    CHECK(known.look(next, 8, moment_at(500s)) == Place::over);
    CHECK(known.answer_bytes() == 0);
    known.sweep(moment_at(620s));
    CHECK(known.origins() == 0);
}

TEST_CASE("known collectives: answers take no more than they may") {
    KnownParts known(12345);
    std::uint64_t kept = 0;
    for (std::uint64_t i = 0; i < 10; ++i) {
        auto part = std::make_shared<Part>();
        REQUIRE(known.look({1, i}, 0, moment_at(1s)) == Place::fresh);
        known.add({1, i}, 0, moment_at(1s), part);
        part->keep_until = moment_at(50s);
        part->answer.resize(KnownParts::answer_bytes_most / 4);
        if (i == 4) part->own_answer.resize(1);
        known.finish(*part);
        kept += !part->answer.empty();
        CHECK(part->answer.empty() == (i >= 4));
        CHECK(part->own_answer.empty());
        CHECK_FALSE(part->running);
    }
    CHECK(kept == 4);
    known.drop({1, 0});
    known.drop({1, 0});  // Gone already.
    CHECK(known.parts() == 9);
    CHECK(known.answer_bytes() == KnownParts::answer_bytes_most / 4 * 3);
    CHECK(known.look({1, 10}, 10, moment_at(2s)) == Place::fresh);  // All are settled.
    CHECK(known.parts() == 0);
    CHECK(known.answer_bytes() == 0);
}

TEST_CASE("known collectives: origins that a peer chose do not meet in one place") {
    KnownParts known(987654321);
    for (std::uint64_t i = 0; i < 20000; ++i) {
        const Identity id{i << 32, 0};
        REQUIRE(known.look(id, 0, moment_at(1s)) == Place::fresh);
        known.add(id, 0, moment_at(1s), std::make_shared<Part>());
    }
    CHECK(known.parts() == 20000);  // In a moment: with the numbers for hashes it takes seconds.
}

TEST_CASE("known collectives: what nobody settles is forgotten in time, and is bounded") {
    KnownParts known(12345);
    for (std::uint64_t i = 0; i < KnownParts::most / 2; ++i) {
        REQUIRE(known.look({i, 0}, 0, moment_at(1s)) == Place::fresh);
        auto part = std::make_shared<Part>();
        part->running = false;
        part->keep_until = moment_at(50s);
        known.add({i, 0}, 0, moment_at(1s), part);
    }
    CHECK(known.parts() + known.origins() == KnownParts::most);
    CHECK(known.look({KnownParts::most, 0}, 0, moment_at(2s)) == Place::full);
    CHECK(known.look({0, 0}, 0, moment_at(2s)) == Place::known);
    CHECK(known.look({KnownParts::most, 0}, 0, moment_at(51s)) == Place::fresh);
    CHECK(known.parts() == 0);
    CHECK(known.origins() == 0);
    for (std::uint64_t i = 0; i < KnownParts::most / 2; ++i) {
        REQUIRE(known.look({KnownParts::most + i, 0}, 0, moment_at(200s)) == Place::fresh);
        known.add({KnownParts::most + i, 0}, 0, moment_at(200s), std::make_shared<Part>());
    }
    CHECK(known.origins() == KnownParts::most / 2);  // Of the others none is left.
}

TEST_CASE("known collectives: what an origin has settled is over until none of it may begin") {
    KnownParts known(12345);
    for (std::uint64_t i = 0; i < 3; ++i) {
        REQUIRE(known.look({1, i}, i, moment_at(1s)) == Place::fresh);
        auto part = std::make_shared<Part>();
        part->running = false;
        part->keep_until = moment_at(i == 0 ? 500s : 50s);
        known.add({1, i}, i, moment_at(1s), part);
    }
    known.sweep(moment_at(400s));
    CHECK(known.parts() == 0);
    CHECK(known.look({1, 0}, 0, moment_at(400s)) == Place::over);
    known.sweep(moment_at(500s));
    CHECK(known.origins() == 0);
}

namespace {

// Each of an origin of its own, over at once.
struct Crowd {
    KnownParts& known;
    coll::AskerId asker;
    std::uint64_t next = asker.first << 32;

    bool add(TimePoint now, bool is_over = true, std::uint16_t client = 0) {
        const Identity id{next++, 0};
        if (known.look(id, 0, now, asker) != Place::fresh) return false;
        auto part = std::make_shared<Part>();
        part->brought_by = {asker, client};
        part->keep_until = now + 100s;
        known.add(id, 0, now, part);
        if (is_over) known.finish(*part);
        parts.push_back(std::move(part));
        return true;
    }
    // Up to its share.
    std::size_t fill(TimePoint now, bool is_over = true, std::uint16_t client = 0) {
        for (std::size_t added = 0;; ++added) {
            if (added == share || !add(now, is_over, client)) return added;
        }
    }

    static constexpr std::size_t share = KnownParts::most / KnownParts::share / 2;
    std::vector<std::shared_ptr<Part>> parts{};
};

}  // namespace

TEST_CASE("known collectives: a peer whose share is full loses its own oldest, and others none") {
    KnownParts known(12345);
    Crowd honest{known, {2, 2}};
    CHECK(honest.add(moment_at(500ms)));
    Crowd crowd{known, {1, 1}};
    CHECK(crowd.fill(moment_at(1s)) == Crowd::share);
    CHECK(crowd.add(moment_at(2s)));
    CHECK(known.parts() < Crowd::share);
    // What it lost does not begin again, by any peer; what it did not lose is known.
    CHECK(known.floor(std::uint64_t{1} << 32) == moment_at(1s));
    CHECK(known.look({crowd.next - 1, 0}, 0, moment_at(2s)) == Place::known);
    CHECK(known.look({honest.next - 1, 0}, 0, moment_at(2s)) == Place::known);
    // Without end.
    for (std::size_t i = 0; i < 3 * KnownParts::most; ++i) {
        REQUIRE(crowd.add(moment_at(2s + Duration(i * 1us))));
        REQUIRE(known.parts() + known.origins() <= 2 * Crowd::share + 2);
    }
}

TEST_CASE("known collectives: a peer's share is refused when all of it runs, and is others' none") {
    KnownParts known(12345);
    Crowd crowd{known, {1, 1}};
    CHECK(crowd.fill(moment_at(1s), false) == Crowd::share);
    CHECK_FALSE(crowd.add(moment_at(2s)));
    Crowd honest{known, {2, 2}};
    CHECK(honest.add(moment_at(2s)));
    CHECK(known.floor(crowd.next) < moment_at(1s));
}

TEST_CASE("known collectives: the client with most gives room to others of the same peer") {
    KnownParts known(12345);
    Crowd crowd{known, {1, 1}};
    CHECK(crowd.add(moment_at(500ms), true, 7));
    for (std::size_t i = 1; i < Crowd::share; ++i) REQUIRE(crowd.add(moment_at(1s), true, 5));
    CHECK(crowd.add(moment_at(2s), true, 7));
    CHECK(known.look({std::uint64_t{1} << 32, 0}, 0, moment_at(2s)) == Place::known);
    CHECK(known.parts() == 2);
}

TEST_CASE("known collectives: what only waits for other ranks is given up when nothing is over") {
    std::size_t given_up = 0;
    KnownParts* table = nullptr;
    KnownParts known(12345, {}, [&](Part& part) {
        ++given_up;
        table->finish(part);
    });
    table = &known;
    Crowd crowd{known, {1, 1}};
    for (std::size_t i = 0; i < Crowd::share; ++i) {
        REQUIRE(crowd.add(moment_at(1s + Duration(i * 1us)), false, 5));
        crowd.parts.back()->waits = true;
    }
    CHECK(crowd.add(moment_at(2s), false, 7));
    CHECK(given_up == Crowd::share / 2 + 1);
    CHECK_FALSE(crowd.parts.front()->running);
    CHECK(crowd.parts[Crowd::share - 1]->running);
    CHECK(known.floor(std::uint64_t{1} << 32) >= moment_at(1s));
}

TEST_CASE("known collectives: when all places are taken the peers with most lose what is over") {
    std::set<coll::AskerId> gone;
    KnownParts known(12345, [&](const coll::AskerId& one) { return !gone.contains(one); });
    std::vector<Crowd> crowds;
    for (std::uint64_t i = 1; i <= 4; ++i) {
        crowds.push_back({known, {i, i}});
        crowds.back().fill(moment_at(Duration(i * 1s)));
    }
    Crowd honest{known, {9, 9}};
    SECTION("one that has gone first, and its oldest") {
        gone = {{3, 3}};
        CHECK(honest.add(moment_at(5s)));
        CHECK(known.floor(std::uint64_t{3} << 32) == moment_at(3s));
        CHECK(known.look({std::uint64_t{3} << 32, 0}, 0, moment_at(5s)) == Place::fresh);
        CHECK(known.look({std::uint64_t{4} << 32, 0}, 0, moment_at(5s)) == Place::known);
        CHECK(known.look({std::uint64_t{1} << 32, 0}, 0, moment_at(5s)) == Place::known);
    }
    SECTION("and if none has gone, one of those with most") {
        CHECK(honest.add(moment_at(5s)));
        CHECK(known.parts() == 3 * Crowd::share + 1);
    }
}

TEST_CASE("known collectives: what waits for a peer that has gone gives way when all is taken") {
    std::set<coll::AskerId> gone;
    std::size_t given_up = 0;
    KnownParts* table = nullptr;
    const auto give_up = [&](Part& part) {
        ++given_up;
        table->finish(part);
    };
    KnownParts known(
        12345, [&](const coll::AskerId& one) { return !gone.contains(one); }, give_up);
    table = &known;
    std::vector<Crowd> crowds;
    for (std::uint64_t i = 1; i <= 4; ++i) {
        crowds.push_back({known, {i, i}});
        REQUIRE(crowds.back().fill(moment_at(Duration(i * 1s)), false) == Crowd::share);
        for (const auto& part : crowds.back().parts) part->waits = true;
    }
    Crowd honest{known, {9, 9}};
    SECTION("and of peers that are here none does") {
        CHECK_FALSE(honest.add(moment_at(5s)));
        CHECK(given_up == 0);
    }
    SECTION("only of that one") {
        gone = {{3, 3}};
        for (int i = 0; i < 100; ++i) REQUIRE(honest.add(moment_at(5s)));
        CHECK(given_up == Crowd::share);  // All began at one moment.
        CHECK_FALSE(crowds[2].parts.front()->running);
        CHECK(crowds[0].parts.front()->running);
        CHECK(known.floor(std::uint64_t{3} << 32) == moment_at(3s));
    }
}

TEST_CASE("known collectives: peers with most make room when one that has gone has little") {
    std::set<coll::AskerId> gone;
    KnownParts known(12345, [&](const coll::AskerId& one) { return !gone.contains(one); });
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
    REQUIRE(known.parts() + known.origins() == KnownParts::most);
    gone = {{8, 8}};
    Crowd honest{known, {9, 9}};
    for (int i = 0; i < 100; ++i) REQUIRE(honest.add(moment_at(5s)));
}

// Whatever is forgotten for want of room, no number begins a second time.
TEST_CASE("known collectives: what was forgotten began no later than the floor") {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        INFO("seed " << seed);
        base::SeededRandom random(seed);
        KnownParts known(12345);
        std::map<std::uint64_t, TimePoint> begun;  // By origin.
        for (std::uint64_t step = 0; step < 3 * KnownParts::most; ++step) {
            const TimePoint now = moment_at(1s + Duration(step * 100us));
            const coll::AskerId asker{1 + random.next() % 16 * (random.next() % 16), 1};
            const Identity id{step, 0};
            if (known.look(id, 0, now, asker) != Place::fresh) continue;
            auto part = std::make_shared<Part>();
            part->brought_by = asker;
            part->keep_until = now + 100s;
            known.add(id, 0, now, part);
            if (random.next() % 8 != 0) known.finish(*part);
            begun[step] = now;
            const std::uint64_t before = random.next() % (step + 1);
            const auto known_before = begun.find(before);
            if (known_before == begun.end()) continue;
            const Place place = known.look({before, 0}, 0, now, asker);
            const bool may_begin =
                place != Place::known && known_before->second > known.floor(before);
            REQUIRE_FALSE(may_begin);
        }
        CHECK(known.parts() + known.origins() <= KnownParts::most + 1);
        CHECK(known.floor(0) > moment_at(1s));
    }
}

TEST_CASE("known collectives: the answers of one client and of one peer take a share of all") {
    KnownParts known(12345);
    const auto kept = [&](std::uint64_t origin, coll::Client client, std::size_t bytes) {
        auto part = std::make_shared<Part>();
        part->brought_by = client;
        REQUIRE(known.look({origin, 0}, 0, moment_at(1s), client.peer) == Place::fresh);
        known.add({origin, 0}, 0, moment_at(1s), part);
        part->answer.resize(bytes);
        known.finish(*part);
        return !part->answer.empty();
    };
    constexpr std::size_t fourth = KnownParts::answer_bytes_most / KnownParts::share;
    CHECK(kept(1, {{1, 1}, 1}, fourth - 10));
    CHECK_FALSE(kept(2, {{1, 1}, 1}, 11));
    CHECK(kept(3, {{1, 1}, 1}, 10));
    CHECK(kept(4, {{1, 1}, 2}, fourth));
    CHECK_FALSE(kept(5, {{1, 1}, 3}, 1));
    CHECK(kept(6, {{2, 2}, 1}, fourth));
    CHECK(known.answer_bytes() == 3 * fourth);
}
