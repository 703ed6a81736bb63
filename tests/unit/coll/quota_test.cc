// One paused rank, or one client of many, costs the others no room on the ranks below.
#include <weft/sim.h>

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "support/catch.h"
#include "support/group_rig.h"

using namespace weft;
using test::GroupRig;

namespace coll_quota {

GroupCallOptions in_pairs(Duration timeout) {
    GroupCallOptions options{.timeout = timeout};
    options.topology = {.shape = Topology::Shape::k_ary, .fanout = 2};
    return options;
}

// Counts its requests.
class Pushed final : public Service {
  public:
    static constexpr MethodId method{"test.Room/Push"};
    std::uint64_t ran = 0;
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(method,
                      [this](Call call) {
                          ++ran;
                          call.reply({});
                      },
                      {.collective = true});
    }
};

struct Cluster {
    explicit Cluster(std::uint32_t n) : services(n) {
        std::vector<Member> members;
        for (std::uint32_t rank = 0; rank < n; ++rank) {
            members.push_back({rank, {"sim://r" + std::to_string(rank)}});
        }
        view = GroupView::make("room", 1, std::move(members)).value();
        for (std::uint32_t rank = 0; rank < n; ++rank) {
            simulation.add("r" + std::to_string(rank), [this, rank](Runtime& runtime) {
                REQUIRE(runtime.serve(services[rank], "sim://r" + std::to_string(rank)).ok());
                REQUIRE(runtime.join(*view, rank).ok());
                return nullptr;
            });
        }
        simulation.add("client", [](Runtime&) { return nullptr; });
        group = simulation.runtime("client")->group(*view).value();
    }
    void push(const GroupCallOptions& options) {
        ++begun;
        group->collective(Pushed::method, BodyWriter{}, options, [this](GroupOutcome outcome) {
            ++over;
            if (!outcome.status.ok()) ++failed[outcome.status.to_string()];
            for (const RankOutcome& one : outcome.ranks) {
                refused += one.rank != 2 && one.status.code() == Code::resource_exhausted;
            }
        });
    }

    std::vector<Pushed> services;
    weft::sim::Simulation simulation{1};
    std::optional<GroupView> view;
    std::optional<Group> group;
    std::uint64_t begun = 0;
    std::uint64_t over = 0;
    std::uint64_t refused = 0;  // By ranks that are not paused.
    std::map<std::string, int> failed;
};

TEST_CASE("coll quota: quorums run on every healthy rank when one rank is paused") {
    const bool is_deep = GENERATE(false, true);
    Cluster cluster(is_deep ? 7 : 3);
    GroupCallOptions options{.timeout = 30s, .policy = Policy::quorum};
    if (is_deep) options.topology = {.shape = Topology::Shape::k_ary, .fanout = 2};
    cluster.push(options);
    cluster.simulation.run_for(1s);
    cluster.simulation.pause("r2");
    // More than the share of one client, in less time than the timeout of each.
    for (int i = 0; i < 20'000; ++i) {
        cluster.push(options);
        cluster.simulation.run_for(1ms);
    }
    cluster.simulation.run_for(1s);
    CHECK(cluster.over == cluster.begun);
    CHECK(cluster.failed.empty());
    CHECK(cluster.refused == 0);
    for (std::uint32_t rank = 0; rank < cluster.services.size(); ++rank) {
        INFO("rank " << rank);
        if (rank != 2) CHECK(cluster.services[rank].ran == cluster.begun);
        Runtime* const runtime = cluster.simulation.runtime("r" + std::to_string(rank));
        if (rank != 2) CHECK(impl_of(*runtime).collectives.known() <= 16'384);
    }
    // The paused rank resumes: it runs the requests with time left, and none twice.
    cluster.simulation.resume("r2");
    cluster.simulation.run_for(40s);
    CHECK(cluster.services[2].ran <= cluster.begun);
    CHECK(cluster.services[2].ran > 1);
}

TEST_CASE("coll quota: a client that leaves much state behind excludes no other client") {
    const std::uint64_t lasts = GENERATE(std::uint64_t{600'000'000'000}, UINT64_MAX);
    GroupRig rig(7);
    REQUIRE(rig.call(rig.group(-1), "x", in_pairs(5s)).status.ok());
    {
        Runtime& hostile = rig.sim.add("");
        Channel channel = hostile.connect("sim://s0").value();
        coll::ForwardHeader header;
        header.view = rig.view().digest();
        header.group = method_hash(rig.view().name());
        header.method = test::record_method.hash;
        header.last = 7;
        header.tree = {coll::Shape::k_ary, 2, 0};
        header.progress_interval_us = 1'000'000;
        header.time_limit_ns = lasts;
        for (std::uint16_t i = 1; i <= 16'500; ++i) {
            header.key = {1234, i};
            header.unacknowledged = i;
            header.began = impl_of(*rig.sim.runtimes[0]).collectives.clock_reading();
            const coll::ForwardParts parts{header, {}, {}, {}};
            std::vector<std::byte> bytes(parts.bytes());
            coll::encode_forward(parts, bytes);
            channel.call(coll::forward_method, bytes, {.timeout = 600s},
                         [](const Status&, ByteView) {});
            if (i % 200 == 0) rig.sim.run_for(100ms);
        }
        rig.sim.run_for(100ms);
    }
    rig.sim.runtimes.pop_back();
    rig.sim.run_for(20s);
    Runtime& honest = rig.sim.add("");
    const Group group = honest.group(rig.view()).value();
    const GroupOutcome outcome = rig.call(group, "y", in_pairs(5s));
    CHECK(outcome.status.to_string() == "OK");
    for (std::size_t rank = 0; rank < 7; ++rank) {
        CHECK(impl_of(*rig.sim.runtimes[rank]).collectives.known() <= 16'384);
    }
}

TEST_CASE("coll quota: the running collectives of a client leave room for those of others") {
    GroupRig rig(7);
    for (auto& service : rig.services) service.hold = true;
    std::size_t over = 0;
    std::map<std::string, int> failed;
    std::size_t begun = 0;
    // Together more than one client may have.
    for (std::size_t client = 0; client < 4; ++client) {
        const Group group = rig.sim.add("").group(rig.view()).value();
        for (std::size_t i = 0; i < 500; ++i) {
            ++begun;
            group.collective(test::record_method, BodyWriter{}, in_pairs(20s),
                             [&](GroupOutcome outcome) {
                                 ++over;
                                 if (!outcome.status.ok()) ++failed[outcome.status.to_string()];
                             });
        }
    }
    rig.sim.run_for(1s);
    for (auto& service : rig.services) {
        CHECK(service.held.size() == begun);
        service.hold = false;
    }
    rig.reply_held();
    REQUIRE(rig.sim.run_until([&] { return over == begun; }, 30s));
    for (const auto& [why, count] : failed) UNSCOPED_INFO(count << " of " << why);
    CHECK(failed.empty());
}

}  // namespace coll_quota
