// Collectives of handlers, ends of runtimes, and what a member remembers.
#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <thread>

#include "support/catch.h"
#include "support/group_rig.h"
#include "support/member_collective_rig.h"

using namespace weft;
using test::GroupRig;
using test::record_method;

namespace {

constexpr MethodId outer_method("test.Scope/Outer");

// A handler that begins something at once and replies when that has ended.
struct Outer final : Service {
    std::function<void(GroupCompletion)> begins;
    std::optional<GroupOutcome> outcome;
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(outer_method, [this](Call call) {
            begins([this, held = std::make_shared<Call>(std::move(call))](GroupOutcome all) {
                outcome = std::move(all);
                held->reply({});
            });
        });
    }
};

std::size_t cancelled_handlers(const GroupRig& rig) {
    return static_cast<std::size_t>(
        std::count_if(rig.services.begin(), rig.services.end(),
                      [](const GroupRig::Server& server) { return server.was_cancelled(); }));
}

// Calls outer_method of a rank and cancels the call once `is_on` holds.
void cancel_outer(GroupRig& rig, int rank, const std::function<bool()>& is_on) {
    const Channel channel = rig.client->connect("sim://s" + std::to_string(rank)).value();
    const OperationId call =
        channel.call(outer_method, {}, {.timeout = 60s}, [](const Status&, ByteView) {});
    REQUIRE(is_on());
    channel.cancel_call(call);
}

}  // namespace

TEST_CASE("a collective of a handler ends at once on every rank when its call is cancelled") {
    Outer outer;
    GroupRig rig(14);
    for (auto& server : rig.services) server.hold = true;
    outer.begins = [&rig](GroupCompletion done) {
        rig.group(5).collective(
            record_method, BodyWriter::of({}),
            {.timeout = 60s, .topology = {.shape = Topology::Shape::k_ary, .fanout = 2}},
            std::move(done));
    };
    REQUIRE(rig.sim.runtimes[5]->add(outer).ok());
    cancel_outer(rig, 5, [&] { return rig.all_hold(); });
    // The cancel takes a message for each level of the tree.
    rig.sim.run_for(50ms);
    REQUIRE(outer.outcome.has_value());
    CHECK(outer.outcome->status.code() == Code::cancelled);
    CHECK(outer.outcome->ranks.size() == 14);
    CHECK(cancelled_handlers(rig) == 14);
    rig.reply_held();
    rig.sim.run_for(1s);
    CHECK(rig.running() == 0);
}

TEST_CASE("a handler of a cancelled call begins no further collectives") {
    Outer outer;
    GroupRig rig(3);
    const bool meets = GENERATE(false, true);
    for (auto& server : rig.services) server.hold = true;
    outer.begins = [&rig, meets](GroupCompletion done) {
        // Collectives begun in the completion of the first one are nested in the same call.
        const auto next = [&rig, meets, last = std::make_shared<GroupCompletion>(std::move(done))](
                              const GroupOutcome&) {
            if (meets) return void(rig.group(0).all_gather("m", {}, {}, std::move(*last)));
            rig.group(0).collective(record_method, BodyWriter::of(as_bytes("second")), {},
                                    std::move(*last));
        };
        rig.group(0).collective(record_method, BodyWriter::of(as_bytes("first")), {}, next);
    };
    REQUIRE(rig.sim.runtimes[0]->add(outer).ok());
    cancel_outer(rig, 0, [&] { return rig.all_hold(); });
    rig.sim.run_for(10ms);
    REQUIRE(outer.outcome.has_value());
    CHECK(outer.outcome->status.code() == Code::cancelled);
    for (const auto& server : rig.services) {
        CHECK(server.received == std::vector<std::string>{"first"});
    }
}

TEST_CASE("a nested handler may reply to its outer call when both are cancelled") {
    struct Pair final : Service {
        GroupRig* rig = nullptr;
        std::shared_ptr<Call> outer;
        int completed = 0;
        void register_methods(MethodRegistrar& registrar) override {
            registrar.add(outer_method, [this](Call call) {
                outer = std::make_shared<Call>(std::move(call));
                const RankSet own{0};
                const auto count = [this](const GroupOutcome&) { ++completed; };
                const Group group = rig->group(0);
                group.collective(MethodId("test.Scope/Inner"), BodyWriter::of({}),
                                 {.timeout = 60s, .include = &own}, count);
                group.collective(record_method, BodyWriter::of({}), {.timeout = 60s}, count);
                group.all_gather("m", {}, {.timeout = 60s}, count);
            });
            registrar.add(MethodId("test.Scope/Inner"),
                          [this](Call call) {
                              auto held = std::make_shared<Call>(std::move(call));
                              held->on_cancel([this, held] {
                                  held->fail(fail(Code::cancelled, ""));
                                  outer->fail(fail(Code::cancelled, ""));
                              });
                          },
                          {.collective = true});
        }
    } pair;
    GroupRig rig(3);
    pair.rig = &rig;
    for (auto& server : rig.services) server.hold = true;
    REQUIRE(rig.sim.runtimes[0]->add(pair).ok());
    cancel_outer(rig, 0, [&] { return rig.all_hold(); });
    rig.sim.run_for(100ms);
    CHECK(pair.completed == 3);
    CHECK(cancelled_handlers(rig) == 3);
    pair.outer.reset();
}

TEST_CASE("a collective begun in the completion of a refused one is nested in the same call") {
    Outer outer;
    GroupRig rig(3);
    const bool meets = GENERATE(false, true);
    for (auto& server : rig.services) server.hold = true;
    outer.begins = [&rig, meets](GroupCompletion done) {
        const auto next = [&rig, last = std::make_shared<GroupCompletion>(std::move(done))](
                              const GroupOutcome& refused) {
            CHECK(refused.status.code() == Code::invalid_argument);
            rig.group(0).collective(record_method, BodyWriter::of({}), {.timeout = 60s},
                                    std::move(*last));
        };
        if (meets) return void(rig.group(0).all_gather(std::string(300, 'x'), {}, {}, next));
        rig.group(0).collective(record_method, BodyWriter::of({}),
                                {.policy = Policy::quorum, .quorum = 9}, next);
    };
    REQUIRE(rig.sim.runtimes[0]->add(outer).ok());
    cancel_outer(rig, 0, [&] { return rig.all_hold(); });
    rig.sim.run_for(100ms);
    REQUIRE(outer.outcome.has_value());
    CHECK(outer.outcome->status.code() == Code::cancelled);
}

TEST_CASE("member collectives of a cancelled call are refused each time") {
    struct Stubborn final : Service {
        GroupRig* rig = nullptr;
        std::vector<Code> codes;
        std::optional<Call> held;
        void register_methods(MethodRegistrar& registrar) override {
            registrar.add(outer_method, [this](Call call) {
                held = std::move(call);
                all_gather();
            });
        }
        void all_gather() {
            rig->group(0).all_gather("m", {}, {.timeout = 60s},
                                     [this](const GroupOutcome& outcome) {
                                         codes.push_back(outcome.status.code());
                                         if (codes.size() < 5) all_gather();
                                     });
        }
    } stubborn;
    GroupRig rig(3);
    stubborn.rig = &rig;
    REQUIRE(rig.sim.runtimes[0]->add(stubborn).ok());
    cancel_outer(rig, 0, [&] {
        rig.sim.run_for(100ms);
        return true;
    });
    rig.sim.run_for(100ms);
    CHECK(stubborn.codes == std::vector<Code>(5, Code::cancelled));
    CHECK(impl_of(*rig.sim.runtimes[0]).collectives.member_collectives().running() == 0);
    stubborn.held.reset();
}

TEST_CASE("a cancel on the context's thread reaches a collective just begun on another thread") {
    GroupRig rig(2);
    for (auto& server : rig.services) server.hold = true;
    const Group group = rig.group(0);
    CollectiveId id = 0;
    std::optional<GroupOutcome> outcome;
    std::thread([&] {
        id = group.collective(record_method, BodyWriter::of({}), {.timeout = 60s},
                              [&](GroupOutcome all) { outcome = std::move(all); });
    }).join();
    REQUIRE(id != 0);
    group.cancel(id);
    rig.sim.run_for(1s);
    REQUIRE(outcome.has_value());
    CHECK(outcome->status.code() == Code::cancelled);
}

TEST_CASE("a collective of a handler is nested also when the handler runs between two turns") {
    // The outer collective runs its handler at once, within collective(); the handler begins
    // another one.
    struct Nesting final : Service {
        GroupRig* rig = nullptr;
        std::optional<GroupOutcome> inner;
        void register_methods(MethodRegistrar& registrar) override {
            registrar.add(MethodId("test.Scope/Nest"),
                          [this](Call call) {
                              auto held = std::make_shared<Call>(std::move(call));
                              rig->group(0).collective(record_method, BodyWriter::of({}),
                                                       {.timeout = 60s},
                                                       [this, held](GroupOutcome all) {
                                                           inner = std::move(all);
                                                           held->reply({});
                                                       });
                          },
                          {.collective = true});
        }
    } nesting;
    GroupRig rig(3);
    for (auto& server : rig.services) server.hold = true;
    nesting.rig = &rig;
    REQUIRE(rig.sim.runtimes[0]->add(nesting).ok());
    const Group group = rig.group(0);
    const RankSet own{0};
    std::optional<GroupOutcome> outer;
    const CollectiveId id = group.collective(MethodId("test.Scope/Nest"), BodyWriter::of({}),
                                             {.timeout = 10s, .include = &own},
                                             [&](GroupOutcome all) { outer = std::move(all); });
    REQUIRE(rig.all_hold());
    group.cancel(id);
    rig.sim.run_for(50ms);
    REQUIRE(outer.has_value());
    REQUIRE(nesting.inner.has_value());
    CHECK(nesting.inner->status.code() == Code::cancelled);
    CHECK(cancelled_handlers(rig) == 3);
}

TEST_CASE("a member collective of a handler ends when its call is cancelled") {
    Outer outer;
    GroupRig rig(3);
    const int rank = GENERATE(0, 1);
    outer.begins = [&rig, rank](GroupCompletion done) {
        rig.group(rank).all_gather("m", {}, {.timeout = 60s}, std::move(done));
    };
    REQUIRE(rig.sim.runtimes[static_cast<std::size_t>(rank)]->add(outer).ok());
    cancel_outer(rig, rank, [&] {
        rig.sim.run_for(100ms);
        return true;
    });
    rig.sim.run_for(100ms);
    REQUIRE(outer.outcome.has_value());
    CHECK(outer.outcome->status.code() == Code::cancelled);
    rig.sim.run_for(1s);
    CHECK(rig.running() == 0);
}

TEST_CASE("a stale client's collective completes once, at whatever point its runtime ends") {
    for (int us = 0; us < 300; us += 5) {
        INFO("after " << us << " us");
        int done = 0;
        GroupRig rig(4);
        for (int rank = 0; rank < 4; ++rank) {
            REQUIRE(rig.group(rank).install(rig.view(2)).ok());
        }
        Group client = rig.group(-1);
        client.collective(record_method, BodyWriter::of(as_bytes("x")), {.timeout = 50s},
                          [&](const GroupOutcome&) { ++done; });
        rig.sim.run_for(us * 1us);
        client = Group();
        rig.sim.runtimes.pop_back();
        CHECK(done == 1);
    }
}

TEST_CASE("many collectives that are stale at once learn the later view once") {
    GroupRig rig(3);
    for (int rank = 0; rank < 3; ++rank) REQUIRE(rig.group(rank).install(rig.view(2)).ok());
    const Group client = rig.group(-1);
    int ok = 0;
    for (int i = 0; i < 50; ++i) {
        client.collective(record_method, BodyWriter::of(as_bytes("x")), {.timeout = 5s},
                          [&](const GroupOutcome& outcome) { ok += outcome.status.ok(); });
    }
    REQUIRE(rig.sim.run_until([&] { return ok == 50; }, 5s));
    for (const auto& server : rig.services) CHECK(server.received.size() == 50);
}

TEST_CASE("a handler that refused is not run again when the parent of its rank dies") {
    std::vector<int> runs(3);
    struct Refusing final : Service {
        std::size_t rank = 0;
        std::vector<int>* runs = nullptr;
        std::vector<Call> held;
        void register_methods(MethodRegistrar& registrar) override {
            registrar.add(MethodId("test.Scope/Refuse"),
                          [this](Call call) {
                              ++(*runs)[rank];
                              if (rank == 0) return held.push_back(std::move(call));
                              call.fail(rejected(Code::failed_precondition, "no"));
                          },
                          {.collective = true});
        }
    };
    std::vector<Refusing> services(3);
    GroupRig rig(3);
    for (std::size_t rank = 0; rank < 3; ++rank) {
        services[rank].rank = rank;
        services[rank].runs = &runs;
        REQUIRE(rig.sim.runtimes[rank]->add(services[rank]).ok());
    }
    std::optional<GroupOutcome> outcome;
    rig.group(-1).collective(
        MethodId("test.Scope/Refuse"), BodyWriter::of({}),
        {.timeout = 5s, .topology = {.shape = Topology::Shape::k_ary, .fanout = 2}},
        [&](GroupOutcome all) { outcome = std::move(all); });
    rig.sim.run_for(20ms);
    rig.sim.kill("s0");
    REQUIRE(rig.sim.run_until([&] { return outcome.has_value(); }, 10s));
    CHECK(runs == std::vector<int>{1, 1, 1});
    CHECK(outcome->ranks[1].status.code() == Code::failed_precondition);
    CHECK(outcome->ranks[2].status.code() == Code::failed_precondition);
    services[0].held.clear();
}

TEST_CASE("members forget almost all later collectives while a long one runs") {
    GroupRig rig(2);
    for (auto& server : rig.services) server.hold = true;
    const Group client = rig.group(-1);
    std::vector<std::optional<GroupOutcome>> lasting(3);
    int ended = 0;
    for (auto& one : lasting) {
        client.collective(record_method, BodyWriter::of({}), {.timeout = 3600s},
                          [&](GroupOutcome all) { one = std::move(all); });
        REQUIRE(rig.all_hold());
        for (auto& server : rig.services) server.hold = false;
        for (int i = 0; i < 2000; ++i) {
            const int before = ended;
            client.collective(record_method, BodyWriter::of({}), {.timeout = no_timeout},
                              [&](const GroupOutcome& all) { ended += all.status.ok(); });
            REQUIRE(rig.sim.run_until([&] { return ended > before; }, 1s));
        }
        for (auto& server : rig.services) server.hold = true;
    }
    for (int rank = 0; rank < 2; ++rank) {
        CHECK(impl_of(*rig.sim.runtimes[static_cast<std::size_t>(rank)]).collectives.known() <
              1100);
    }
    rig.reply_held();
    rig.sim.run_for(1s);
    for (const auto& one : lasting) CHECK(one.has_value());
}

TEST_CASE("a member finds its group by any view of it") {
    GroupRig rig(2);
    const Group group = rig.group(0);
    REQUIRE(group.install(rig.view(2)).ok());
    std::optional<GroupOutcome> alone;
    const RankSet own{0};
    rig.group(0).all_gather("m", {}, {.timeout = 1s, .include = &own},
                            [&](GroupOutcome all) { alone = std::move(all); });
    REQUIRE(rig.sim.run_until([&] { return alone.has_value(); }, 2s));
    INFO(alone->status.to_string());
    CHECK(alone->status.ok());
    CHECK(alone->epoch == 2);
}

TEST_CASE("a quorum of named ranks counts nonmembers, at its start and in its outcome") {
    GroupRig rig(4);
    rig.services[3].hold = true;
    const RankSet named{0, 1, 2, 3, 100, 101, 102};
    const TimePoint begun = rig.sim.clock->now();
    std::optional<GroupOutcome> outcome;
    rig.group(-1).collective(record_method, BodyWriter::of(as_bytes("x")),
                             {.timeout = 5s, .policy = Policy::quorum, .include = &named},
                             [&](GroupOutcome all) { outcome = std::move(all); });
    rig.sim.run_for(1s);
    CHECK_FALSE(outcome.has_value());  // Three of seven are no quorum.
    rig.reply_held();
    REQUIRE(rig.sim.run_until([&] { return outcome.has_value(); }, 5s));
    CHECK(rig.sim.clock->now() - begun < 2s);
    CHECK(outcome->status.ok());
    CHECK(outcome->ranks.size() == 7);
}

TEST_CASE("a collective that can't begin has no ranks and costs little for huge selections") {
    GroupRig rig(4);
    const RankSet one{1};
    const GroupOutcome hopeless =
        rig.call(rig.group(-1), "x",
                 {.timeout = 5s, .policy = Policy::quorum, .quorum = 9, .include = &one});
    CHECK(hopeless.status.code() == Code::invalid_argument);
    CHECK(hopeless.ranks.empty());
    RankSet all_ranks;
    all_ranks.add(0, UINT32_MAX);
    const GroupOutcome huge = rig.call(rig.group(-1), "x", {.include = &all_ranks});
    CHECK(huge.status.code() == Code::invalid_argument);
}

TEST_CASE("every change listener is called for a change") {
    GroupRig rig(2);
    const Group group = rig.group(0);
    int first = 0;
    int second = 0;
    group.on_change([&](const MemberChange&) { ++first; });
    group.on_change([&](const MemberChange&) { ++second; });
    REQUIRE(group.install(drain(group.view(), 1).value()).ok());
    rig.sim.run_for(1ms);
    CHECK(first == 1);
    CHECK(second == 1);
}

TEST_CASE("a collective that another thread began is cancelled from that thread") {
    std::atomic<int> held = 0;
    std::atomic<bool> cancelled = false;
    struct Holding final : Service {
        std::atomic<int>* held = nullptr;
        std::atomic<bool>* cancelled = nullptr;
        void register_methods(MethodRegistrar& registrar) override {
            registrar.add(record_method,
                          [this](Call call) {
                              const auto kept = std::make_shared<Call>(std::move(call));
                              kept->on_cancel([this, kept] {
                                  *cancelled = true;
                                  kept->fail(fail(Code::cancelled, ""));
                              });
                              ++*held;
                          },
                          {.collective = true});
        }
    } holding;
    Runtime runtime = Runtime::create().value();
    REQUIRE(runtime.listen("tcp://127.0.0.1:0").ok());
    holding.held = &held;
    holding.cancelled = &cancelled;
    REQUIRE(runtime.add(holding).ok());
    const GroupView view = GroupView::make("one", 1, {{0, {runtime.addresses().front()}}}).value();
    REQUIRE(runtime.join(view, 0).ok());
    const Group group = runtime.group(view).value();
    std::promise<Code> ended;
    const CollectiveId id =
        group.collective(record_method, BodyWriter::of({}), {.timeout = 30s},
                         [&](const GroupOutcome& all) { ended.set_value(all.status.code()); });
    REQUIRE(id != 0);
    while (held == 0) std::this_thread::yield();
    group.cancel(id);
    CHECK(ended.get_future().get() == Code::cancelled);
    CHECK(cancelled);
}
