// What a rank remembers of collectives, by a model of it: none begins twice, and what is over is
// forgotten.
#include <set>

#include "base/random.h"
#include "coll/known.h"
#include "support/catch.h"

using namespace weft;
using coll::Identity;

namespace {

struct Part {
    bool running = true;
    TimePoint keep_until{};
    TimePoint known_since{};
    coll::AskerId brought_by;
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

TEST_CASE("known collectives: any number is forgotten in time, but for one without an end") {
    KnownParts known(12345);
    const Identity last{1, UINT64_MAX}, endless{2, 7};
    for (const Identity id : {last, endless}) {
        REQUIRE(known.look(id, 0, moment_at(1s)) == Place::fresh);
        auto part = std::make_shared<Part>();
        known.add(id, 0, moment_at(1s), part);
        part->keep_until = id.origin == 1 ? moment_at(50s) : never;
        part->answer.resize(90);
        part->own_answer.resize(10);
        known.finish(*part, moment_at(1s));
    }
    CHECK(known.answer_bytes() == 200);
    known.sweep(moment_at(51s));
    CHECK(known.parts() == 1);
    CHECK(known.answer_bytes() == 100);
    // Its origin is heard of, so it may still ask again.
    CHECK(known.look({2, 8}, 0, moment_at(500s)) == Place::fresh);
    known.sweep(moment_at(1000s));
    CHECK(known.look(endless, 0, moment_at(1000s)) == Place::known);
    known.sweep(moment_at(100000s));
    CHECK(known.look(endless, 0, moment_at(100000s)) == Place::known);
    CHECK(known.look(endless, 8, moment_at(100000s)) == Place::over);
    CHECK(known.answer_bytes() == 0);
}

TEST_CASE(
    "known collectives: one without an end is forgotten with its origin when others need it") {
    const bool by_answers = GENERATE(true, false);
    KnownParts known(12345);
    const auto add = [&](Identity id, TimePoint now) {
        REQUIRE(known.look(id, 0, now) == Place::fresh);
        auto part = std::make_shared<Part>();
        known.add(id, 0, now, part);
        part->keep_until = never;
        if (by_answers) part->answer.resize(KnownParts::answer_bytes_most / 8);
        known.finish(*part, now);
    };
    const Identity first{1, 0};
    add(first, moment_at(1s));
    for (std::uint64_t i = 0; i < (by_answers ? 2 : KnownParts::most / 2 - 4); ++i) {
        add({2, i}, moment_at(500s));
    }
    known.sweep(moment_at(700s));
    CHECK(known.look(first, 0, moment_at(1s)) == Place::known);
    add({2, KnownParts::most}, moment_at(700s));
    known.sweep(moment_at(700s));
    CHECK(known.look({2, 0}, 0, moment_at(700s)) == Place::known);  // Heard of a while ago.
    CHECK(known.look(first, 0, moment_at(700s)) == Place::fresh);
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
        known.finish(*part, moment_at(1s));
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
    TimePoint keep_until = never;

    bool add(TimePoint now, bool is_over = true) {
        const Identity id{next++, 0};
        if (known.look(id, 0, now, asker) != Place::fresh) return false;
        auto part = std::make_shared<Part>();
        part->brought_by = asker;
        part->keep_until = keep_until;
        known.add(id, 0, now, part);
        if (is_over) known.finish(*part, now);
        return true;
    }
    std::size_t fill(TimePoint now, bool is_over = true) {
        std::size_t added = 0;
        while (add(now, is_over)) ++added;
        return added;
    }
};

}  // namespace

TEST_CASE("known collectives: one asker has a share, and the others are remembered beside it") {
    KnownParts known(12345);
    const bool is_over = GENERATE(true, false);
    Crowd crowd{known, {1, 1}};
    CHECK(crowd.fill(moment_at(1s), is_over) == KnownParts::most / KnownParts::share / 2);
    Crowd honest{known, {2, 2}};
    CHECK(honest.add(moment_at(2s)));
    CHECK(known.floor() < moment_at(1s));
}

TEST_CASE("known collectives: an asker with a full share gets room when what it had has expired") {
    KnownParts known(12345);
    Crowd crowd{known, {1, 1}};
    crowd.keep_until = moment_at(50s);
    const std::size_t share = crowd.fill(moment_at(1s));
    CHECK(share == KnownParts::most / KnownParts::share / 2);
    CHECK_FALSE(crowd.add(moment_at(49s)));
    crowd.keep_until = moment_at(1000s);
    CHECK(crowd.fill(moment_at(500s)) == share);
    CHECK(known.floor() < moment_at(1s));  // No other room was needed.
}

TEST_CASE("known collectives: expired collectives keep no place of others when all are taken") {
    KnownParts known(12345);
    std::vector<Crowd> crowds;
    for (std::uint64_t i = 1; i <= 4; ++i) {
        crowds.push_back({known, {i, i}});
        crowds.back().keep_until = moment_at(i == 1 ? 50s : 1000s);
        crowds.back().fill(moment_at(Duration(i * 1s)));
    }
    REQUIRE(known.parts() + known.origins() >= KnownParts::most - 8);
    Crowd honest{known, {9, 9}};
    CHECK(honest.fill(moment_at(500s)) == KnownParts::most / KnownParts::share / 2);
    CHECK(known.floor() < moment_at(1s));
    CHECK(known.look({std::uint64_t{2} << 32, 0}, 0, moment_at(500s)) == Place::known);
}

TEST_CASE("known collectives: expired answers keep no room of an asker's later ones") {
    KnownParts known(12345);
    constexpr std::size_t fourth = KnownParts::answer_bytes_most / KnownParts::share;
    const auto kept = [&](std::uint64_t origin, TimePoint now, TimePoint until) {
        auto part = std::make_shared<Part>();
        part->brought_by = {1, 1};
        part->keep_until = until;
        REQUIRE(known.look({origin, 0}, 0, now, {1, 1}) == Place::fresh);
        known.add({origin, 0}, 0, now, part);
        part->answer.resize(fourth);
        known.finish(*part, now);
        return !part->answer.empty();
    };
    CHECK(kept(1, moment_at(1s), moment_at(50s)));
    CHECK_FALSE(kept(2, moment_at(49s), moment_at(100s)));
    CHECK(kept(3, moment_at(300s), moment_at(1000s)));
    CHECK(known.answer_bytes() == fourth);
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
        CHECK(known.floor() == moment_at(3s));
        CHECK(known.look({std::uint64_t{3} << 32, 0}, 0, moment_at(5s)) == Place::fresh);
        CHECK(known.look({std::uint64_t{4} << 32, 0}, 0, moment_at(5s)) == Place::known);
        CHECK(known.look({std::uint64_t{1} << 32, 0}, 0, moment_at(5s)) == Place::known);
    }
    SECTION("and if none has gone, one of those with most") {
        CHECK(honest.add(moment_at(5s)));
        CHECK(known.floor() >= moment_at(1s));
        CHECK(known.floor() <= moment_at(4s));
    }
    SECTION("but none makes room for itself") {
        for (Crowd& crowd : crowds) CHECK_FALSE(crowd.add(moment_at(5s)));
        CHECK(known.floor() < moment_at(1s));
    }
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
            if (random.next() % 8 != 0) known.finish(*part, now);
            begun[step] = now;
            const std::uint64_t before = random.next() % (step + 1);
            const auto known_before = begun.find(before);
            if (known_before == begun.end()) continue;
            const Place place = known.look({before, 0}, 0, now, asker);
            const bool may_begin = place != Place::known && known_before->second > known.floor();
            REQUIRE_FALSE(may_begin);
        }
        CHECK(known.parts() + known.origins() <= KnownParts::most + 1);
        CHECK(known.floor() > moment_at(1s));
    }
}

TEST_CASE("known collectives: the answers of one asker take a share of what all may take") {
    KnownParts known(12345);
    const auto kept = [&](std::uint64_t origin, coll::AskerId asker, std::size_t bytes) {
        auto part = std::make_shared<Part>();
        part->brought_by = asker;
        part->keep_until = moment_at(50s);
        REQUIRE(known.look({origin, 0}, 0, moment_at(1s), asker) == Place::fresh);
        known.add({origin, 0}, 0, moment_at(1s), part);
        part->answer.resize(bytes);
        known.finish(*part, moment_at(1s));
        return !part->answer.empty();
    };
    constexpr std::size_t fourth = KnownParts::answer_bytes_most / KnownParts::share;
    CHECK(kept(1, {1, 1}, fourth - 10));
    CHECK_FALSE(kept(2, {1, 1}, 11));
    CHECK(kept(3, {1, 1}, 10));
    CHECK(kept(4, {2, 2}, fourth));
}
