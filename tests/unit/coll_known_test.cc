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
        known.finish(*part);
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
        known.finish(*part);
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
    // Their origins are remembered a little longer.
    CHECK(known.origins() == KnownParts::most / 2);
    for (std::uint64_t i = 0; i < KnownParts::most / 2; ++i) {
        REQUIRE(known.look({KnownParts::most + i, 0}, 0, moment_at(200s)) == Place::fresh);
        known.add({KnownParts::most + i, 0}, 0, moment_at(200s), std::make_shared<Part>());
    }
    CHECK(known.origins() == KnownParts::most / 2);  // Of the others none is left.
}
