// Collectives while the group changes.
#include <map>
#include <set>

#include "support/catch.h"
#include "support/group_rig.h"
#include "support/seed.h"

using namespace weft;
using test::GroupRig;

namespace {

// Installs the view on every rank but those in `but`.
void install(GroupRig& rig, const GroupView& view, const std::set<std::uint32_t>& but = {}) {
    for (std::uint32_t rank = 0; rank < rig.size; ++rank) {
        if (but.count(rank)) continue;
        REQUIRE(rig.group(static_cast<int>(rank)).install(view).ok());
    }
}

}  // namespace

TEST_CASE("a client with an old view learns the new one from the refusal and restarts by itself") {
    GroupRig rig(8);
    const Group group = rig.group(-1);
    std::vector<MemberChange> heard;
    group.on_change([&](const MemberChange& change) { heard.push_back(change); });
    const GroupView later = evict(evict(rig.view(), 3).value(), 6).value();
    install(rig, later);
    const GroupOutcome outcome = rig.call(group, "x");
    CHECK(outcome.status.ok());
    CHECK(outcome.epoch == 3);
    CHECK(outcome.ranks.size() == 6);
    for (const RankOutcome& one : outcome.ranks) CHECK(one.status.ok());
    for (std::uint32_t rank = 0; rank < 8; ++rank) {
        CHECK(rig.services[rank].received.size() == (rank == 3 || rank == 6 ? 0 : 1));
    }
    CHECK(group.view().epoch() == 3);
    rig.sim.run_until_idle();
    REQUIRE(heard.size() == 2);
    CHECK(heard[0] == MemberChange{3, 3, 0, MemberChange::Cause::left});
    CHECK(heard[1] == MemberChange{3, 6, 0, MemberChange::Cause::left});
    CHECK(rig.call(group, "y").ranks.size() == 6);
}

TEST_CASE("members with different views take part by name, each rank once") {
    for (std::uint64_t run = 0; run < 60; ++run) {
        const std::uint64_t seed = test::seed_of(run);
        INFO("TEST_SEED=" << seed);
        base::SeededRandom random(seed);
        const auto n = static_cast<std::uint32_t>(2 + random.next() % 30);
        GroupRig rig(n);
        // The view of some members is later by one draining rank, which both views contain.
        const auto drained = static_cast<std::uint32_t>(random.next() % n);
        const GroupView later = drain(rig.view(), drained).value();
        std::set<std::uint32_t> behind;
        for (std::uint32_t rank = 0; rank < n; ++rank) {
            if (random.next() % 2) behind.insert(rank);
        }
        const int caller = random.next() % 3 == 0 ? -1 : static_cast<int>(random.next() % n);
        const Group group = rig.group(caller);
        install(rig, later, behind);
        const bool is_late = caller >= 0 && !behind.count(static_cast<std::uint32_t>(caller));
        const GroupOutcome outcome = rig.call(group, "x", {.timeout = 10s});
        CHECK(outcome.status.ok());
        const bool learnt = outcome.epoch == 2;
        if (is_late) CHECK(learnt);
        CHECK(outcome.ranks.size() == n - learnt);
        for (const RankOutcome& one : outcome.ranks) {
            INFO("rank " << one.rank << ": " << one.status.to_string());
            CHECK(one.status.ok());
            CHECK(rig.services[one.rank].received.size() == 1);
        }
        if (learnt) CHECK(rig.services[drained].received.empty());
    }
}

TEST_CASE("a rank that has left the group refuses, and other ranks reach its subtree") {
    const std::uint32_t n = 24;
    for (std::uint32_t gone = 0; gone < n; ++gone) {
        GroupRig rig(n);
        const Group group = rig.group(gone == 0 ? 1 : 0);
        // Only this rank has the view.
        REQUIRE(rig.group(static_cast<int>(gone)).install(evict(rig.view(), gone).value()).ok());
        const GroupOutcome outcome = rig.call(group, "x");
        for (const RankOutcome& one : outcome.ranks) {
            INFO("rank " << one.rank << " of " << n << ": " << one.status.to_string());
            CHECK(one.status.ok() == (one.rank != gone));
        }
        CHECK(outcome.ranks[gone].status.code() == Code::failed_precondition);
        CHECK(outcome.ranks[gone].status.effect() == Effect::none);
        CHECK(rig.services[gone].received.empty());
    }
}

TEST_CASE("a request for another incarnation of a rank is refused") {
    GroupRig rig(5);
    const auto with = [&](std::uint64_t epoch, std::uint64_t incarnation) {
        std::vector<Member> members = rig.view().members();
        members[2].incarnation = incarnation;
        return GroupView::make("store", epoch, members).value();
    };
    install(rig, with(2, 7));
    // The caller has a view that is no earlier, with another incarnation of rank 2.
    const Group group = rig.client->group(with(2, 6)).value();
    const GroupOutcome outcome = rig.call(group, "x");
    for (const RankOutcome& one : outcome.ranks) {
        INFO("rank " << one.rank << ": " << one.status.to_string());
        CHECK(one.status.ok() == (one.rank != 2));
    }
    CHECK(outcome.ranks[2].status.code() == Code::failed_precondition);
    CHECK(outcome.ranks[2].incarnation == 6);
}

TEST_CASE("a view that is not later is refused, and so is the view of another group") {
    GroupRig rig(3);
    const Group group = rig.group(1);
    CHECK(group.install(rig.view()).code() == Code::aborted);
    CHECK(group.install(GroupView::make("other", 9, rig.view().members()).value()).code() ==
          Code::invalid_argument);
    CHECK(group.install(drain(rig.view(), 2).value()).ok());
    CHECK(group.view().epoch() == 2);
}

TEST_CASE("a draining rank takes part only in new collectives that name it") {
    GroupRig rig(6);
    install(rig, drain(rig.view(), 4).value());
    const Group group = rig.group(0);
    CHECK(rig.call(group, "x").ranks.size() == 5);
    const RankSet named{4};
    const GroupOutcome outcome = rig.call(group, "y", {.include = &named});
    REQUIRE(outcome.ranks.size() == 1);
    CHECK(outcome.ranks[0].status.ok());
    CHECK(rig.services[4].received == std::vector<std::string>{"y"});
    CHECK(rig.call(rig.group(4), "z").ranks.size() == 5);  // Rank 4 may still call the others.
}

TEST_CASE("changes are reported in order, and a listener may call anything") {
    GroupRig rig(4);
    const Group group = rig.group(0);
    std::vector<MemberChange> heard;
    int calls = 0;
    group.on_change([&](const MemberChange& change) {
        heard.push_back(change);
        CHECK_FALSE(group.install(rig.view()).ok());
        group.collective(test::record_method, BodyWriter::of(as_bytes("x")), {},
                         [&](const GroupOutcome&) { ++calls; });
        group.on_change([](const MemberChange&) {});
    });
    GroupView view = rig.view();
    view = evict(view, 3).value();
    REQUIRE(group.install(view).ok());
    view = drain(view, 1).value();
    REQUIRE(group.install(view).ok());
    view = admit(view, {9, {"sim://s3"}}).value();
    REQUIRE(group.install(view).ok());
    rig.sim.run_for(5s);
    REQUIRE(heard.size() == 3);
    CHECK(heard[0] == MemberChange{2, 3, 0, MemberChange::Cause::left});
    CHECK(heard[1] == MemberChange{3, 1, 0, MemberChange::Cause::draining});
    CHECK(heard[2] == MemberChange{4, 9, 4, MemberChange::Cause::joined});
    CHECK(calls == 3);
}

TEST_CASE("a group that no rank has joined is an error with the text of the refusals") {
    GroupRig rig(3);
    const Group group =
        rig.client->group(GroupView::make("other", 1, rig.view().members()).value()).value();
    const GroupOutcome outcome = rig.call(group, "x");
    CHECK(outcome.status.code() == Code::failed_precondition);
    CHECK(outcome.status.text().find("'other'") != std::string_view::npos);
    CHECK(outcome.status.text().find("Runtime::join()") != std::string_view::npos);
    for (const RankOutcome& one : outcome.ranks) CHECK(one.status.effect() == Effect::none);
}

TEST_CASE("a client between two views continues by name when an old view refuses last") {
    const std::uint32_t n = 12;
    GroupRig rig(n);
    const GroupView second = drain(rig.view(), 3).value();
    const GroupView third = drain(second, 5).value();
    for (std::uint32_t late = 0; late < n; ++late) {
        INFO("rank " << late);
        GroupRig fresh(n);
        install(fresh, third, {late});
        const Group group = fresh.client->group(second).value();
        const GroupOutcome outcome = fresh.call(group, "x", {.timeout = 10s});
        CHECK(outcome.status.ok());
        CHECK(outcome.ranks.size() == (outcome.epoch == 2 ? n - 1 : n - 2));
    }
}
