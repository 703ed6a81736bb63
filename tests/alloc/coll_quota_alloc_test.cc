// The resources of a member that collectives take are returned when memory fails, and the cost of
// their rank order does not depend on their root.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "alloc/counting_new.h"
#include "coll/collective_table.h"
#include "coll/pending.h"
#include "coll/resource_quota.h"
#include "coll/wire.h"
#include "support/catch.h"
#include "support/group_rig.h"
#include "support/raw_echo.h"

using namespace weft;

namespace {

constexpr std::size_t body_bytes = 5'000'000;

GroupOutcome tell(test::GroupRig& rig, const Group& group, const std::string& text,
                  std::uint64_t* failed = nullptr) {
    GroupCallOptions options{.timeout = 5s};
    options.topology = {.shape = Topology::Shape::k_ary, .fanout = 2};
    std::optional<GroupOutcome> outcome;
    group.collective(test::record_method, BodyWriter::of(as_bytes(text)), options,
                     [&](GroupOutcome all) { outcome = std::move(all); });
    const test::FailingNew failing(test::FailingNew::none, failed ? body_bytes : 0);
    REQUIRE(rig.sim.run_until([&] { return outcome.has_value(); }, 60s));
    if (failed) *failed += failing.failed();
    return *std::move(outcome);
}

struct StoredCollective {
    bool running = true;
    bool awaits_others = false;
    coll::ClientKey client;
    TimePoint known_since{};
    TimePoint keep_until = never;
    std::vector<std::byte> subtree_reply;
    std::vector<std::byte> own_reply;
};

}  // namespace

TEST_CASE("a member releases a collective's quota when the allocation of its body fails") {
    if (!test::allocations_count()) return;
    test::GroupRig rig(6);
    const Group group = rig.group(-1);
    const std::string body(body_bytes, 'x');
    REQUIRE(tell(rig, group, body).status.ok());
    std::uint64_t failed = 0;
    // More than a rank's quota of bytes and of methods.
    for (int i = 0; i < 60; ++i) {
        const GroupOutcome outcome = tell(rig, group, body, &failed);
        REQUIRE_FALSE(outcome.status.ok());
        for (const RankOutcome& one : outcome.ranks) {
            if (one.status.ok()) continue;
            INFO(one.rank << ": " << one.status.to_string());
            CHECK(one.status.code() == Code::resource_exhausted);
            CHECK(one.status.effect() == Effect::none);
        }
    }
    CHECK(failed >= 60);
    const GroupOutcome after = tell(rig, group, body);
    INFO(after.status.to_string());
    CHECK(after.status.ok());
    CHECK(rig.running() == 0);
}

TEST_CASE("a collective ends when its requests find no memory for the records of their calls") {
    if (!test::allocations_count()) return;
    test::GroupRig rig(6);
    const Group group = rig.group(-1);
    // A block of records, with the count that new[] stores in front. No call was made before.
    constexpr std::size_t block_bytes = 64 * sizeof(rpc::CallEntry) + sizeof(std::size_t);
    std::optional<GroupOutcome> outcome;
    {
        const test::FailingNew failing(test::FailingNew::none, block_bytes);
        group.collective(test::record_method, BodyWriter::of(as_bytes("text")), {.timeout = 5s},
                         [&](GroupOutcome all) { outcome = std::move(all); });
        REQUIRE(rig.sim.run_until([&] { return outcome.has_value(); }, 60s));
        CHECK(failing.failed() > 0);
    }
    INFO(outcome->status.to_string());
    CHECK(outcome->status.code() == Code::resource_exhausted);
    CHECK(outcome->status.effect() == Effect::none);
    CHECK(rig.running() == 0);
    CHECK(node_of(*rig.client).client.is_balanced());
    CHECK(tell(rig, group, "again").status.ok());
}

TEST_CASE("a collective takes no table entry when its allocation fails") {
    if (!test::allocations_count()) return;
    using CollectiveTable = coll::CollectiveTable<StoredCollective>;
    const coll::ClientKey client({1, 2}, 3);
    const auto make = [&] {
        auto made = std::make_shared<StoredCollective>();
        made->client = client;
        return made;
    };
    const bool is_first = GENERATE(true, false);  // Its origin's first.
    int failures = 0;
    for (std::uint64_t behind = 0;; ++behind) {
        CollectiveTable known(7);
        if (!is_first) known.add({5, 1}, 0, TimePoint(), make());
        const std::size_t collectives = known.collectives(), origins = known.origins();
        const std::size_t clients = known.clients();
        const std::shared_ptr<StoredCollective> added = make();
        bool throws = false;
        {
            const test::FailingNew failing(behind);
            try {
                known.add({5, 2}, 0, TimePoint(), added);
            } catch (const std::bad_alloc&) {
                throws = true;
            }
        }
        if (!throws) break;
        ++failures;
        CHECK(known.collectives() == collectives);
        CHECK(known.origins() == origins);
        CHECK(known.clients() == clients);
        CHECK(known.lookup({5, 2}, 0, TimePoint(), client.peer) == CollectiveTable::Lookup::fresh);
        known.add({5, 2}, 0, TimePoint(), added);
        added->running = false;
        known.drop({5, 2});
        CHECK(known.clients() == clients);
    }
    CHECK(failures >= (is_first ? 4 : 1));
}

TEST_CASE("a pending gather takes no slot when its allocation fails") {
    if (!test::allocations_count()) return;
    const coll::ClientKey client({1, 2}, 3);
    int failures = 0;
    for (std::uint64_t behind = 0;; ++behind) {
        coll::Pending<int> pending;
        bool throws = false;
        {
            const test::FailingNew failing(behind);
            try {
                const coll::Pending<int>::Slot slot = pending.add(client, 7);
            } catch (const std::bad_alloc&) {
                throws = true;
            }
        }
        CHECK(pending.size() == 0);
        CHECK(pending.peers() == 0);
        if (!throws) break;
        ++failures;
        CHECK_FALSE(pending.eviction_candidate(client.peer));
    }
    CHECK(failures >= 3);
}

TEST_CASE("a client's share of the quota is not taken when its counter can't be allocated") {
    if (!test::allocations_count()) return;
    const coll::ClientKey client({1, 2}, 3);
    int failures = 0;
    for (std::uint64_t behind = 0;; ++behind) {
        const auto quota = std::make_shared<coll::ResourceQuota>();
        int thrown = 0;
        for (const bool is_nonmember : {true, false}) {
            const test::FailingNew failing(behind);
            try {
                if (is_nonmember) {
                    (void)quota->take(client);
                } else {
                    const coll::ResourceQuota::Reservation reservation(quota, client, 100);
                }
            } catch (const std::bad_alloc&) {
                ++thrown;
            }
        }
        failures += thrown;
        for (const coll::ClientKey& one : {client, coll::ClientKey(client.peer)}) {
            CHECK(quota->of(one).running == 0);
            CHECK(quota->of(one).nonmembers == 0);
            CHECK(quota->of(one).bytes == 0);
        }
        CHECK(quota->bytes() == 0);
        std::vector<coll::ResourceQuota::NonmemberSlot> taken;  // All slots, by others.
        while (auto place = quota->take(coll::ClientKey({taken.size(), 9}))) {
            taken.push_back(*std::move(place));
        }
        CHECK(taken.size() == coll::ResourceQuota::nonmembers_max);
        if (thrown == 0) break;
    }
    CHECK(failures == 4);
}

TEST_CASE("a request by host costs a member the same as one in rank order, for every root") {
    if (!test::allocations_count()) return;
    constexpr std::uint32_t n = 2000;
    test::SimRig rig;
    Runtime& server = rig.add("s0");
    Runtime& client = rig.add("");
    std::vector<Member> members;
    for (std::uint32_t rank = 0; rank < n; ++rank) {
        members.push_back(
            {rank,
             {"tcp://host" + std::to_string(rank / 8) + ":" + std::to_string(7000 + rank % 8)}});
    }
    const GroupView view = GroupView::make("store", 1, members).value();
    REQUIRE(server.join(view, 0).ok());
    const Channel channel = client.connect("sim://s0").value();
    std::uint64_t sequence = 0;
    // Allocations of 100 requests, each with another root, none of which is meant for rank 0.
    const auto count = [&](bool by_host, std::vector<RankSet::Range> ranges) {
        constexpr std::uint32_t requests = 100;
        std::uint32_t answered = 0, refused = 0;
        const std::uint64_t before = test::allocations();
        for (std::uint32_t i = 0; i < requests; ++i) {
            coll::ForwardParts parts;
            parts.header.view = view.digest();
            parts.header.group = method_hash("store");
            parts.header.epoch = 1;
            parts.header.key = {7, ++sequence};
            parts.header.method = test::echo_method.hash;
            parts.header.began = impl_of(server).collectives.clock_reading();
            parts.header.time_limit_ns = 10'000'000'000;
            parts.header.root = 1 + i;
            parts.header.first = 20;
            parts.header.last = 21;
            parts.header.tree = {coll::Shape::k_ary, 2, 0};
            parts.header.flags = by_host ? coll::ForwardHeader::by_host : 0;
            parts.ranges = ranges;
            std::vector<std::byte> bytes(parts.bytes());
            coll::encode_forward(parts, bytes);
            channel.call(coll::forward_method, bytes, {}, [&](const Status& status, ByteView) {
                ++answered;
                refused += status.code() == Code::failed_precondition;
            });
            REQUIRE(rig.run_until([&] { return answered == i + 1; }));
        }
        CHECK(refused == requests);
        return test::allocations() - before;
    };
    (void)count(true, {});  // The order by host is computed once per view.
    const std::uint64_t plain = count(false, {});
    CHECK(count(true, {}) <= plain + 20);
    // A choice of all ranks equals no choice.
    const std::uint64_t with_range = count(false, {{0, UINT32_MAX}});
    CHECK(with_range <= plain + 300);
    CHECK(count(true, {{0, UINT32_MAX}}) <= with_range + 20);
    // A choice of some ranks reads no name again, so that the count does not grow with the group.
    CHECK(count(true, {{0, n - 2}}) <= with_range + 1500);
}
