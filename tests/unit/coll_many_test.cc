// A part that asks very many: what it does for each of them must not grow with their number.
#include <algorithm>
#include <random>

#include "coll/part.h"
#include "support/catch.h"
#include "support/coll_parts.h"
#include "support/seed.h"

using namespace weft;

namespace weft::coll_many_test {
namespace {

using coll::Ask;
using coll::Asking;
using coll::Part;

// ---- in each state as a plain list of them would say --------------------------------------------

struct Plain {
    std::vector<Ask> asks;

    TimePoint due() const {
        TimePoint at = never;
        for (const Ask& ask : asks) at = std::min(at, coll::due_of(ask));
        return at;
    }
    std::vector<std::uint32_t> due_by(TimePoint now) const {
        std::vector<std::uint32_t> due;
        for (const Ask& ask : asks) {
            if (coll::due_of(ask) <= now) due.push_back(ask.id);
        }
        return due;
    }
    template <class Is>
    std::size_t count(Is is) const {
        return static_cast<std::size_t>(std::count_if(asks.begin(), asks.end(), is));
    }
};

void compare(coll::Asks& asks, const Plain& plain, TimePoint now) {
    const std::size_t n = plain.asks.size();
    REQUIRE(asks.size() == n);
    REQUIRE(asks.due() == plain.due());
    REQUIRE(asks.due_by(now) == plain.due_by(now));
    REQUIRE(asks.all_parked() == (plain.count([](const Ask& ask) { return ask.parked; }) == n));
    REQUIRE(asks.all_quiet() ==
            (plain.count([](const Ask& ask) { return ask.is_silent || ask.has_silent; }) == n));
    REQUIRE(asks.alone() == plain.count([](const Ask& ask) {
        const bool is_slow = ask.is_silent || ask.paused || ask.rounds > 0;
        return ask.asking == Asking::alone && !ask.waits && !is_slow;
    }));
    const auto waits = std::find_if(plain.asks.begin(), plain.asks.end(),
                                    [](const Ask& ask) { return ask.waits; });
    const Ask* const found = asks.first_that_waits();
    REQUIRE((found != nullptr) == (waits != plain.asks.end()));
    if (found) REQUIRE(found->id == waits->id);
    std::vector<std::uint32_t> ids, expected;
    asks.for_each([&](const Ask& ask) { ids.push_back(ask.id); });
    for (const Ask& ask : plain.asks) expected.push_back(ask.id);
    REQUIRE(ids == expected);
}

TEST_CASE("coll many: questions that are found by order say what a plain list of them says") {
    for (std::uint64_t index = 0; index < 30; ++index) {
        const std::uint64_t seed = test::seed_of(index);
        INFO("seed " << seed);
        std::mt19937_64 random(seed);
        const auto below = [&](std::uint64_t end) { return random() % end; };
        coll::Asks asks;
        Plain plain;
        TimePoint now = TimePoint{} + 1h;
        std::uint32_t next = 1;
        const std::uint64_t most = 20 + below(200);
        for (int step = 0; step < 1500; ++step) {
            now += std::chrono::microseconds(below(3000));
            const bool grows = plain.asks.size() < (step / 300 % 2 == 0 ? most : most / 8);
            if (plain.asks.empty() || (grows && below(2) == 0)) {
                Ask made;
                made.of = {next, next + 1 + static_cast<std::uint32_t>(below(1000))};
                made.asking = below(4) == 0 ? Asking::alone : Asking::all;
                made.waits = below(10) == 0;
                Ask& added = asks.add(made);
                REQUIRE(added.id == next++);
                asks.change(added, [&](Ask& ask) { ask.sent_at = now; });
                plain.asks.push_back(added);
            } else if (const std::size_t at = below(plain.asks.size()); grows || below(3) != 0) {
                Ask& ask = *asks.find(plain.asks[at].id);
                asks.change(ask, [&](Ask& changed) {
                    switch (below(5)) {
                        case 0: changed.sent_at = now; break;
                        case 1: changed.paused = !changed.paused; break;
                        case 2: changed.parked = !changed.parked; break;
                        case 3: changed.is_silent = !changed.is_silent; break;
                        case 4:
                            changed.has_silent = !changed.has_silent;
                            ++changed.rounds;
                            break;
                    }
                });
                plain.asks[at] = ask;
            } else {
                const std::uint32_t id = plain.asks[at].id;
                REQUIRE(asks.take(*asks.find(id)).id == id);
                REQUIRE(asks.find(id) == nullptr);
                plain.asks.erase(plain.asks.begin() + static_cast<std::ptrdiff_t>(at));
            }
            compare(asks, plain, now);
        }
        REQUIRE(asks.take_all().size() == plain.asks.size());
        REQUIRE(asks.empty());
        REQUIRE(asks.due() == never);
    }
}

// ---- what a part of very many looks at ----------------------------------------------------------

struct Origin final : Part::Port {
    static constexpr std::uint32_t n = 20'000;

    Origin() {
        static const coll_part::Form flat{"flat", {coll::Shape::flat}};
        Part::Role role;
        role.mine = {0, n};
        role.is_origin = true;
        role.policy = Policy::best_effort;
        role.until = now + 60s;
        part.emplace(*this, coll_part::plan_of(n, flat, coll_part::Merging::list),
                     coll::Identity{1, 1}, role);
        part->begin(now);
        part->ran({}, {});
        REQUIRE(open.size() == n - 1);
        REQUIRE(part->asks() == n - 1);
    }
    void ask(Part&, const Ask& ask) override { open.push_back(ask); }
    void give_up(Part&, const Ask&, bool) override { ++given_up; }
    void run(Part&) override {}
    void stop_running(Part&) override {}
    void reply_to(Part&, std::uint32_t, coll::Answer::Kind) override {}
    void refresh(Part&, std::uint32_t, std::uint64_t) override {}
    void tell(Part&) override {}
    void done(Part&) override { is_done = true; }

    // Of those that it has done for, in all.
    void check_walked(std::uint64_t asked) const {
        INFO(part->asks_walked() << " looked at for " << asked << " questions and answers");
        CHECK(part->asks_walked() <= 20 * asked);
    }

    TimePoint now = TimePoint{} + 1h;
    std::vector<Ask> open;
    std::uint32_t given_up = 0;
    bool is_done = false;
    std::optional<Part> part;
};

coll::Answer answer_of(const Ask& ask, coll::Answer::Kind kind = coll::Answer::Kind::complete) {
    coll::Answer answer;
    answer.kind = kind;
    if (kind == coll::Answer::Kind::complete) answer.ok = {ask.of};
    return answer;
}

TEST_CASE("coll many: an answer of one of very many costs no walk over the others") {
    Origin origin;
    for (std::size_t i = 0; i + 1 < origin.open.size(); ++i) {
        const Ask ask = origin.open[i];
        if (i % 2 == 0) {
            origin.part->failed(ask.id, fail(Code::unavailable, "gone"), origin.now);
        } else {
            origin.part->answered(ask.id, answer_of(ask), origin.now);
        }
        REQUIRE(origin.part->due() != never);
    }
    origin.check_walked(Origin::n);
    REQUIRE_FALSE(origin.is_done);
    origin.part->failed(origin.open.back().id, fail(Code::unavailable, "gone"), origin.now);
    REQUIRE(origin.is_done);
    REQUIRE(origin.given_up == 0);
}

TEST_CASE("coll many: of very many that say so far, each is asked again without a walk") {
    Origin origin;
    std::uint64_t did = Origin::n;
    // At a time of its own each, so that each is due by itself.
    const std::vector<Ask> first = std::exchange(origin.open, {});
    for (const Ask& ask : first) {
        origin.now += 10us;
        origin.part->answered(ask.id, answer_of(ask, coll::Answer::Kind::partial), origin.now);
    }
    did += first.size();
    const TimePoint end = origin.now + 400ms;
    while (origin.part->due() < end) {
        origin.now = origin.part->due();
        origin.part->on_time(origin.now);
        ++did;
        for (const Ask& ask : std::exchange(origin.open, {})) {
            ++did;
            origin.part->answered(ask.id, answer_of(ask, coll::Answer::Kind::partial), origin.now);
        }
    }
    REQUIRE(did > 3 * Origin::n);
    origin.check_walked(did);
    origin.part->stop(fail(Code::cancelled, "enough"));
    REQUIRE(origin.given_up == Origin::n - 1);
    REQUIRE(origin.is_done);
}

}  // namespace
}  // namespace weft::coll_many_test
