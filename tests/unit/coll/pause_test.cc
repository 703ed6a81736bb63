// Processes that are paused for longer than any rank remembers a collective, with messages left in
// their sockets: in one run of a rank, no handler runs twice for one collective.
#include <weft/sim.h>

#include <map>
#include <set>

#include <weft/service.h>

#include "base/codec.h"
#include "support/catch.h"

using namespace weft;

namespace coll_pause {

constexpr MethodId run_method("test.Pause/Run");
constexpr std::uint32_t ranks = 7;

std::string name_of(std::uint32_t rank) { return "s" + std::to_string(rank); }

// How often each rank ran each collective, by the number in its request.
using Runs = std::map<std::pair<std::uint32_t, std::uint32_t>, int>;

class Counting final : public Service {
  public:
    Counting(Runs& runs, std::uint32_t rank) : runs_(runs), rank_(rank) {}
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(run_method,
                      [this](Call call) {
                          ++runs_[{rank_, base::load<std::uint32_t>(call.request().data())}];
                          call.reply({});
                      },
                      {.collective = true});
    }

  private:
    Runs& runs_;
    const std::uint32_t rank_;
};

struct Cluster {
    explicit Cluster(std::uint64_t seed) : simulation(seed) {
        std::vector<Member> members;
        for (std::uint32_t rank = 0; rank < ranks; ++rank) {
            members.push_back({rank, {"sim://" + name_of(rank)}});
        }
        view = GroupView::make("pausing", 1, std::move(members)).value();
        for (std::uint32_t rank = 0; rank < ranks; ++rank) {
            simulation.add(name_of(rank), [this, rank](Runtime& runtime) {
                auto service = std::make_shared<Counting>(runs, rank);
                REQUIRE(runtime.serve(*service, "sim://" + name_of(rank)).ok());
                REQUIRE(runtime.join(*view, rank).ok());
                return service;
            });
        }
        simulation.add("client", [](Runtime&) { return nullptr; });
        group = simulation.runtime("client")->group(*view).value();
    }

    std::shared_ptr<std::optional<GroupOutcome>> begin(std::uint32_t number, Duration timeout) {
        auto outcome = std::make_shared<std::optional<GroupOutcome>>();
        std::byte body[4];
        base::store(body, number);
        group->collective(
            run_method, BodyWriter::of(body),
            {.timeout = timeout, .topology = {.shape = Topology::Shape::k_ary, .fanout = 2}},
            [outcome](GroupOutcome all) { *outcome = std::move(all); });
        return outcome;
    }
    void call_all(std::uint32_t number) {
        const auto outcome = begin(number, 5s);
        REQUIRE(simulation.run_until([&] { return outcome->has_value(); }, 10s));
        INFO((*outcome)->status.to_string());
        REQUIRE((*outcome)->status.ok());
    }

    Runs runs;
    weft::sim::Simulation simulation;
    std::optional<GroupView> view;
    std::optional<Group> group;
};

TEST_CASE("a collective runs once on each rank although a process is paused, however long") {
    // The client contacts rank 0 first; ranks 2 and 3 are below rank 1.
    const std::string stopped = GENERATE("client", "s0", "s1", "s2");
    const Duration pause = GENERATE(Duration(5s), 40s, 45s, 120s, 600s);
    const Duration timeout = GENERATE(Duration(5s), 30s, no_timeout);
    // From before the first request leaves until after the last reply has arrived.
    for (int moment = 0; moment < 24; ++moment) {
        Cluster cluster(static_cast<std::uint64_t>(moment) + 1);
        CAPTURE(stopped, pause.count(), timeout.count(), moment);
        cluster.call_all(1);
        const auto outcome = cluster.begin(2, timeout);
        cluster.simulation.run_for(moment * 3us);
        cluster.simulation.pause(stopped);
        cluster.simulation.run_for(pause);
        cluster.simulation.resume(stopped);
        REQUIRE(cluster.simulation.run_until([&] { return outcome->has_value(); }, 60s));
        cluster.simulation.run_for(20s);
        for (const auto& [which, count] : cluster.runs) {
            INFO("rank " << which.first << ", collective " << which.second);
            CHECK(count == 1);
        }
        // The group works as before.
        cluster.call_all(3);
    }
}

}  // namespace coll_pause
