// How often a parent requests the rest of a child that replies at once, and partially, each time.
#include <optional>

#include "coll/collective_state.h"
#include "support/catch.h"

using namespace weft;

namespace coll_progress {

using coll::CollectiveState;
using coll::RequestKind;
using coll::SubtreeReply;

// Answers each request at once with a reply of the given kind, or not at all.
struct Eager final : CollectiveState::Port {
    void send_request(CollectiveState& state,
                      const CollectiveState::ChildRequest& request) override {
        ++requests;
        last = request;
        under_way = true;
        if (replies_with) reply(state, *replies_with);
    }
    void reply(CollectiveState& state, SubtreeReply::Kind kind) {
        under_way = false;
        SubtreeReply sent = coll::Outcomes::empty_snapshot(kind);
        if (kind == SubtreeReply::Kind::complete) sent.ok = {last.of};
        state.on_reply(last.id, std::move(sent), now);
    }
    void cancel_request(CollectiveState&, const CollectiveState::ChildRequest& request,
                        bool cancel_child) override {
        cancelled = true;
        child_cancelled = cancel_child;
        cancelled_unsent |= !under_way || request.id != last.id;
    }
    void run(CollectiveState&) override {}
    void cancel_method(CollectiveState&) override {}
    void reply_to(CollectiveState&, std::uint32_t, SubtreeReply::Kind) override {}
    void refresh(CollectiveState&, std::uint32_t, std::uint64_t) override {}
    void report(CollectiveState&) override {}
    void done(CollectiveState&) override { is_done = true; }

    std::optional<SubtreeReply::Kind> replies_with;
    TimePoint now{};
    int requests = 0;
    CollectiveState::ChildRequest last;
    bool under_way = false;
    bool cancelled = false;
    bool child_cancelled = false;
    bool cancelled_unsent = false;  // A request was cancelled that was not under way.
    bool is_done = false;
};

// Rank 0 of two, the parent of the other one.
struct Pair {
    Pair() : state(port, plan(), {1, 1}, role()) {}
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
        while (!state.is_done() && state.due() <= end) {
            REQUIRE(state.due() >= port.now);
            port.now = state.due();
            state.on_timer(port.now);
        }
        port.now = end;
    }
    Eager port;
    CollectiveState state;
};

TEST_CASE("coll progress: a child with early partial replies gets a few requests a second") {
    for (const SubtreeReply::Kind kind :
         {SubtreeReply::Kind::partial, SubtreeReply::Kind::only_suspects}) {
        Pair pair;
        pair.port.replies_with = kind;
        pair.state.begin(TimePoint{});
        CHECK(pair.port.requests == 1);
        pair.run_until(TimePoint{} + 1s);
        CHECK(pair.port.requests >= 3);
        CHECK(pair.port.requests <= 6);
        pair.run_until(TimePoint{} + 61s);
        CHECK(pair.port.requests <= 6 + 61);  // From then on one each second.
        CHECK(pair.port.last.kind == RequestKind::resume);
        CHECK_FALSE(pair.port.last.is_suspect);  // It replies all the time.
        pair.port.replies_with = SubtreeReply::Kind::complete;
        pair.run_until(TimePoint{} + 63s);
        pair.state.on_method_done({}, {});
        CHECK(pair.port.is_done);
        CHECK(pair.state.outcomes().ok_count() == 2);
    }
}

TEST_CASE("coll progress: a partial reply after the progress interval is followed up at once") {
    Pair pair;
    pair.state.begin(TimePoint{});
    pair.run_until(TimePoint{} + CollectiveState::progress_interval_of(pair.port.last));
    REQUIRE(pair.port.requests == 1);
    pair.port.reply(pair.state, SubtreeReply::Kind::partial);
    CHECK(pair.port.requests == 2);
    CHECK(pair.port.last.rounds == 1);
}

TEST_CASE("coll progress: between two requests a cancel still reaches the child") {
    Pair pair;
    pair.port.replies_with = SubtreeReply::Kind::partial;
    pair.state.begin(TimePoint{});
    pair.port.replies_with.reset();
    pair.port.reply(pair.state, SubtreeReply::Kind::partial);  // An unsolicited second reply.
    CHECK(pair.port.requests == 1);
    const bool is_cancelled = GENERATE(true, false);
    if (is_cancelled) pair.state.cancel(fail(Code::cancelled, "enough"));
    else pair.state.on_timer(TimePoint{} + 100s);
    CHECK(pair.port.is_done);
    CHECK(pair.port.child_cancelled == is_cancelled);
    CHECK(pair.port.cancelled == is_cancelled);
}

TEST_CASE("coll progress: a child that does not reply to its next request becomes suspect") {
    Pair pair;
    pair.port.replies_with = SubtreeReply::Kind::partial;
    pair.state.begin(TimePoint{});
    pair.port.replies_with.reset();
    pair.run_until(TimePoint{} + 5s);
    CHECK(pair.port.requests == 2);
    CHECK(pair.state.due() == TimePoint{} + 100s);  // No other request is due.
    // The child recovers and replies as early as before.
    const int before = pair.port.requests;
    pair.port.replies_with = SubtreeReply::Kind::partial;
    pair.port.reply(pair.state, SubtreeReply::Kind::partial);
    pair.run_until(TimePoint{} + 6s);
    CHECK(pair.port.requests > before);
    CHECK(pair.port.requests <= before + 5);
    pair.port.replies_with.reset();
    pair.run_until(TimePoint{} + 10s);
    pair.state.cancel(fail(Code::cancelled, "enough"));
    CHECK(pair.port.is_done);
    CHECK(pair.port.cancelled);
    CHECK_FALSE(pair.port.cancelled_unsent);
}

}  // namespace coll_progress
