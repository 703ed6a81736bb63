// Meetings while leaders die, restart and are busy, while the group changes, and what is too large.
#include "base/codec.h"
#include "coll/gathering.h"
#include "support/catch.h"
#include "support/meeting_rig.h"

using namespace weft;
using test::MeetingRig;

namespace {

bool all_ended(const MeetingRig& meeting, const std::vector<std::uint32_t>& ranks) {
    for (const std::uint32_t rank : ranks) {
        if (!meeting.outcomes[rank]) return false;
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

// Takes all the room that a member has for calls in handlers.
struct Holder final : Service {
    std::vector<Call> held;
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(MethodId("test.Hold/Hold"),
                      [this](Call call) { held.push_back(std::move(call)); });
    }
    void fill(MeetingRig& meeting, const char* uri) {
        const Channel channel = meeting.rig.client->connect(uri).value();
        for (int i = 0; i < 16; ++i) {
            channel.call(MethodId("test.Hold/Hold"), {}, {.timeout = 590s},
                         [](const Status&, ByteView) {});
        }
        meeting.rig.sim.run_for(10ms);
        REQUIRE_FALSE(held.empty());
    }
    void free() {
        for (Call& call : std::exchange(held, {})) call.reply({});
    }
    ~Holder() override { free(); }
};

}  // namespace

TEST_CASE("a leader that asks while somebody looks at him is looked at again") {
    // The look leaves one second after the member has come, and takes a while.
    for (int us = -60; us < 60; us += 3) {
        INFO("at 1 s and " << us << " us");
        MeetingRig meeting(3);
        meeting.come(1, "m", {}, {.timeout = 600s});
        meeting.rig.sim.run_for(1s + us * 1us);
        meeting.come(0, "m", {}, {.timeout = 600s});
        meeting.rig.sim.run_for(100ms);
        meeting.rig.sim.kill("s0");
        REQUIRE(meeting.rig.sim.run_until([&] { return all_ended(meeting, {1}); }, 10s));
        CHECK(meeting.outcomes[1]->status.code() == Code::unavailable);
    }
}

TEST_CASE("what does not fit into a message fails for all members alike") {
    MeetingRig meeting(4, {.argument_bytes_max = 64 << 10});
    const std::string value(30'000, 'x');
    for (std::uint32_t rank = 0; rank < 4; ++rank) meeting.come(rank, "m", as_bytes(value));
    REQUIRE(meeting.rig.sim.run_until([&] { return meeting.ended() == 4; }, 10s));
    for (const auto& outcome : meeting.outcomes) {
        CHECK_FALSE(outcome->status.ok());
        check_same(*outcome, *meeting.outcomes[0]);
    }
}

TEST_CASE("a release that would be too large is one for nobody") {
    // Each answer of the gathering fits, and so do all together, but for what is around them.
    MeetingRig meeting(2, {.argument_bytes_max = 64 << 10});
    const std::string value(31'000, 'x');
    for (std::uint32_t rank = 0; rank < 2; ++rank) meeting.come(rank, "m", as_bytes(value));
    REQUIRE(meeting.rig.sim.run_until([&] { return meeting.ended() == 2; }, 10s));
    for (const auto& outcome : meeting.outcomes) {
        INFO(outcome->status.to_string());
        CHECK(outcome->status.code() == Code::resource_exhausted);
        CHECK(outcome->ranks.empty());
    }
}

TEST_CASE("a leader who is too busy to be looked at is none that died") {
    Holder holder;
    MeetingRig meeting(3, {.handlers_max = 8});
    REQUIRE(meeting.rig.sim.runtimes[0]->add(holder).ok());
    meeting.come(0, "m", {}, {.timeout = 600s});
    meeting.come(1, "m", {}, {.timeout = 600s});
    meeting.rig.sim.run_for(50ms);
    holder.fill(meeting, "sim://s0");
    meeting.rig.sim.run_for(10s);
    CHECK(meeting.ended() == 0);
    holder.free();
    meeting.come(2, "m", {}, {.timeout = 600s});
    REQUIRE(meeting.rig.sim.run_until([&] { return meeting.ended() == 3; }, 20s));
    for (const auto& outcome : meeting.outcomes) CHECK(outcome->status.ok());
    holder.free();
}

TEST_CASE("who was too busy to be told finds it when he looks") {
    Holder holder;
    MeetingRig meeting(3, {.handlers_max = 8});
    REQUIRE(meeting.rig.sim.runtimes[1]->add(holder).ok());
    for (const std::uint32_t rank : {0u, 1u}) meeting.come(rank, "m", as_bytes("v"));
    meeting.rig.sim.run_for(50ms);
    holder.fill(meeting, "sim://s1");
    meeting.come(2, "m", as_bytes("v"));
    REQUIRE(meeting.rig.sim.run_until([&] { return all_ended(meeting, {0, 2}); }, 5s));
    CHECK_FALSE(meeting.outcomes[1].has_value());
    api::Node& leader = meeting.rig.sim.runtimes[0]->node();
    if (GENERATE(false, true)) leader.begin_drain();
    // The end of the leader waits for it.
    const auto owed = [&] { return leader.server.executing() + leader.collectives.owed(); };
    REQUIRE(meeting.rig.sim.run_until([&] { return owed() == 0; }, 5s));
    REQUIRE(meeting.ended() == 3);
    for (const auto& outcome : meeting.outcomes) {
        INFO(outcome->status.to_string());
        CHECK(outcome->status.ok());
        check_same(*outcome, *meeting.outcomes[0]);
    }
    holder.free();
}

TEST_CASE("members that were not asked yet meet under the leader of the latest view") {
    MeetingRig meeting(4);
    const GroupView view = meeting.rig.view();
    for (const std::uint32_t rank : {1u, 3u}) meeting.come(rank, "m", as_bytes("v"));
    meeting.rig.sim.run_for(50ms);
    // The one who would lead leaves, and did not come.
    std::vector<Group> groups;
    for (int rank = 0; rank < 4; ++rank) groups.push_back(meeting.rig.group(rank));
    for (int rank = 1; rank < 4; ++rank) {
        REQUIRE(groups[static_cast<std::size_t>(rank)].install(evict(view, 0).value()).ok());
    }
    meeting.rig.sim.run_for(50ms);
    CHECK(meeting.ended() == 0);
    meeting.come(2, "m", as_bytes("v"));
    REQUIRE(meeting.rig.sim.run_until([&] { return all_ended(meeting, {1, 2, 3}); }, 5s));
    for (const std::uint32_t rank : {1u, 2u, 3u}) {
        INFO(meeting.outcomes[rank]->status.to_string());
        CHECK(meeting.outcomes[rank]->status.ok());
        CHECK(meeting.outcomes[rank]->ranks.size() == 3);
        check_same(*meeting.outcomes[rank], *meeting.outcomes[1]);
    }
    CHECK(meeting.left() == 0);
}

TEST_CASE("a leader of an old view gathers nobody who follows another one") {
    MeetingRig meeting(4);
    std::vector<Group> groups;
    for (int rank = 0; rank < 4; ++rank) groups.push_back(meeting.rig.group(rank));
    const auto come = [&](std::uint32_t rank) {
        meeting.outcomes[rank].reset();
        meeting.come(rank, "m", {}, {.timeout = 20s});
    };
    // The leader and one more; the other two learn that he drains, before they come.
    come(0);
    come(3);
    meeting.rig.sim.run_for(50ms);
    const GroupView later = drain(meeting.rig.view(), 0).value();
    for (const int rank : {1, 2, 3}) {
        REQUIRE(groups[static_cast<std::size_t>(rank)].install(later).ok());
    }
    come(1);
    come(2);
    // Those of the old view end soon, and nobody is told that it went well.
    REQUIRE(meeting.rig.sim.run_until([&] { return all_ended(meeting, {0, 3}); }, 5s));
    CHECK(meeting.outcomes[0]->status.code() == Code::aborted);
    check_same(*meeting.outcomes[0], *meeting.outcomes[3]);
    CHECK_FALSE(meeting.outcomes[1].has_value());
    come(3);
    REQUIRE(meeting.rig.sim.run_until([&] { return all_ended(meeting, {1, 2, 3}); }, 5s));
    for (const std::uint32_t rank : {1u, 2u, 3u}) {
        INFO(meeting.outcomes[rank]->status.to_string());
        CHECK(meeting.outcomes[rank]->status.ok());
        CHECK(meeting.outcomes[rank]->ranks.size() == 3);
    }
}

TEST_CASE("who has given his value to one who is evicted then is told so") {
    MeetingRig meeting(3);
    meeting.come(0, "m", {}, {.timeout = 60s});
    meeting.come(1, "m", {}, {.timeout = 60s});
    meeting.rig.sim.run_for(50ms);
    const Group member = meeting.rig.group(1);
    REQUIRE(member.install(evict(meeting.rig.view(), 0).value()).ok());
    REQUIRE(meeting.rig.sim.run_until([&] { return all_ended(meeting, {1}); }, 1s));
    CHECK(meeting.outcomes[1]->status.code() == Code::unavailable);
    CHECK(meeting.outcomes[1]->status.text().find("has left") != std::string_view::npos);
}

TEST_CASE("a member that is not in the later view any more ends its meeting") {
    MeetingRig meeting(3);
    meeting.come(1, "m", {}, {.timeout = 60s});
    meeting.rig.sim.run_for(50ms);
    const Group member = meeting.rig.group(1);
    REQUIRE(member.install(evict(meeting.rig.view(), 1).value()).ok());
    REQUIRE(meeting.rig.sim.run_until([&] { return all_ended(meeting, {1}); }, 1s));
    CHECK(meeting.outcomes[1]->status.code() == Code::failed_precondition);
}

TEST_CASE("nobody waits for one that has left the group before it came") {
    MeetingRig meeting(3);
    for (const std::uint32_t rank : {0u, 1u}) meeting.come(rank, "m", {}, {.timeout = 60s});
    meeting.rig.sim.run_for(50ms);
    const Group member = meeting.rig.group(2);
    REQUIRE(member.install(evict(meeting.rig.view(), 2).value()).ok());
    REQUIRE(meeting.rig.sim.run_until([&] { return all_ended(meeting, {0, 1}); }, 1s));
    CHECK(meeting.outcomes[0]->status.code() == Code::failed_precondition);
    check_same(*meeting.outcomes[0], *meeting.outcomes[1]);
}

TEST_CASE("a leader that restarts gathers anew, whoever waits still for his last life") {
    MeetingRig meeting(3);
    const auto come = [&](Runtime& runtime, std::uint32_t rank) {
        meeting.outcomes[rank].reset();
        runtime.group(meeting.rig.view())
            .value()
            .meet("m", {}, {.timeout = 20s},
                  [&meeting, rank](GroupOutcome all) { meeting.outcomes[rank] = std::move(all); });
    };
    // Asked in its first life: rank 1, that has come, and rank 2, that has not.
    come(*meeting.rig.sim.runtimes[0], 0);
    come(*meeting.rig.sim.runtimes[1], 1);
    meeting.rig.sim.run_for(50ms);
    meeting.rig.sim.kill("s0");
    Runtime& again = meeting.rig.sim.add("s0");
    REQUIRE(again.join(meeting.rig.view(), 0).ok());
    come(again, 0);
    // Rank 1 learns that its meeting is over, and comes again.
    REQUIRE(meeting.rig.sim.run_until([&] { return all_ended(meeting, {1}); }, 10s));
    CHECK_FALSE(meeting.outcomes[1]->status.ok());
    come(*meeting.rig.sim.runtimes[1], 1);
    come(*meeting.rig.sim.runtimes[2], 2);
    REQUIRE(meeting.rig.sim.run_until([&] { return meeting.ended() == 3; }, 15s));
    for (const auto& outcome : meeting.outcomes) {
        INFO(outcome->status.to_string());
        CHECK(outcome->status.ok());
    }
}

TEST_CASE("who was restarted meanwhile is not told that its value is one that it brought before") {
    // As a leader would, who had this rank's value from its last life, and asked it again.
    MeetingRig meeting(3);
    meeting.come(2, "m", as_bytes("new"), {.timeout = 60s});
    coll::Gathering gathering{method_hash("store"), 1, 77, 0, "m"};
    const RankSet two{2};
    const auto ask = [&](const MethodId& method, const std::vector<std::byte>& body) {
        std::optional<GroupOutcome> outcome;
        meeting.rig.group(-1).collective(method, BodyWriter::of(body),
                                         {.timeout = 5s, .include = &two},
                                         [&](GroupOutcome all) { outcome = std::move(all); });
        REQUIRE(meeting.rig.sim.run_until([&] { return outcome.has_value(); }, 6s));
        return *std::move(outcome);
    };
    const std::vector<std::byte> question = coll::encode(gathering);
    const GroupOutcome given = ask(MethodId("weft.Group/Gather"), question);
    CHECK(as_text(given.ranks[0].reply) == "new");

    GroupOutcome all;
    all.epoch = 1;
    const ByteView old = as_bytes("old");
    all.ranks.push_back({2, Status(), {old.begin(), old.end()}, 0});
    std::vector<std::byte> release = question;
    const std::vector<std::byte> told = coll::encode_outcome(all, false, 4096).value();
    release.insert(release.end(), told.begin(), told.end());
    ask(MethodId("weft.Group/Release"), release);
    REQUIRE(meeting.rig.sim.run_until([&] { return all_ended(meeting, {2}); }, 1s));
    CHECK(meeting.outcomes[2]->status.code() == Code::aborted);
    CHECK(meeting.outcomes[2]->status.effect() == Effect::unknown);
}

TEST_CASE("a leader who is cancelled ends it for all, another only his own") {
    MeetingRig meeting(4);
    const Group leader = meeting.rig.group(0);
    const Group member = meeting.rig.group(1);
    std::optional<GroupOutcome> led;
    std::optional<GroupOutcome> left;
    const CollectiveId leading =
        leader.meet("m", {}, {.timeout = 60s, .policy = Policy::best_effort},
                    [&](GroupOutcome all) { led = std::move(all); });
    const CollectiveId coming =
        member.meet("m", {}, {.timeout = 60s}, [&](GroupOutcome all) { left = std::move(all); });
    meeting.come(2, "m", {}, {.timeout = 60s});
    meeting.rig.sim.run_for(50ms);
    member.cancel(coming);
    meeting.rig.sim.run_for(50ms);
    REQUIRE(left.has_value());
    CHECK(left->status.code() == Code::cancelled);
    CHECK_FALSE(led.has_value());
    CHECK_FALSE(meeting.outcomes[2].has_value());
    leader.cancel(leading);
    meeting.rig.sim.run_for(200ms);
    REQUIRE(led.has_value());
    CHECK(led->status.code() == Code::cancelled);
    REQUIRE(meeting.outcomes[2].has_value());
    check_same(*led, *meeting.outcomes[2]);
    CHECK(meeting.left() == 0);
    member.cancel(coming);  // Long over.
    leader.cancel(leading);
}

TEST_CASE("options that can't be end a meeting at once for each who comes") {
    GroupCallOptions options{.timeout = 600s};
    SECTION("a quorum") {
        options.policy = Policy::quorum;
        options.quorum = 10;
    }
    SECTION("a reduction") {
        options.reduction = {Reduction::Operation::bit_or, Reduction::Number::f64};
    }
    SECTION("a tree") { options.topology = {.shape = Topology::Shape::k_ary, .fanout = 0}; }
    MeetingRig meeting(3);
    for (const std::uint32_t rank : {1u, 2u, 0u}) meeting.come(rank, "m", {}, options);
    meeting.rig.sim.run_for(100ms);
    REQUIRE(meeting.ended() == 3);
    for (const auto& outcome : meeting.outcomes) {
        CHECK(outcome->status.code() == Code::invalid_argument);
    }
}

TEST_CASE("a leader who cancels at any moment ends it for all that wait") {
    for (int us = 0; us < 40; us += 2) {
        INFO("after " << us << " us");
        MeetingRig meeting(4);
        for (const std::uint32_t rank : {1u, 2u}) meeting.come(rank, "m", {}, {.timeout = 600s});
        meeting.rig.sim.run_for(10ms);
        const Group leader = meeting.rig.group(0);
        const CollectiveId id = leader.meet("m", {}, {.timeout = 600s}, [&](GroupOutcome all) {
            meeting.outcomes[0] = std::move(all);
        });
        meeting.rig.sim.run_for(us * 1us);
        leader.cancel(id);
        if (us % 4 == 0) {  // Once more, while he tells.
            meeting.rig.sim.run_for(us / 4 * 1us);
            leader.cancel(id);
        }
        meeting.rig.sim.run_for(1s);
        REQUIRE(meeting.ended() == 3);
        for (const std::uint32_t rank : {0u, 1u, 2u}) {
            CHECK(meeting.outcomes[rank]->status.code() == Code::cancelled);
        }
    }
}

TEST_CASE("a leader who is cancelled while he tells does not wait for one who can't be reached") {
    MeetingRig meeting(3);
    GroupCallOptions options{.timeout = 600s};
    options.topology.shape = Topology::Shape::flat;
    const Group leader = meeting.rig.group(0);
    const CollectiveId leading = leader.meet("m", as_bytes("v"), options, [&](GroupOutcome all) {
        meeting.outcomes[0] = std::move(all);
    });
    meeting.come(2, "m", as_bytes("v"), options);
    meeting.rig.sim.run_for(50ms);  // He has given his value.
    meeting.rig.sim.world->cut("s0", "s2");
    meeting.come(1, "m", as_bytes("v"), options);
    REQUIRE(meeting.rig.sim.run_until([&] { return all_ended(meeting, {1}); }, 1s));
    meeting.rig.sim.run_for(500ms);
    CHECK(meeting.ended() == 1);
    leader.cancel(leading);
    meeting.rig.sim.run_for(10ms);
    REQUIRE(meeting.outcomes[0].has_value());
    CHECK(meeting.outcomes[0]->status.ok());
    CHECK_FALSE(meeting.outcomes[2].has_value());
    meeting.rig.sim.world->mend_all();
    REQUIRE(meeting.rig.sim.run_until([&] { return meeting.ended() == 3; }, 30s));
    for (const std::uint32_t rank : {1u, 2u}) {
        check_same(*meeting.outcomes[rank], *meeting.outcomes[0]);
    }
    CHECK(meeting.left() == 0);
}

TEST_CASE("a leader that dies after he was given the value leaves the effect unknown") {
    MeetingRig meeting(3);
    for (const std::uint32_t rank : {0u, 1u}) meeting.come(rank, "m", {}, {.timeout = 600s});
    meeting.rig.sim.run_for(100ms);
    meeting.rig.sim.kill("s0");
    REQUIRE(meeting.rig.sim.run_until([&] { return all_ended(meeting, {1}); }, 10s));
    CHECK(meeting.outcomes[1]->status.code() == Code::unavailable);
    CHECK(meeting.outcomes[1]->status.effect() == Effect::unknown);
}

TEST_CASE("who missed the end gets it though the others meet again under that name") {
    Holder holder;
    MeetingRig meeting(3, {.handlers_max = 8});
    REQUIRE(meeting.rig.sim.runtimes[1]->add(holder).ok());
    // Large, too.
    const std::string value(150'000, 'x');
    for (const std::uint32_t rank : {0u, 1u}) meeting.come(rank, "m", as_bytes(value));
    meeting.rig.sim.run_for(50ms);
    holder.fill(meeting, "sim://s1");
    meeting.come(2, "m", as_bytes(value));
    REQUIRE(meeting.rig.sim.run_until([&] { return all_ended(meeting, {0, 2}); }, 5s));
    CHECK_FALSE(meeting.outcomes[1].has_value());
    const GroupOutcome first = *std::move(meeting.outcomes[0]);
    holder.free();
    for (const std::uint32_t rank : {0u, 2u}) {
        meeting.outcomes[rank].reset();
        meeting.come(rank, "m", as_bytes("again"));
    }
    REQUIRE(meeting.rig.sim.run_until([&] { return all_ended(meeting, {1}); }, 5s));
    INFO(meeting.outcomes[1]->status.to_string());
    check_same(*meeting.outcomes[1], first);
    meeting.outcomes[1].reset();
    meeting.come(1, "m", as_bytes("again"));
    REQUIRE(meeting.rig.sim.run_until([&] { return meeting.ended() == 3; }, 5s));
    for (const auto& outcome : meeting.outcomes) CHECK(outcome->status.ok());
    holder.free();
}

TEST_CASE("after the end of its runtime a member meets nobody, and is told so") {
    int told = 0;
    std::weak_ptr<int> alive;
    {
        MeetingRig meeting(2);
        const auto token = std::make_shared<int>(1);
        alive = token;
        const Group group = meeting.rig.group(1);
        meeting.rig.sim.runtimes.erase(meeting.rig.sim.runtimes.begin() + 1);
        group.meet("m", {}, {.timeout = 1s}, [&told, token](const GroupOutcome& outcome) {
            CHECK(outcome.status.code() == Code::cancelled);
            ++told;
        });
        CHECK(told == 1);
    }
    CHECK(alive.expired());
}

TEST_CASE("a gathering that waits at a member ends with its runtime") {
    MeetingRig meeting(3);
    for (const std::uint32_t rank : {0u, 1u}) meeting.come(rank, "m", {});
    meeting.rig.sim.run_for(50ms);
    meeting.rig.sim.runtimes.erase(meeting.rig.sim.runtimes.begin() + 2);
    REQUIRE(meeting.rig.sim.run_until([&] { return all_ended(meeting, {0, 1}); }, 10s));
    REQUIRE(meeting.outcomes[0]->ranks.size() == 3);
    CHECK(meeting.outcomes[0]->ranks[2].status.code() == Code::unavailable);
}

TEST_CASE("messages of meetings that are cut short or wrong are refused") {
    const GroupView view =
        GroupView::make("g", 3, {{0, {"sim://a"}, 5}, {4, {"sim://b"}, 9}}).value();
    const coll::Gathering gathering{1, 3, 77, 4, "a name"};
    const std::vector<std::byte> bytes = coll::encode(gathering);
    ByteView rest;
    const Result<coll::Gathering> back = coll::decode_gathering(bytes, &rest);
    REQUIRE(back.ok());
    CHECK(back->round == 77);
    CHECK(back->leader == 4);
    CHECK(back->name == "a name");
    CHECK(rest.empty());
    for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
        CHECK_FALSE(coll::decode_gathering(ByteView(bytes).first(cut), &rest).ok());
    }
    const std::string longer(coll::Gathering::name_bytes_max + 1, 'x');
    CHECK_FALSE(
        coll::decode_gathering(coll::encode(coll::Gathering{1, 3, 7, 4, longer}), &rest).ok());

    GroupOutcome outcome;
    outcome.epoch = 3;
    outcome.status = fail(Code::unavailable, "why").with_effect(Effect::unknown);
    outcome.ranks.push_back({0, Status(), {}, 5});
    outcome.ranks.push_back({4, fail(Code::unavailable, "why"), {}, 9});
    const std::vector<std::byte> told = coll::encode_outcome(outcome, false, 4096).value();
    const Result<GroupOutcome> heard = coll::decode_outcome(told, view);
    REQUIRE(heard.ok());
    REQUIRE(heard->ranks.size() == 2);
    CHECK(heard->ranks[1].rank == 4);
    CHECK(heard->ranks[1].incarnation == 9);
    CHECK(heard->status.effect() == Effect::unknown);
    for (std::size_t cut = 0; cut < told.size(); ++cut) {
        const Result<GroupOutcome> some = coll::decode_outcome(ByteView(told).first(cut), view);
        if (some.ok()) CHECK(some->ranks.size() < 2);  // Cut between two ranks.
    }
    GroupOutcome many;
    for (std::uint32_t rank = 0; rank < 5000; ++rank) many.ranks.push_back({rank, Status(), {}, 0});
    CHECK_FALSE(coll::decode_outcome(*coll::encode_outcome(many, false, 4096), view).ok());
    CHECK_FALSE(coll::encode_outcome(outcome, false, told.size() - 1).has_value());
    CHECK(coll::encode_outcome(outcome, false, told.size()).has_value());

    const std::vector<std::byte> seen = coll::encode(coll::Seen{coll::Seen::State::over, told});
    REQUIRE(coll::decode_seen(seen).ok());
    CHECK(coll::decode_seen(seen)->outcome.size() == told.size());
    CHECK_FALSE(coll::decode_seen(ByteView()).ok());
    std::vector<std::byte> odd = seen;
    odd[0] = std::byte{4};
    CHECK_FALSE(coll::decode_seen(odd).ok());
}
