// Ranks with replies missing from a merged one: each is requested alone, some at a time.
#include <algorithm>
#include <deque>

#include "base/codec.h"
#include "support/catch.h"
#include "support/stepped_state.h"

using namespace weft;

namespace coll_self_only {

using coll::CollectiveState;
using coll::Interval;
using coll::RequestKind;
using coll::SubtreeReply;

constexpr std::uint32_t many = 5000;

std::vector<std::byte> number(std::uint64_t value) {
    std::vector<std::byte> bytes(sizeof value);
    base::store(bytes.data(), value);
    return bytes;
}

// The origin, outside of the group: its two children report that all ranks succeeded, without a
// value.
struct Origin final : test::SteppedState {
    explicit Origin(std::uint32_t ranks = many, bool merges = true)
        : SteppedState(plan(ranks, merges), role(ranks)), n(ranks) {
        begin(now);
    }
    static std::shared_ptr<const coll::Plan> plan(std::uint32_t n, bool merges) {
        std::vector<Member> members;
        for (std::uint32_t rank = 0; rank < n; ++rank)
            members.push_back({rank, {"tcp://a:" + std::to_string(rank + 1)}});
        const GroupView view = GroupView::make("g", 1, std::move(members)).value();
        auto made = std::make_shared<coll::Plan>();
        made->rank_order =
            std::make_shared<coll::RankOrder>(coll::RankOrder::Params{view, {}, 0, false});
        made->tree = {coll::Shape::k_ary, 2};
        if (merges)
            made->merge.reduction = {Reduction::Operation::sum, Reduction::Number::u64, false};
        return made;
    }
    static CollectiveState::Role role(std::uint32_t n) {
        CollectiveState::Role role;
        role.subtree = {0, n};
        role.is_origin = true;
        role.runs_method = false;
        return role;
    }
    // The reply of ranks that each replied their position.
    static SubtreeReply reply_of(Interval of) {
        std::uint64_t sum = 0;
        for (std::uint32_t at = of.first; at < of.last; ++at) sum += at;
        SubtreeReply reply;
        reply.ok = {of};
        reply.has_value = true;
        reply.value = number(sum);
        return reply;
    }
    std::uint32_t id_of(Interval of) const {
        const auto last =
            std::find_if(all.rbegin(), all.rend(),
                         [&](const coll::ChildRequest& request) { return request.of == of; });
        REQUIRE(last != all.rend());
        return last->id;
    }
    void reply_for(Interval of) { on_reply(id_of(of), reply_of(of), now); }
    // Makes every open request suspect.
    void suspect_all() {
        now += 10s;
        on_timer(now);
    }
    void reply_self_only(const coll::ChildRequest& request) {
        if (request.of.first % 7 == 0) {
            on_failure(request.id, fail(Code::unavailable, "gone"), now);
        } else {
            on_reply(request.id, reply_of(request.of), now);
        }
    }
    // The replies of all children for their subtrees, without a value.
    void reply_without_value() {
        for (const coll::ChildRequest& request : std::exchange(children, {})) {
            SubtreeReply reply;
            reply.ok = {request.of};
            on_reply(request.id, std::move(reply), now);
        }
    }

    void send_request(const coll::ChildRequest& request) override {
        all.push_back(request);
        if (request.kind == RequestKind::all) return children.push_back(request);
        CHECK(request.kind == RequestKind::self_only);
        CHECK(request.of.size() == 1);
        ++requested[request.of.first];
        deepest = std::max(deepest, ++depth);
        if (replies_at_once) reply_self_only(request);
        else open.push_back(request);
        --depth;
    }
    void cancel_request(const coll::Ready::Cancel& cancel) override {
        ++cancelled;
        cancels_sent += cancel.cancel_child;
    }
    void report() override { ++reports; }
    void on_done() override { is_done = true; }
    void check_end() const {
        REQUIRE(is_done);
        CHECK(reports == 1);
        CHECK(
            std::all_of(requested.begin(), requested.end(), [](int times) { return times == 1; }));
        std::uint64_t sum = 0;
        for (std::uint32_t at = 0; at < n; ++at) sum += at % 7 == 0 ? 0 : at;
        CHECK(state().outcomes().value() == number(sum));
        CHECK(state().outcomes().ok_count() == n - (n + 6) / 7);
    }

    const std::uint32_t n;
    TimePoint now = TimePoint{} + 1h;
    bool replies_at_once = false;
    std::vector<coll::ChildRequest> children;
    std::deque<coll::ChildRequest> open;
    std::vector<int> requested = std::vector<int>(n);
    std::vector<coll::ChildRequest> all;
    int depth = 0, deepest = 0, cancelled = 0, cancels_sent = 0, reports = 0;
    bool is_done = false;
};

TEST_CASE("coll self_only: ranks without a merged reply are requested alone, 64 at a time") {
    Origin origin;
    REQUIRE(origin.children.size() == 2);
    origin.reply_without_value();
    while (!origin.open.empty()) {
        REQUIRE(origin.open.size() <= 64);
        CHECK(origin.state().child_requests() <= 64 + 2);
        // In any order.
        const std::size_t which = origin.open.size() / 3;
        const coll::ChildRequest one = origin.open[which];
        origin.open.erase(origin.open.begin() + static_cast<std::ptrdiff_t>(which));
        origin.reply_self_only(one);
    }
    origin.check_end();
}

TEST_CASE("coll self_only: ranks that reply at once are requested in sequence, not recursively") {
    Origin origin;
    origin.replies_at_once = true;
    origin.reply_without_value();
    origin.check_end();
    CHECK(origin.deepest == 1);
}

TEST_CASE("coll self_only: ranks that do not reply block no others") {
    Origin origin;
    origin.reply_without_value();
    REQUIRE(origin.open.size() == 64);
    const TimePoint later = origin.now + 10s;
    origin.on_timer(later);
    CHECK(origin.open.size() == 128);
    CHECK(origin.state().due() > later);
}

TEST_CASE("coll self_only: ranks with slow methods block no others") {
    Origin origin;
    origin.reply_without_value();
    for (int round = 0; round < 2; ++round) {
        for (const coll::ChildRequest& one : std::exchange(origin.open, {})) {
            SubtreeReply nothing_yet;
            nothing_yet.kind = SubtreeReply::Kind::partial;
            origin.on_reply(one.id, std::move(nothing_yet), origin.now);
        }
        CHECK(origin.open.size() == 64);
    }
}

// Position 0 is silent, and then position 1 below it. So 2 and 3 are requested, and reply. The
// later reply of 1 overlaps theirs and can't be merged.
TEST_CASE("coll self_only: a rank below a suspect is requested when no other reply has it") {
    Origin origin(14);
    origin.reply_for({7, 14});
    origin.suspect_all();
    origin.reply_for({4, 7});
    origin.suspect_all();
    for (const std::uint32_t at : {2u, 3u}) origin.reply_for({at, at + 1});
    origin.reply_for({1, 4});
    REQUIRE(origin.open.size() == 1);
    CHECK(origin.open.front().of == Interval{1, 2});
    origin.on_failure(origin.id_of({0, 7}), fail(Code::unavailable, "gone"), origin.now);
    CHECK_FALSE(origin.is_done);
    origin.reply_for({1, 2});
    CHECK(origin.is_done);
    CHECK(origin.state().outcomes().ok_count() == 13);
}

TEST_CASE("coll self_only: a rank that a complete reply omits has failed, also below a suspect") {
    Origin origin(14, false);
    origin.reply_for({7, 14});
    origin.suspect_all();
    origin.reply_for({4, 7});
    SubtreeReply two;
    two.ok = {{1, 3}};
    origin.on_reply(origin.id_of({1, 4}), std::move(two), origin.now);
    CHECK(origin.state().outcomes().known_count() == 13);
    origin.on_failure(origin.id_of({0, 7}), fail(Code::unavailable, "gone"), origin.now);
    CHECK(origin.is_done);
    REQUIRE(origin.state().outcomes().exceptions().size() == 2);
    CHECK(origin.state().outcomes().exceptions()[0].position == 3);
    CHECK(origin.state().outcomes().exceptions()[0].status.code() == Code::internal);
}

TEST_CASE("coll self_only: queued ranks are not requested after the deadline") {
    Origin origin;
    origin.reply_without_value();
    origin.on_timer(never);
    CHECK(origin.is_done);
    CHECK(origin.open.size() == 64);
    CHECK(origin.state().outcomes().exceptions().size() == many);
}

TEST_CASE("coll self_only: a cancel ends the open requests and sends no others") {
    Origin origin;
    origin.reply_without_value();
    origin.cancel(fail(Code::cancelled, "stopped"));
    CHECK(origin.is_done);
    CHECK(origin.cancelled == 64);
    CHECK(origin.open.size() == 64);
}

// Position 0 reports 1, 2 and 3, and dies.
TEST_CASE("coll self_only: ranks that a dead rank has reported are not requested again") {
    Origin origin(14, false);
    SubtreeReply so_far;
    so_far.kind = SubtreeReply::Kind::partial;
    so_far.ok = {{2, 4}};
    so_far.outcomes.push_back({1, fail(Code::unavailable, "gone"), {}});
    origin.on_reply(origin.id_of({0, 7}), std::move(so_far), origin.now);
    origin.on_failure(origin.id_of({0, 7}), fail(Code::unavailable, "gone"), origin.now);
    const auto is_asked = [&](Interval of) {
        return std::any_of(origin.all.begin(), origin.all.end(),
                           [&](const coll::ChildRequest& request) { return request.of == of; });
    };
    CHECK(is_asked({4, 7}));
    CHECK_FALSE(is_asked({1, 4}));
    origin.reply_for({4, 7});
    origin.reply_for({7, 14});
    CHECK(origin.is_done);
    CHECK(origin.state().outcomes().ok_count() == 12);
}

// Position 0 is silent and replies for its whole subtree in the end.
TEST_CASE("coll self_only: ranks that were requested again are cancelled at the origin's end") {
    Origin origin(14, false);
    origin.reply_for({7, 14});
    origin.suspect_all();
    REQUIRE(origin.all.size() == 4);
    origin.reply_for({0, 7});
    CHECK(origin.is_done);
    CHECK(origin.cancelled == 2);
    CHECK(origin.cancels_sent == 2);
}

}  // namespace coll_self_only
