// The effect that a collective reports, also when a handler returns its status, and when its
// deadline expires before it begins.
#include <optional>

#include "support/group_rig.h"

using namespace weft;
using test::GroupRig;

namespace coll_effect {

constexpr MethodId front_method("test.Group/Front");

// A server in front of the group: its handler returns the status of its collective.
struct Front final : Service {
    Group group;
    bool rejects = false;
    bool of_a_rank = false;
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(front_method, [this](Call call) {
            const auto open = std::make_shared<Call>(std::move(call));
            group.collective(test::record_method, BodyWriter::of(as_bytes("x")), {.timeout = 5s},
                             [this, open](const GroupOutcome& all) {
                                 const Status& status =
                                     of_a_rank ? all.ranks.front().status : all.status;
                                 open->fail(rejects ? rejected(status) : status);
                             });
        });
    }
};

// Ranks that reply, that reject the call without an effect, or that fail.
enum class Says { ok, nothing, failed };
class Refusing final : public Service {
  public:
    explicit Refusing(Says says) : says_(says) {}
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(test::record_method, [this](Call call) { answer(call); },
                      {.collective = true});
    }

  private:
    void answer(Call& call) const {
        if (says_ == Says::ok) return call.reply({});
        const std::string why = "as the test configured it";
        call.fail(says_ == Says::nothing ? rejected(Code::aborted, why)
                                         : fail(Code::internal, why));
    }
    const Says says_;
};

struct Rig {
    explicit Rig(const std::vector<Says>& says) {
        std::vector<Member> members;
        for (std::uint32_t rank = 0; rank < says.size(); ++rank) {
            members.push_back({rank, {"sim://s" + std::to_string(rank)}});
        }
        const GroupView view = GroupView::make("g", 1, std::move(members)).value();
        for (std::uint32_t rank = 0; rank < says.size(); ++rank) {
            services.push_back(std::make_unique<Refusing>(says[rank]));
            Runtime& runtime = sim.add("s" + std::to_string(rank));
            REQUIRE(runtime.add(*services.back()).ok());
            REQUIRE(runtime.join(view, rank).ok());
        }
        Runtime& server = sim.add("front");
        REQUIRE(server.add(front).ok());
        front.group = server.group(view).value();
        Runtime& client = sim.add("");
        channel = client.connect("sim://front").value();
        group = client.group(view).value();
    }
    ~Rig() { front.group = Group(); }

    Status ask_directly() {
        std::optional<GroupOutcome> outcome;
        group->collective(test::record_method, BodyWriter::of(as_bytes("x")), {.timeout = 5s},
                          [&](GroupOutcome all) { outcome = std::move(all); });
        REQUIRE(sim.run_until([&] { return outcome.has_value(); }));
        return outcome->status;
    }
    Status ask_front() {
        std::optional<Status> status;
        channel->call(front_method, {}, {.timeout = 10s},
                      [&](const Status& told, ByteView) { status = told; });
        REQUIRE(sim.run_until([&] { return status.has_value(); }));
        return *status;
    }

    Front front;
    std::vector<std::unique_ptr<Refusing>> services;
    test::SimRig sim;
    std::optional<Channel> channel;
    std::optional<Group> group;
};

TEST_CASE("the status of a policy has effect none only when every rank reports none") {
    const auto policy_status_of = [](const std::vector<Says>& says) {
        return Rig(says).ask_directly().effect();
    };
    CHECK(policy_status_of({Says::nothing, Says::nothing, Says::nothing}) == Effect::none);
    CHECK(policy_status_of({Says::ok, Says::nothing, Says::ok}) == Effect::applied);
    CHECK(policy_status_of({Says::nothing, Says::ok}) == Effect::applied);
    CHECK(policy_status_of({Says::nothing, Says::failed}) == Effect::applied);
    // If the effect of one rank is unknown, so is that of the whole.
    using Ranks = std::vector<RankOutcome>;
    const auto rank = [](std::uint32_t number, Status status) {
        return RankOutcome{number, std::move(status), {}, 0};
    };
    const Status none = fail(Code::aborted, "not begun");
    const Status lost = fail(Code::unavailable, "lost").with_effect(Effect::unknown);
    for (const Policy policy : {Policy::all, Policy::quorum}) {
        CHECK(coll::policy_status(policy, 2, Ranks{rank(0, none), rank(1, lost)}).effect() ==
              Effect::unknown);
        CHECK(coll::policy_status(policy, 3, Ranks{rank(0, {}), rank(1, none), rank(2, lost)})
                  .effect() == Effect::unknown);
        CHECK(coll::policy_status(policy, 2, Ranks{rank(0, none), rank(1, none)}).effect() ==
              Effect::none);
    }
}

TEST_CASE("a handler that returns a collective's status does not report effect none") {
    for (const bool rejects : {false, true}) {
        for (const bool of_a_rank : {false, true}) {
            for (const auto& says : {std::vector<Says>{Says::nothing, Says::ok, Says::ok},
                                     {Says::nothing, Says::nothing},
                                     {Says::nothing, Says::failed}}) {
                Rig rig(says);
                rig.front.rejects = rejects;
                rig.front.of_a_rank = of_a_rank;
                const Status status = rig.ask_front();
                INFO(status.to_string());
                CHECK(status.code() == Code::aborted);
                CHECK(status.effect() == Effect::applied);
            }
        }
    }
}

TEST_CASE("a collective with an expired deadline runs on no rank, its own included") {
    struct Slow final : Service {
        GroupRig* rig = nullptr;
        std::optional<GroupOutcome> outcome;
        void register_methods(MethodRegistrar& registrar) override {
            registrar.add(front_method, [this](Call call) {
                rig->sim.clock->advance(2s);
                rig->group(0).collective(test::record_method, BodyWriter::of(as_bytes("late")), {},
                                         [this](GroupOutcome all) { outcome = all; });
                call.reply({});
            });
        }
    } slow;
    GroupRig rig(3);
    const Group group = rig.group(0);
    SECTION("by its own options") {
        const GroupOutcome all = rig.call(group, "late", {.timeout = -1ms});
        CHECK(all.status.code() == Code::deadline_exceeded);
        CHECK(all.status.effect() == Effect::none);
        CHECK(all.ranks.size() == 3);
    }
    SECTION("in a handler that has used up the time of its call") {
        slow.rig = &rig;
        REQUIRE(rig.sim.runtimes[0]->add(slow).ok());
        const Channel channel = rig.client->connect("sim://s0").value();
        channel.call(front_method, {}, {.timeout = 1s}, [](const Status&, ByteView) {});
        REQUIRE(rig.sim.run_until([&] { return slow.outcome.has_value(); }));
        CHECK(slow.outcome->status.code() == Code::deadline_exceeded);
        CHECK(slow.outcome->status.effect() == Effect::none);
    }
    SECTION("as a member collective") {
        std::optional<GroupOutcome> outcome;
        group.all_gather("late", {}, {.timeout = -1ms}, [&](GroupOutcome all) { outcome = all; });
        REQUIRE(rig.sim.run_until([&] { return outcome.has_value(); }));
        CHECK(outcome->status.code() == Code::deadline_exceeded);
        CHECK(outcome->status.effect() == Effect::none);
    }
    rig.sim.run_for(1s);
    for (const auto& service : rig.services) CHECK(service.received.empty());
}

}  // namespace coll_effect
