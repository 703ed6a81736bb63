// How often a parent requests the rest of a child that replies at once, and partially, each time.
#include <optional>

#include "support/catch.h"
#include "support/stepped_state.h"

using namespace weft;

namespace coll_progress {

using coll::CollectiveState;
using coll::RequestKind;
using coll::SubtreeReply;

// Rank 0 of two, the parent of the other one, which answers each request at once with a reply of
// the given kind, or not at all.
struct Pair final : test::SteppedState {
    Pair() : SteppedState(plan(), role()) {}
    static std::shared_ptr<const coll::Plan> plan() {
        auto made = std::make_shared<coll::Plan>();
        const GroupView view =
            GroupView::make("pair", 1, {{0, {"sim://a"}}, {1, {"sim://b"}}}).value();
        made->rank_order =
            std::make_shared<coll::RankOrder>(coll::RankOrder::Params{view, {}, 0, false});
        return made;
    }
    static CollectiveState::Role role() {
        CollectiveState::Role role;
        role.subtree = {0, 2};
        role.is_origin = true;
        role.deadline = TimePoint{} + 100s;
        return role;
    }
    void run_until(TimePoint end) {
        while (!state().is_done() && state().due() <= end) {
            REQUIRE(state().due() >= now);
            now = state().due();
            on_timer(now);
        }
        now = end;
    }
    void send_request(const coll::ChildRequest& request) override {
        ++requests;
        last = request;
        under_way = true;
        if (replies_with) reply_with(*replies_with);
    }
    void reply_with(SubtreeReply::Kind kind) {
        under_way = false;
        SubtreeReply sent = coll::Outcomes::empty_snapshot(kind);
        if (kind == SubtreeReply::Kind::complete) sent.ok = {last.of};
        on_reply(last.id, std::move(sent), now);
    }
    void cancel_request(const coll::Ready::Cancel& cancel) override {
        cancelled = true;
        child_cancelled = cancel.cancel_child;
        cancelled_unsent |= !under_way || cancel.request.id != last.id;
    }
    void on_done() override { is_done = true; }

    std::optional<SubtreeReply::Kind> replies_with;
    TimePoint now{};
    int requests = 0;
    coll::ChildRequest last;
    bool under_way = false;
    bool cancelled = false;
    bool child_cancelled = false;
    bool cancelled_unsent = false;  // A request was cancelled that was not under way.
    bool is_done = false;
};

TEST_CASE("coll progress: a child with early partial replies gets a few requests a second") {
    for (const SubtreeReply::Kind kind :
         {SubtreeReply::Kind::partial, SubtreeReply::Kind::only_suspects}) {
        Pair pair;
        pair.replies_with = kind;
        pair.begin(TimePoint{});
        CHECK(pair.requests == 1);
        pair.run_until(TimePoint{} + 1s);
        CHECK(pair.requests >= 3);
        CHECK(pair.requests <= 6);
        pair.run_until(TimePoint{} + 61s);
        CHECK(pair.requests <= 6 + 61);  // From then on one each second.
        CHECK(pair.last.kind == RequestKind::resume);
        CHECK_FALSE(pair.last.is_suspect);  // It replies all the time.
        pair.replies_with = SubtreeReply::Kind::complete;
        pair.run_until(TimePoint{} + 63s);
        pair.on_method_done();
        CHECK(pair.is_done);
        CHECK(pair.state().outcomes().ok_count() == 2);
    }
}

TEST_CASE("coll progress: a partial reply after the progress interval is followed up at once") {
    Pair pair;
    pair.begin(TimePoint{});
    pair.run_until(TimePoint{} + coll::progress_interval_of(pair.last));
    REQUIRE(pair.requests == 1);
    pair.reply_with(SubtreeReply::Kind::partial);
    CHECK(pair.requests == 2);
    CHECK(pair.last.rounds == 1);
}

TEST_CASE("coll progress: between two requests a cancel still reaches the child") {
    Pair pair;
    pair.replies_with = SubtreeReply::Kind::partial;
    pair.begin(TimePoint{});
    pair.replies_with.reset();
    pair.reply_with(SubtreeReply::Kind::partial);  // An unsolicited second reply.
    CHECK(pair.requests == 1);
    const bool is_cancelled = GENERATE(true, false);
    if (is_cancelled) pair.cancel(fail(Code::cancelled, "enough"));
    else pair.on_timer(TimePoint{} + 100s);
    CHECK(pair.is_done);
    CHECK(pair.child_cancelled == is_cancelled);
    CHECK(pair.cancelled == is_cancelled);
}

TEST_CASE("coll progress: a child that does not reply to its next request becomes suspect") {
    Pair pair;
    pair.replies_with = SubtreeReply::Kind::partial;
    pair.begin(TimePoint{});
    pair.replies_with.reset();
    pair.run_until(TimePoint{} + 5s);
    CHECK(pair.requests == 2);
    CHECK(pair.state().due() == TimePoint{} + 100s);  // No other request is due.
    // The child recovers and replies as early as before.
    const int before = pair.requests;
    pair.replies_with = SubtreeReply::Kind::partial;
    pair.reply_with(SubtreeReply::Kind::partial);
    pair.run_until(TimePoint{} + 6s);
    CHECK(pair.requests > before);
    CHECK(pair.requests <= before + 5);
    pair.replies_with.reset();
    pair.run_until(TimePoint{} + 10s);
    pair.cancel(fail(Code::cancelled, "enough"));
    CHECK(pair.is_done);
    CHECK(pair.cancelled);
    CHECK_FALSE(pair.cancelled_unsent);
}

}  // namespace coll_progress
