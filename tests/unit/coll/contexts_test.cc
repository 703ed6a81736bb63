// Groups with a member of several contexts: its end, and collectives that its handlers begin.
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <weft/sim.h>

#include "support/catch.h"
#include "support/contexts.h"

using namespace weft;
using weft::sim::Simulation;

namespace coll_contexts {

constexpr MethodId hold_method("test.CollContexts/Hold");
constexpr MethodId outer_method("test.CollContexts/Outer");

// Three members, of which rank 0 has two contexts, and a client.
struct Members {
    static constexpr std::uint32_t size = 3;
    std::vector<Call> held;   // Of hold_method, a collective one, on all ranks.
    std::vector<Call> outer;  // Of outer_method; its handler begins a collective.
    std::function<void(GroupCompletion)> begins;
    std::vector<std::optional<GroupOutcome>> outcomes{size};
    Simulation simulation;
    std::vector<Group> groups;
    Channel channel;  // From the client to rank 0.

    struct Holding final : Service {
        explicit Holding(Members& of) : members(of) {}
        void register_methods(MethodRegistrar& registrar) override {
            registrar.add(hold_method,
                          [this](Call call) { members.held.push_back(std::move(call)); },
                          {.collective = true});
            registrar.add(outer_method, [this](Call call) {
                members.outer.push_back(std::move(call));
                members.begins(members.outcome_of(0));
            });
        }
        Members& members;
    };

    explicit Members(std::uint64_t seed) : simulation(seed) {
        std::vector<Member> all;
        for (std::uint32_t rank = 0; rank < size; ++rank) {
            RuntimeOptions options = test::with_contexts(rank == 0 ? 2 : 1);
            options.drain_timeout = 60s;
            simulation.add(name(rank), serve(rank), options);
            all.push_back({rank, {uri(rank)}});
        }
        const GroupView view = GroupView::make("contexts", 1, std::move(all)).value();
        for (std::uint32_t rank = 0; rank < size; ++rank) {
            Runtime& runtime = *simulation.runtime(name(rank));
            REQUIRE(runtime.join(view, rank).ok());
            groups.push_back(runtime.group(view).value());
        }
        const auto nothing = [](Runtime&) -> std::shared_ptr<void> { return nullptr; };
        simulation.add("client", nothing, test::with_contexts(1));
        channel = simulation.runtime("client")->connect(uri(0)).value();
    }
    ~Members() {
        held.clear();
        outer.clear();
    }

    static std::string name(std::uint32_t rank) { return "s" + std::to_string(rank); }
    static std::string uri(std::uint32_t rank) { return "sim://" + name(rank); }
    Simulation::Program serve(std::uint32_t rank) {
        return [this, rank](Runtime& runtime) -> std::shared_ptr<void> {
            const auto make = [this](const Here&) { return std::make_unique<Holding>(*this); };
            REQUIRE(runtime.serve(make, uri(rank)).ok());
            return nullptr;
        };
    }
    GroupCompletion outcome_of(std::uint32_t rank) {
        return [this, rank](GroupOutcome all) {
            REQUIRE_FALSE(outcomes[rank].has_value());
            outcomes[rank] = std::move(all);
        };
    }
    void join(std::uint32_t rank) {
        simulation.act_as(name(rank), [&] {
            groups[rank].all_gather("start", {}, {.timeout = 30s}, outcome_of(rank));
        });
    }
    // Calls the method on a context of rank 0.
    OperationId call(unsigned context, const MethodId& method, Duration timeout = 60s) {
        OperationId id;
        simulation.act_as("client", [&] {
            const auto ignore = [](const Status&, ByteView) {};
            id = channel.on(context).call(method, {}, {.timeout = timeout}, ignore);
        });
        return id;
    }
    void cancel(unsigned context, OperationId id) {
        simulation.act_as("client", [&] { channel.on(context).cancel_call(id); });
    }
    bool run_until_held(std::size_t count) {
        return simulation.run_until([&] { return held.size() == count; }, 5s);
    }
    void reply_held() {
        for (Call& one : std::exchange(held, {})) one.reply({});
    }
};

TEST_CASE("a member collective has one outcome although a context of its draining leader is idle") {
    Members members(GENERATE(3u, 4u, 5u));
    members.call(1, hold_method);
    REQUIRE(members.run_until_held(1));
    members.join(0);
    members.join(1);
    members.simulation.run_for(500ms);
    members.simulation.end("s0");
    // Rank 1 requests the outcome of its leader each second.
    members.simulation.run_for(3s);
    for (const auto& outcome : members.outcomes) CHECK_FALSE(outcome.has_value());
    members.join(2);
    const auto have_all = [&] {
        return members.outcomes[0] && members.outcomes[1] && members.outcomes[2];
    };
    REQUIRE(members.simulation.run_until(have_all, 5s));
    for (const auto& outcome : members.outcomes) {
        INFO(outcome->status.to_string());
        CHECK(outcome->status.ok());
        CHECK(outcome->ranks.size() == 3);
    }
    CHECK(members.simulation.is_up("s0"));
    members.reply_held();
    CHECK(members.simulation.run_until([&] { return !members.simulation.is_up("s0"); }, 10s));
}

// Of a handler of rank 0, to the others.
void begin_kind(Members& members, int kind, GroupCallOptions options, GroupCompletion done) {
    const Group& group = members.groups[0];
    options.timeout = 60s;
    const RankSet others{1, 2};
    if (kind == 0) {
        options.include = &others;
        group.collective(hold_method, BodyWriter::of({}), options, std::move(done));
    } else if (kind == 1) {
        const std::vector<RankBody> bodies{{1, {}}, {2, {}}};
        group.scatter(hold_method, bodies, options, std::move(done));
    } else {
        group.all_gather("start", {}, options, std::move(done));
    }
}

TEST_CASE("a collective that a handler begins by a callback ends with its call, on each context") {
    const unsigned context = GENERATE(0u, 1u);
    const int kind = GENERATE(0, 1, 2);
    CAPTURE(context, kind);
    Members members(7);
    members.begins = [&](GroupCompletion done) { begin_kind(members, kind, {}, std::move(done)); };
    const OperationId id = members.call(context, outer_method);
    if (kind != 2) {
        REQUIRE(members.run_until_held(2));
    }
    members.simulation.run_for(100ms);
    REQUIRE(members.outer.size() == 1);
    CHECK_FALSE(members.outcomes[0].has_value());
    members.cancel(context, id);
    // The cancel takes a message for each level of the tree.
    members.simulation.run_for(100ms);
    REQUIRE(members.outcomes[0].has_value());
    CHECK(members.outcomes[0]->status.code() == Code::cancelled);
    for (const Call& one : members.held) CHECK(one.cancelled());
}

TEST_CASE("a collective of another context outlives its call when it is detached or replied to") {
    const bool detached = GENERATE(false, true);
    CAPTURE(detached);
    Members members(9);
    members.begins = [&](GroupCompletion done) {
        GroupCallOptions options;
        options.detached = detached;
        begin_kind(members, 0, options, std::move(done));
    };
    const OperationId id = members.call(1, outer_method);
    REQUIRE(members.run_until_held(2));
    if (detached) {
        members.cancel(1, id);
    } else {
        members.outer.front().reply({});
    }
    members.simulation.run_for(1s);
    CHECK_FALSE(members.outcomes[0].has_value());
    for (const Call& one : members.held) CHECK_FALSE(one.cancelled());
    members.reply_held();
    REQUIRE(members.simulation.run_until([&] { return members.outcomes[0].has_value(); }, 5s));
    CHECK(members.outcomes[0]->status.ok());
}

TEST_CASE("what the completion of another context's collective begins has the call's deadline") {
    Members members(13);
    members.begins = [&](GroupCompletion done) {
        const auto again = [&, last = std::make_shared<GroupCompletion>(std::move(done))](
                               const GroupOutcome& first) {
            CHECK(first.status.ok());
            begin_kind(members, 0, {}, std::move(*last));
        };
        begin_kind(members, 0, {}, again);
    };
    members.call(1, outer_method, 2s);
    REQUIRE(members.run_until_held(2));
    members.reply_held();
    REQUIRE(members.run_until_held(2));
    CHECK(members.simulation.run_until([&] { return members.outcomes[0].has_value(); }, 3s));
    REQUIRE(members.outcomes[0].has_value());
    CHECK(members.outcomes[0]->status.code() == Code::deadline_exceeded);
}

}  // namespace coll_contexts
