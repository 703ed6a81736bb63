// What a part says that it holds is what it has allocated.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "alloc/counting_new.h"
#include "coll/part.h"
#include "support/catch.h"

using namespace weft;
using namespace weft::coll;

namespace {

// Nobody is there: the test answers.
struct Nobody final : Part::Port {
    void ask(Part&, const Part::Ask&) override {}
    void give_up(Part&, const Part::Ask&, bool) override {}
    void run(Part&) override {}
    void stop_running(Part&) override {}
    void reply_to(Part&, std::uint32_t, Answer::Kind) override {}
    void refresh(Part&, std::uint32_t, std::uint64_t) override {}
    void tell(Part&) override {}
    void done(Part&) override {}
};

std::shared_ptr<const Plan> plan_of(std::uint32_t n, Reduction reduction = {}) {
    std::vector<Member> members;
    for (std::uint32_t rank = 0; rank < n; ++rank) {
        members.push_back({rank, {"sim://" + std::to_string(rank)}});
    }
    const GroupView view = GroupView::make("test", 1, std::move(members)).value();
    auto plan = std::make_shared<Plan>();
    plan->roster = std::make_shared<Roster>(Roster::Parts{view, {}, 0, false});
    plan->merge.reduction = reduction;
    return plan;
}

Answer answer_of(Interval of) {
    Answer answer;
    answer.ok = {of};
    return answer;
}

// A part of the first `n` ranks, and what it has allocated since it was made.
struct Case {
    explicit Case(std::uint32_t n, Reduction reduction = {}) : plan(plan_of(n, reduction)) {
        before = test::live_bytes();
        part = std::make_unique<Part>(nobody, plan, Identity{1, 1}, Part::Role{{0, n}});
    }
    // Noted only, for the test framework allocates, too.
    void weigh() {
        const std::int64_t held = test::live_bytes() - before;
        const auto said = static_cast<std::int64_t>(part->state_bytes());
        off_by = std::max(off_by, std::abs(held - said));
    }

    Nobody nobody;
    std::shared_ptr<const Plan> plan;
    std::int64_t before = 0;
    std::int64_t off_by = 0;  // At most.
    std::unique_ptr<Part> part;
};

constexpr TimePoint now{};

}  // namespace

TEST_CASE("what a part says that it holds is what it has allocated, at each step") {
    if (!test::allocations_count()) return;
    for (const std::uint32_t n : {1u, 2u, 7u, 100u, 5000u}) {
        const std::vector<Interval> children = split({1, n}, Tree{});
        Case one(n);
        one.weigh();
        one.part->asked(1, 1, now + 1s);
        one.weigh();
        one.part->begin(now);
        one.weigh();
        // Every other child first, so that what is known has gaps.
        for (const std::size_t parity : {std::size_t{0}, std::size_t{1}}) {
            for (std::size_t i = parity; i < children.size(); i += 2) {
                one.part->answered(static_cast<std::uint32_t>(i + 1), answer_of(children[i]), now);
                one.weigh();
            }
        }
        one.part->asked(2, 1, now + 1s);
        one.part->asked(3, 1, now + 1s);
        one.weigh();
        one.part->ran({}, {});
        one.weigh();
        INFO(n << " ranks");
        CHECK(one.off_by == 0);
        CHECK(one.part->is_over());
    }
}

TEST_CASE("replies and merged values are among what a part says that it holds") {
    if (!test::allocations_count()) return;
    const std::vector<std::byte> reply(1000);
    Case list(100);
    list.part->begin(now);
    list.part->ran({}, reply);
    list.weigh();
    CHECK(list.off_by == 0);
    CHECK(list.part->state_bytes() > 1000);

    Case sum(100, {Reduction::Operation::sum, Reduction::Number::u64, true});
    sum.part->begin(now);
    sum.part->ran({}, reply);
    sum.weigh();
    {
        Answer answer = answer_of(split({1, 100}, sum.plan->tree).front());
        answer.has_value = true;
        answer.value = reply;
        sum.part->answered(1, std::move(answer), now);
    }
    sum.weigh();
    CHECK(sum.off_by == 0);
    CHECK(sum.part->state_bytes() > 2000);
}
