// state_bytes() of a collective's state equals its allocations.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "alloc/counting_new.h"
#include "coll/collective_state.h"
#include "coll/ready.h"
#include "support/catch.h"

using namespace weft;
using namespace weft::coll;

namespace {

std::shared_ptr<const Plan> plan_of(std::uint32_t n, Reduction reduction, const Tree& tree) {
    std::vector<Member> members;
    for (std::uint32_t rank = 0; rank < n; ++rank) {
        members.push_back({rank, {"sim://" + std::to_string(rank)}});
    }
    const GroupView view = GroupView::make("test", 1, std::move(members)).value();
    auto plan = std::make_shared<Plan>();
    plan->rank_order = std::make_shared<RankOrder>(RankOrder::Params{view, {}, 0, false});
    plan->merge.reduction = reduction;
    plan->tree = tree;
    return plan;
}

SubtreeReply reply_of(Interval of) {
    SubtreeReply answer;
    answer.ok = {of};
    return answer;
}

// The state of a collective of the first `n` ranks, and its allocations since it was made.
struct Case {
    explicit Case(std::uint32_t n, Reduction reduction = {}, const Tree& tree = {})
        : plan(plan_of(n, reduction, tree)) {
        before = test::live_bytes();
        state = std::make_unique<CollectiveState>(plan, CollectiveKey{1, 1},
                                                  CollectiveState::Role{{0, n}});
    }
    // No other rank exists: the test replies, and nothing else is carried out.
    template <class Input, class... Args>
    void step(Input input, Args... args) {
        Ready ready;
        ((*state).*input)(std::move(args)..., ready);
    }
    // Records only, because the test framework allocates, too.
    void weigh() {
        const std::int64_t held = test::live_bytes() - before;
        const auto said = static_cast<std::int64_t>(state->state_bytes());
        off_by = std::max(off_by, std::abs(held - said));
    }

    std::shared_ptr<const Plan> plan;
    std::int64_t before = 0;
    std::int64_t off_by = 0;  // The largest difference.
    std::unique_ptr<CollectiveState> state;
};

constexpr TimePoint now{};

}  // namespace

TEST_CASE("the memory that a collective state reports is what it has allocated, at each step") {
    if (!test::allocations_count()) return;
    for (const std::uint32_t n : {1u, 2u, 7u, 100u, 5000u}) {
        const std::vector<Interval> children = split({1, n}, Tree{});
        Case one(n);
        one.weigh();
        one.state->on_request(1, 1, now + 1s);
        one.weigh();
        one.step(&CollectiveState::begin, now);
        one.weigh();
        // Every other child first, so that the known outcomes have gaps.
        for (const std::size_t parity : {std::size_t{0}, std::size_t{1}}) {
            for (std::size_t i = parity; i < children.size(); i += 2) {
                one.step(&CollectiveState::on_reply, static_cast<std::uint32_t>(i + 1),
                         reply_of(children[i]), now);
                one.weigh();
            }
        }
        one.state->on_request(2, 1, now + 1s);
        one.state->on_request(3, 1, now + 1s);
        one.weigh();
        one.step(&CollectiveState::on_method_done, Status(), ByteView());
        one.weigh();
        INFO(n << " ranks");
        CHECK(one.off_by == 0);
        CHECK(one.state->is_done());
    }
}

TEST_CASE("the memory that a collective state reports includes replies and merged values") {
    if (!test::allocations_count()) return;
    const std::vector<std::byte> reply(1000);
    Case list(100);
    list.step(&CollectiveState::begin, now);
    list.step(&CollectiveState::on_method_done, Status(), ByteView(reply));
    list.weigh();
    CHECK(list.off_by == 0);
    CHECK(list.state->state_bytes() > 1000);

    Case sum(100, {Reduction::Operation::sum, Reduction::Number::u64, true});
    sum.step(&CollectiveState::begin, now);
    sum.step(&CollectiveState::on_method_done, Status(), ByteView(reply));
    sum.weigh();
    {
        SubtreeReply answer = reply_of(split({1, 100}, sum.plan->tree).front());
        answer.has_value = true;
        answer.value = reply;
        sum.step(&CollectiveState::on_reply, 1u, std::move(answer), now);
    }
    sum.weigh();
    CHECK(sum.off_by == 0);
    CHECK(sum.state->state_bytes() > 2000);
}

// Bytes allocated by the tick in which this many children, each above 16 ranks, become suspect.
static std::uint64_t bytes_to_suspect(std::uint8_t children) {
    Case one(1 + children * 17u, {}, {Shape::k_ary, children, 20});
    one.state->on_request(1, 1, never);  // A parent waits.
    one.step(&CollectiveState::begin, now);
    Ready ready;
    const std::uint64_t before = test::allocated_bytes();
    one.state->on_timer(now + 10s, ready);
    const std::uint64_t allocated = test::allocated_bytes() - before;
    REQUIRE(ready.sends.size() == children * 16u);
    return allocated;
}

TEST_CASE("the memory to contact the ranks below silent children grows with their number only") {
    if (!test::allocations_count()) return;
    const std::uint64_t few = bytes_to_suspect(60), many = bytes_to_suspect(240);
    INFO(few << " bytes for 60 children, " << many << " for 240");
    CHECK(few > 0);
    CHECK(many < 7 * few);
}
