// Differences between views, and views of the next epoch.
#include <algorithm>
#include <map>

#include "base/random.h"
#include "support/catch.h"
#include "support/child.h"
#include "support/random_view.h"
#include "support/seed.h"

using namespace weft;
using Catch::Matchers::Contains;
using Cause = MemberChange::Cause;

namespace {

GroupView view_of(std::uint64_t epoch, std::vector<Member> members) {
    return GroupView::make("store", epoch, std::move(members)).value();
}

// Makes the later view from the earlier one and the changes. Changes carry no addresses, so these
// are taken from the later view.
GroupView apply(const GroupView& before, const GroupView& after,
                const std::vector<MemberChange>& changes) {
    std::map<std::uint32_t, Member> members;
    for (const Member& member : before.members()) members[member.rank] = member;
    for (const MemberChange& change : changes) {
        REQUIRE(change.epoch == after.epoch());
        Member& member = members[change.rank];
        switch (change.cause) {
            case Cause::joined: REQUIRE(before.find(change.rank) == nullptr); [[fallthrough]];
            case Cause::restarted:
                member = {change.rank, after.find(change.rank)->uris, change.incarnation, false};
                break;
            case Cause::moved: member.uris = after.find(change.rank)->uris; break;
            case Cause::draining: member.draining = true; break;
            case Cause::resumed: member.draining = false; break;
            case Cause::left:
                REQUIRE(change.incarnation == member.incarnation);
                members.erase(change.rank);
                continue;
        }
        REQUIRE(change.incarnation == member.incarnation);
    }
    std::vector<Member> all;
    for (auto& [rank, member] : members) all.push_back(member);
    return GroupView::make(after.name(), after.epoch(), std::move(all)).value();
}

// Each rank is the same in both views, differs, or is in one of the two only.
GroupView next_of(const GroupView& before, base::Random& random) {
    std::map<std::uint32_t, Member> members;
    for (const Member& member : before.members()) {
        if (random.next() % 4 != 0) members[member.rank] = member;
    }
    for (const Member& member : test::random_members(random)) {
        if (random.next() % 2 == 0) members[member.rank] = member;
    }
    for (auto& [rank, member] : members) {
        if (random.next() % 4 == 0) member.draining = !member.draining;
        if (random.next() % 4 == 0) member.uris.front() = "sm://moved-" + std::to_string(rank);
    }
    std::vector<Member> all;
    for (auto& [rank, member] : members) all.push_back(member);
    if (all.empty()) all.push_back(before.at(0));
    return GroupView::make(before.name(), before.epoch() + 1, std::move(all)).value();
}

Status status_of(const Result<GroupView>& view) { return view.status(); }

}  // namespace

TEST_CASE("the changes between two views turn the earlier one into the later one") {
    for (std::uint64_t run = 0; run < 2000; ++run) {
        const std::uint64_t seed = test::seed_of(run);
        INFO("TEST_SEED=" << seed);
        base::SeededRandom random(seed);
        const GroupView before = test::random_view(random);
        const GroupView after = next_of(before, random);
        const std::vector<MemberChange> changes = changes_between(before, after);
        REQUIRE(test::are_equal(apply(before, after, changes), after));
        REQUIRE(std::is_sorted(changes.begin(), changes.end(),
                               [](const auto& a, const auto& b) { return a.rank < b.rank; }));
        REQUIRE(changes_between(after, after).empty());
    }
}

TEST_CASE("each cause of a change has its name") {
    const GroupView before = view_of(4, {{1, {"sm://a"}, 1, false},
                                         {2, {"sm://b"}, 1, false},
                                         {3, {"sm://c"}, 1, false},
                                         {4, {"sm://d"}, 1, true},
                                         {9, {"sm://e"}, 3, false}});
    const GroupView after = view_of(6, {{0, {"sm://z"}, 6, true},
                                        {1, {"sm://a"}, 5, false},
                                        {2, {"sm://other"}, 1, true},
                                        {3, {"sm://c"}, 1, false},
                                        {4, {"sm://d"}, 1, false}});
    const std::vector<MemberChange> changes = changes_between(before, after);
    CHECK(changes == std::vector<MemberChange>{{6, 0, 6, Cause::joined},
                                               {6, 0, 6, Cause::draining},
                                               {6, 1, 5, Cause::restarted},
                                               {6, 2, 1, Cause::moved},
                                               {6, 2, 1, Cause::draining},
                                               {6, 4, 1, Cause::resumed},
                                               {6, 9, 3, Cause::left}});
    std::string names;
    for (const MemberChange& change : changes) names += std::string(name_of(change.cause)) + " ";
    CHECK(names == "joined draining restarted moved draining resumed left ");
    CHECK(name_of(static_cast<Cause>(99)) == "unknown");
}

TEST_CASE("changes_between() aborts for views of different groups") {
    const GroupView one = GroupView::make("one", 1, {{0, {"sm://a"}}}).value();
    const GroupView other = GroupView::make("other", 2, {{0, {"sm://a"}}}).value();
    CHECK(test::end_of_child([&] { return changes_between(one, other).empty() ? 0 : 1; }) ==
          -SIGABRT);
}

TEST_CASE("a rank is evicted, drained and admitted in the next epoch") {
    const GroupView view = view_of(7, {{2, {"sm://a"}, 1, false}, {5, {"sm://b"}, 4, false}});
    const GroupView without = evict(view, 2).value();
    CHECK(without.epoch() == 8);
    CHECK(without.members() == std::vector<Member>{{5, {"sm://b"}, 4, false}});
    const GroupView draining = drain(view, 5).value();
    CHECK(draining.epoch() == 8);
    CHECK(draining.find(5)->draining);
    CHECK_FALSE(draining.find(2)->draining);
    const GroupView more = admit(view, {3, {"sm://c"}, 0, false}).value();
    CHECK(more.size() == 3);
    CHECK(*more.find(3) == Member{3, {"sm://c"}, 8, false});
    // Several ranks at once.
    const GroupView both = drain(view, RankSet{5, 2}).value();
    CHECK(both.epoch() == 8);
    CHECK((both.find(5)->draining && both.find(2)->draining));
    const GroupView first_only = evict(more, RankSet{5, 3}).value();
    CHECK(first_only.epoch() == 9);
    CHECK(first_only.members() == std::vector<Member>{{2, {"sm://a"}, 1, false}});
    // Admitted again, as a later incarnation.
    const GroupView again = admit(draining, {5, {"sm://d"}, 9, false}).value();
    CHECK(*again.find(5) == Member{5, {"sm://d"}, 9, false});
    CHECK(changes_between(draining, again) ==
          std::vector<MemberChange>{{9, 5, 9, Cause::restarted}});
    // A rank that has left is admitted like any other one.
    CHECK(admit(without, {2, {"sm://a"}, 0, false}).value().find(2)->incarnation == 9);
}

TEST_CASE("an impossible change is refused with the reason") {
    const GroupView view = view_of(7, {{2, {"sm://a"}, 3, false}});
    CHECK(status_of(evict(view, 1)).to_string() ==
          "NOT_FOUND: group 'store' has no rank 1 in epoch 7");
    CHECK(status_of(drain(view, 1)).code() == Code::not_found);
    const Status last = status_of(evict(view, 2));
    CHECK(last.code() == Code::failed_precondition);
    CHECK_THAT(last.to_string(), Contains("group 'store' would have no member left"));
    CHECK(status_of(evict(view, RankSet{})).code() == Code::invalid_argument);
    CHECK(status_of(drain(view, RankSet{})).to_string() ==
          "INVALID_ARGUMENT: the change names no rank");
    RankSet all;
    all.add(0, UINT32_MAX);
    CHECK_THAT(status_of(evict(view, all)).to_string(), Contains("no rank 0"));
    CHECK_THAT(status_of(drain(view, RankSet{2, UINT32_MAX})).to_string(),
               Contains("no rank 4294967295 in epoch 7"));
    for (const std::uint64_t incarnation : {0, 2, 3}) {
        const Status there = status_of(admit(view, {2, {"sm://b"}, incarnation, false}));
        CHECK(there.code() == Code::already_exists);
        CHECK_THAT(there.to_string(), Contains("rank 2 already, in incarnation 3"));
    }
    CHECK(status_of(admit(view, {3, {}, 0, false})).code() == Code::invalid_argument);
    CHECK(status_of(admit(view, {3, {"nonsense"}, 0, false})).code() == Code::invalid_argument);

    const GroupView at_the_end = view_of(UINT64_MAX, {{0, {"sm://a"}}, {1, {"sm://b"}}});
    CHECK(status_of(evict(at_the_end, 0)).code() == Code::resource_exhausted);
    CHECK(status_of(drain(at_the_end, 0)).code() == Code::resource_exhausted);
    CHECK(status_of(admit(at_the_end, {2, {"sm://c"}})).code() == Code::resource_exhausted);
}
