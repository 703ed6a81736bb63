// Member collectives: leaders that die, restart or are busy, changes of the group, large values.
#include "base/codec.h"
#include "coll/member_collective_wire.h"
#include "support/catch.h"
#include "support/member_collective_rig.h"

using namespace weft;
using test::MemberCollectiveRig;

namespace {

bool all_ended(const MemberCollectiveRig& members, const std::vector<std::uint32_t>& ranks) {
    for (const std::uint32_t rank : ranks) {
        if (!members.outcomes[rank]) return false;
    }
    return true;
}

void check_same(const GroupOutcome& a, const GroupOutcome& b) {
    CHECK(a.status.code() == b.status.code());
    CHECK(a.status.text() == b.status.text());
    CHECK(a.epoch == b.epoch);
    CHECK(a.merged == b.merged);
    REQUIRE(a.ranks.size() == b.ranks.size());
    for (std::size_t i = 0; i < a.ranks.size(); ++i) {
        CHECK(a.ranks[i].rank == b.ranks[i].rank);
        CHECK(a.ranks[i].status.code() == b.ranks[i].status.code());
        CHECK(a.ranks[i].reply == b.ranks[i].reply);
    }
}

// Occupies all the call slots of a member's handlers.
struct Holder final : Service {
    std::vector<Call> held;
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(MethodId("test.Hold/Hold"),
                      [this](Call call) { held.push_back(std::move(call)); });
    }
    void fill(MemberCollectiveRig& members, const char* uri) {
        const Channel channel = members.rig.client->connect(uri).value();
        for (int i = 0; i < 16; ++i) {
            channel.call(MethodId("test.Hold/Hold"), {}, {.timeout = 590s},
                         [](const Status&, ByteView) {});
        }
        members.rig.sim.run_for(10ms);
        REQUIRE_FALSE(held.empty());
    }
    void free() {
        for (Call& call : std::exchange(held, {})) call.reply({});
    }
    ~Holder() override { free(); }
};

}  // namespace

TEST_CASE("a member probes again a leader that gathers during a probe and then dies") {
    // The probe leaves one second after the member has joined and takes a while.
    for (int us = -60; us < 60; us += 3) {
        INFO("at 1 s and " << us << " us");
        MemberCollectiveRig members(3);
        members.join(1, "m", {}, {.timeout = 600s});
        members.rig.sim.run_for(1s + us * 1us);
        members.join(0, "m", {}, {.timeout = 600s});
        members.rig.sim.run_for(100ms);
        members.rig.sim.kill("s0");
        REQUIRE(members.rig.sim.run_until([&] { return all_ended(members, {1}); }, 10s));
        CHECK(members.outcomes[1]->status.code() == Code::unavailable);
    }
}

TEST_CASE("a member collective too large for a message fails for all members alike") {
    MemberCollectiveRig members(4, {.argument_bytes_max = 64 << 10});
    const std::string value(30'000, 'x');
    for (std::uint32_t rank = 0; rank < 4; ++rank) members.join(rank, "m", as_bytes(value));
    REQUIRE(members.rig.sim.run_until([&] { return members.ended() == 4; }, 10s));
    for (const auto& outcome : members.outcomes) {
        CHECK_FALSE(outcome->status.ok());
        check_same(*outcome, *members.outcomes[0]);
    }
}

TEST_CASE("a member collective fails for all members when its release would be too large") {
    // Each reply fits, and so do all values together, but not with the headers around them.
    MemberCollectiveRig members(2, {.argument_bytes_max = 64 << 10});
    const std::string value(31'000, 'x');
    for (std::uint32_t rank = 0; rank < 2; ++rank) members.join(rank, "m", as_bytes(value));
    REQUIRE(members.rig.sim.run_until([&] { return members.ended() == 2; }, 10s));
    for (const auto& outcome : members.outcomes) {
        INFO(outcome->status.to_string());
        CHECK(outcome->status.code() == Code::resource_exhausted);
        CHECK(outcome->ranks.empty());
    }
}

TEST_CASE("a leader that is too busy for a probe is not taken for dead") {
    Holder holder;
    MemberCollectiveRig members(3, {.handlers_max = 8});
    REQUIRE(members.rig.sim.runtimes[0]->add(holder).ok());
    members.join(0, "m", {}, {.timeout = 600s});
    members.join(1, "m", {}, {.timeout = 600s});
    members.rig.sim.run_for(50ms);
    holder.fill(members, "sim://s0");
    members.rig.sim.run_for(10s);
    CHECK(members.ended() == 0);
    holder.free();
    members.join(2, "m", {}, {.timeout = 600s});
    REQUIRE(members.rig.sim.run_until([&] { return members.ended() == 3; }, 20s));
    for (const auto& outcome : members.outcomes) CHECK(outcome->status.ok());
    holder.free();
}

TEST_CASE("a member that was too busy for the release gets the outcome by its probe") {
    Holder holder;
    MemberCollectiveRig members(3, {.handlers_max = 8});
    REQUIRE(members.rig.sim.runtimes[1]->add(holder).ok());
    for (const std::uint32_t rank : {0u, 1u}) members.join(rank, "m", as_bytes("v"));
    members.rig.sim.run_for(50ms);
    holder.fill(members, "sim://s1");
    members.join(2, "m", as_bytes("v"));
    REQUIRE(members.rig.sim.run_until([&] { return all_ended(members, {0, 2}); }, 5s));
    CHECK_FALSE(members.outcomes[1].has_value());
    api::RuntimeImpl& leader = impl_of(*members.rig.sim.runtimes[0]);
    if (GENERATE(false, true)) leader.begin_drain();
    const auto owed = [&] {  // The end of the leader waits for these.
        return leader.node.server.executing() + leader.collectives.parents_expected();
    };
    REQUIRE(members.rig.sim.run_until([&] { return owed() == 0; }, 5s));
    REQUIRE(members.ended() == 3);
    for (const auto& outcome : members.outcomes) {
        INFO(outcome->status.to_string());
        CHECK(outcome->status.ok());
        check_same(*outcome, *members.outcomes[0]);
    }
    holder.free();
}

TEST_CASE("members that were not gathered yet join under the leader of the latest view") {
    MemberCollectiveRig members(4);
    const GroupView view = members.rig.view();
    for (const std::uint32_t rank : {1u, 3u}) members.join(rank, "m", as_bytes("v"));
    members.rig.sim.run_for(50ms);
    // The designated leader leaves the group without having joined.
    std::vector<Group> groups;
    for (int rank = 0; rank < 4; ++rank) groups.push_back(members.rig.group(rank));
    for (int rank = 1; rank < 4; ++rank) {
        REQUIRE(groups[static_cast<std::size_t>(rank)].install(evict(view, 0).value()).ok());
    }
    members.rig.sim.run_for(50ms);
    CHECK(members.ended() == 0);
    members.join(2, "m", as_bytes("v"));
    REQUIRE(members.rig.sim.run_until([&] { return all_ended(members, {1, 2, 3}); }, 5s));
    for (const std::uint32_t rank : {1u, 2u, 3u}) {
        INFO(members.outcomes[rank]->status.to_string());
        CHECK(members.outcomes[rank]->status.ok());
        CHECK(members.outcomes[rank]->ranks.size() == 3);
        check_same(*members.outcomes[rank], *members.outcomes[1]);
    }
    CHECK(members.remaining() == 0);
}

TEST_CASE("a leader of an old view does not gather members of a later view") {
    MemberCollectiveRig members(4);
    std::vector<Group> groups;
    for (int rank = 0; rank < 4; ++rank) groups.push_back(members.rig.group(rank));
    const auto join = [&](std::uint32_t rank) {
        members.outcomes[rank].reset();
        members.join(rank, "m", {}, {.timeout = 20s});
    };
    // The leader and rank 3 join; the other two learn first that the leader drains.
    join(0);
    join(3);
    members.rig.sim.run_for(50ms);
    const GroupView later = drain(members.rig.view(), 0).value();
    for (const int rank : {1, 2, 3}) {
        REQUIRE(groups[static_cast<std::size_t>(rank)].install(later).ok());
    }
    join(1);
    join(2);
    REQUIRE(members.rig.sim.run_until([&] { return all_ended(members, {0, 3}); }, 5s));
    CHECK(members.outcomes[0]->status.code() == Code::aborted);
    check_same(*members.outcomes[0], *members.outcomes[3]);
    CHECK_FALSE(members.outcomes[1].has_value());
    join(3);
    REQUIRE(members.rig.sim.run_until([&] { return all_ended(members, {1, 2, 3}); }, 5s));
    for (const std::uint32_t rank : {1u, 2u, 3u}) {
        INFO(members.outcomes[rank]->status.to_string());
        CHECK(members.outcomes[rank]->status.ok());
        CHECK(members.outcomes[rank]->ranks.size() == 3);
    }
}

TEST_CASE("a member fails when the leader that has its value is evicted") {
    MemberCollectiveRig members(3);
    members.join(0, "m", {}, {.timeout = 60s});
    members.join(1, "m", {}, {.timeout = 60s});
    members.rig.sim.run_for(50ms);
    const Group member = members.rig.group(1);
    REQUIRE(member.install(evict(members.rig.view(), 0).value()).ok());
    REQUIRE(members.rig.sim.run_until([&] { return all_ended(members, {1}); }, 1s));
    CHECK(members.outcomes[1]->status.code() == Code::unavailable);
    CHECK(members.outcomes[1]->status.text().find("has left") != std::string_view::npos);
}

TEST_CASE("a member collective fails on a member that the later view lacks") {
    MemberCollectiveRig members(3);
    members.join(1, "m", {}, {.timeout = 60s});
    members.rig.sim.run_for(50ms);
    const Group member = members.rig.group(1);
    REQUIRE(member.install(evict(members.rig.view(), 1).value()).ok());
    REQUIRE(members.rig.sim.run_until([&] { return all_ended(members, {1}); }, 1s));
    CHECK(members.outcomes[1]->status.code() == Code::failed_precondition);
}

TEST_CASE("a member collective does not wait for a member that left before it joined") {
    MemberCollectiveRig members(3);
    for (const std::uint32_t rank : {0u, 1u}) members.join(rank, "m", {}, {.timeout = 60s});
    members.rig.sim.run_for(50ms);
    const Group member = members.rig.group(2);
    REQUIRE(member.install(evict(members.rig.view(), 2).value()).ok());
    REQUIRE(members.rig.sim.run_until([&] { return all_ended(members, {0, 1}); }, 1s));
    CHECK(members.outcomes[0]->status.code() == Code::failed_precondition);
    check_same(*members.outcomes[0], *members.outcomes[1]);
}

TEST_CASE("a restarted leader gathers anew, although members wait for its previous run") {
    MemberCollectiveRig members(3);
    const auto join = [&](Runtime& runtime, std::uint32_t rank) {
        members.outcomes[rank].reset();
        runtime.group(members.rig.view())
            .value()
            .all_gather("m", {}, {.timeout = 20s}, [&members, rank](GroupOutcome all) {
                members.outcomes[rank] = std::move(all);
            });
    };
    // Gathered by its first run: rank 1, which has joined, and rank 2, which has not.
    join(*members.rig.sim.runtimes[0], 0);
    join(*members.rig.sim.runtimes[1], 1);
    members.rig.sim.run_for(50ms);
    members.rig.sim.kill("s0");
    Runtime& again = members.rig.sim.add("s0");
    REQUIRE(again.join(members.rig.view(), 0).ok());
    join(again, 0);
    REQUIRE(members.rig.sim.run_until([&] { return all_ended(members, {1}); }, 10s));
    CHECK_FALSE(members.outcomes[1]->status.ok());
    join(*members.rig.sim.runtimes[1], 1);
    join(*members.rig.sim.runtimes[2], 2);
    REQUIRE(members.rig.sim.run_until([&] { return members.ended() == 3; }, 15s));
    for (const auto& outcome : members.outcomes) {
        INFO(outcome->status.to_string());
        CHECK(outcome->status.ok());
    }
}

TEST_CASE("a restarted member does not take the outcome of its previous run's value") {
    // Acts as a leader that got this rank's value in the rank's previous run and gathers again.
    MemberCollectiveRig members(3);
    members.join(2, "m", as_bytes("new"), {.timeout = 60s});
    coll::MemberCollectiveHeader header{method_hash("store"), 1, 77, 0, "m"};
    const RankSet two{2};
    const auto ask = [&](const MethodId& method, const std::vector<std::byte>& body) {
        std::optional<GroupOutcome> outcome;
        members.rig.group(-1).collective(method, BodyWriter::of(body),
                                         {.timeout = 5s, .include = &two},
                                         [&](GroupOutcome all) { outcome = std::move(all); });
        REQUIRE(members.rig.sim.run_until([&] { return outcome.has_value(); }, 6s));
        return *std::move(outcome);
    };
    const std::vector<std::byte> question = coll::encode(header);
    const GroupOutcome given = ask(MethodId("weft.Group/Gather"), question);
    CHECK(as_text(given.ranks[0].reply) == "new");
    GroupOutcome all;
    all.epoch = 1;
    const ByteView old = as_bytes("old");
    all.ranks.push_back({2, Status(), {old.begin(), old.end()}, 0});
    std::vector<std::byte> release = question;
    const std::vector<std::byte> encoded = coll::encode_outcome(all, false, 4096).value();
    release.insert(release.end(), encoded.begin(), encoded.end());
    ask(MethodId("weft.Group/Release"), release);
    REQUIRE(members.rig.sim.run_until([&] { return all_ended(members, {2}); }, 1s));
    CHECK(members.outcomes[2]->status.code() == Code::aborted);
    CHECK(members.outcomes[2]->status.effect() == Effect::unknown);
}

TEST_CASE("a leader's cancel ends a member collective for all, a member's cancel only its own") {
    MemberCollectiveRig members(4);
    const Group leader = members.rig.group(0);
    const Group member = members.rig.group(1);
    std::optional<GroupOutcome> led;
    std::optional<GroupOutcome> left;
    const CollectiveId leading =
        leader.all_gather("m", {}, {.timeout = 60s, .policy = Policy::best_effort},
                          [&](GroupOutcome all) { led = std::move(all); });
    const CollectiveId joining = member.all_gather(
        "m", {}, {.timeout = 60s}, [&](GroupOutcome all) { left = std::move(all); });
    members.join(2, "m", {}, {.timeout = 60s});
    members.rig.sim.run_for(50ms);
    member.cancel(joining);
    members.rig.sim.run_for(50ms);
    REQUIRE(left.has_value());
    CHECK(left->status.code() == Code::cancelled);
    CHECK_FALSE(led.has_value());
    CHECK_FALSE(members.outcomes[2].has_value());
    leader.cancel(leading);
    members.rig.sim.run_for(200ms);
    REQUIRE(led.has_value());
    CHECK(led->status.code() == Code::cancelled);
    REQUIRE(members.outcomes[2].has_value());
    check_same(*led, *members.outcomes[2]);
    CHECK(members.remaining() == 0);
    member.cancel(joining);  // Completed long ago.
    leader.cancel(leading);
}

TEST_CASE("invalid options fail a member collective at once on each member") {
    GroupCallOptions options{.timeout = 600s};
    SECTION("a quorum") {
        options.policy = Policy::quorum;
        options.quorum = 10;
    }
    SECTION("a reduction") {
        options.reduction = {Reduction::Operation::bit_or, Reduction::Number::f64};
    }
    SECTION("a tree") { options.topology = {.shape = Topology::Shape::k_ary, .fanout = 0}; }
    MemberCollectiveRig members(3);
    for (const std::uint32_t rank : {1u, 2u, 0u}) members.join(rank, "m", {}, options);
    members.rig.sim.run_for(100ms);
    REQUIRE(members.ended() == 3);
    for (const auto& outcome : members.outcomes) {
        CHECK(outcome->status.code() == Code::invalid_argument);
    }
}

TEST_CASE("a leader's cancel at any moment ends a member collective for all waiting members") {
    for (int us = 0; us < 40; us += 2) {
        INFO("after " << us << " us");
        MemberCollectiveRig members(4);
        for (const std::uint32_t rank : {1u, 2u}) members.join(rank, "m", {}, {.timeout = 600s});
        members.rig.sim.run_for(10ms);
        const Group leader = members.rig.group(0);
        const CollectiveId id =
            leader.all_gather("m", {}, {.timeout = 600s},
                              [&](GroupOutcome all) { members.outcomes[0] = std::move(all); });
        members.rig.sim.run_for(us * 1us);
        leader.cancel(id);
        if (us % 4 == 0) {  // Once more, during the release.
            members.rig.sim.run_for(us / 4 * 1us);
            leader.cancel(id);
        }
        members.rig.sim.run_for(1s);
        REQUIRE(members.ended() == 3);
        for (const std::uint32_t rank : {0u, 1u, 2u}) {
            CHECK(members.outcomes[rank]->status.code() == Code::cancelled);
        }
    }
}

TEST_CASE("a leader cancelled during the release does not wait for an unreachable member") {
    MemberCollectiveRig members(3);
    GroupCallOptions options{.timeout = 600s};
    options.topology.shape = Topology::Shape::flat;
    const Group leader = members.rig.group(0);
    const CollectiveId leading =
        leader.all_gather("m", as_bytes("v"), options,
                          [&](GroupOutcome all) { members.outcomes[0] = std::move(all); });
    members.join(2, "m", as_bytes("v"), options);
    members.rig.sim.run_for(50ms);  // Rank 2 has delivered its value.
    members.rig.sim.world->cut("s0", "s2");
    members.join(1, "m", as_bytes("v"), options);
    REQUIRE(members.rig.sim.run_until([&] { return all_ended(members, {1}); }, 1s));
    members.rig.sim.run_for(500ms);
    CHECK(members.ended() == 1);
    leader.cancel(leading);
    members.rig.sim.run_for(10ms);
    REQUIRE(members.outcomes[0].has_value());
    CHECK(members.outcomes[0]->status.ok());
    CHECK_FALSE(members.outcomes[2].has_value());
    members.rig.sim.world->mend_all();
    REQUIRE(members.rig.sim.run_until([&] { return members.ended() == 3; }, 30s));
    for (const std::uint32_t rank : {1u, 2u}) {
        check_same(*members.outcomes[rank], *members.outcomes[0]);
    }
    CHECK(members.remaining() == 0);
}

TEST_CASE("a leader that dies with a member's value leaves the effect unknown") {
    MemberCollectiveRig members(3);
    for (const std::uint32_t rank : {0u, 1u}) members.join(rank, "m", {}, {.timeout = 600s});
    members.rig.sim.run_for(100ms);
    members.rig.sim.kill("s0");
    REQUIRE(members.rig.sim.run_until([&] { return all_ended(members, {1}); }, 10s));
    CHECK(members.outcomes[1]->status.code() == Code::unavailable);
    CHECK(members.outcomes[1]->status.effect() == Effect::unknown);
}

TEST_CASE("a member that missed an outcome gets it although the others reuse the name") {
    Holder holder;
    MemberCollectiveRig members(3, {.handlers_max = 8});
    REQUIRE(members.rig.sim.runtimes[1]->add(holder).ok());
    const std::string value(150'000, 'x');  // Large, too.
    for (const std::uint32_t rank : {0u, 1u}) members.join(rank, "m", as_bytes(value));
    members.rig.sim.run_for(50ms);
    holder.fill(members, "sim://s1");
    members.join(2, "m", as_bytes(value));
    REQUIRE(members.rig.sim.run_until([&] { return all_ended(members, {0, 2}); }, 5s));
    CHECK_FALSE(members.outcomes[1].has_value());
    const GroupOutcome first = *std::move(members.outcomes[0]);
    holder.free();
    for (const std::uint32_t rank : {0u, 2u}) {
        members.outcomes[rank].reset();
        members.join(rank, "m", as_bytes("again"));
    }
    REQUIRE(members.rig.sim.run_until([&] { return all_ended(members, {1}); }, 5s));
    INFO(members.outcomes[1]->status.to_string());
    check_same(*members.outcomes[1], first);
    members.outcomes[1].reset();
    members.join(1, "m", as_bytes("again"));
    REQUIRE(members.rig.sim.run_until([&] { return members.ended() == 3; }, 5s));
    for (const auto& outcome : members.outcomes) CHECK(outcome->status.ok());
    holder.free();
}

TEST_CASE("a member collective completes with CANCELLED after the end of its runtime") {
    int completions = 0;
    std::weak_ptr<int> alive;
    {
        MemberCollectiveRig members(2);
        const auto token = std::make_shared<int>(1);
        alive = token;
        const Group group = members.rig.group(1);
        members.rig.sim.runtimes.erase(members.rig.sim.runtimes.begin() + 1);
        group.all_gather("m", {}, {.timeout = 1s},
                         [&completions, token](const GroupOutcome& outcome) {
                             CHECK(outcome.status.code() == Code::cancelled);
                             ++completions;
                         });
        CHECK(completions == 1);
    }
    CHECK(alive.expired());
}

TEST_CASE("a gather that waits for its member ends with the member's runtime") {
    MemberCollectiveRig members(3);
    for (const std::uint32_t rank : {0u, 1u}) members.join(rank, "m", {});
    members.rig.sim.run_for(50ms);
    members.rig.sim.runtimes.erase(members.rig.sim.runtimes.begin() + 2);
    REQUIRE(members.rig.sim.run_until([&] { return all_ended(members, {0, 1}); }, 10s));
    REQUIRE(members.outcomes[0]->ranks.size() == 3);
    CHECK(members.outcomes[0]->ranks[2].status.code() == Code::unavailable);
}

TEST_CASE("truncated and malformed messages of member collectives are refused") {
    const GroupView view =
        GroupView::make("g", 3, {{0, {"sim://a"}, 5}, {4, {"sim://b"}, 9}}).value();
    const coll::MemberCollectiveHeader header{1, 3, 77, 4, "a name"};
    const std::vector<std::byte> bytes = coll::encode(header);
    ByteView rest;
    const Result<coll::MemberCollectiveHeader> back =
        coll::decode_member_collective_header(bytes, &rest);
    REQUIRE(back.ok());
    CHECK(back->round == 77);
    CHECK(back->leader == 4);
    CHECK(back->name == "a name");
    CHECK(rest.empty());
    for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
        CHECK_FALSE(coll::decode_member_collective_header(ByteView(bytes).first(cut), &rest).ok());
    }
    const std::string longer(coll::MemberCollectiveHeader::name_bytes_max + 1, 'x');
    CHECK_FALSE(coll::decode_member_collective_header(
                    coll::encode(coll::MemberCollectiveHeader{1, 3, 7, 4, longer}), &rest)
                    .ok());
    GroupOutcome outcome;
    outcome.epoch = 3;
    outcome.status = fail(Code::unavailable, "why").with_effect(Effect::unknown);
    outcome.ranks.push_back({0, Status(), {}, 5});
    outcome.ranks.push_back({4, fail(Code::unavailable, "why"), {}, 9});
    const std::vector<std::byte> encoded = coll::encode_outcome(outcome, false, 4096).value();
    const Result<GroupOutcome> decoded = coll::decode_outcome(encoded, view);
    REQUIRE(decoded.ok());
    REQUIRE(decoded->ranks.size() == 2);
    CHECK(decoded->ranks[1].rank == 4);
    CHECK(decoded->ranks[1].incarnation == 9);
    CHECK(decoded->status.effect() == Effect::unknown);
    for (std::size_t cut = 0; cut < encoded.size(); ++cut) {
        const Result<GroupOutcome> some = coll::decode_outcome(ByteView(encoded).first(cut), view);
        if (some.ok()) CHECK(some->ranks.size() < 2);  // Cut between two ranks.
    }
    GroupOutcome many;
    for (std::uint32_t rank = 0; rank < 5000; ++rank) many.ranks.push_back({rank, Status(), {}, 0});
    CHECK_FALSE(coll::decode_outcome(*coll::encode_outcome(many, false, 4096), view).ok());
    CHECK_FALSE(coll::encode_outcome(outcome, false, encoded.size() - 1).has_value());
    CHECK(coll::encode_outcome(outcome, false, encoded.size()).has_value());
    const std::vector<std::byte> probe_reply =
        coll::encode(coll::ProbeReply{coll::ProbeReply::State::completed, encoded});
    REQUIRE(coll::decode_probe_reply(probe_reply).ok());
    CHECK(coll::decode_probe_reply(probe_reply)->outcome.size() == encoded.size());
    CHECK_FALSE(coll::decode_probe_reply(ByteView()).ok());
    std::vector<std::byte> odd = probe_reply;
    odd[0] = std::byte{4};
    CHECK_FALSE(coll::decode_probe_reply(odd).ok());
}
