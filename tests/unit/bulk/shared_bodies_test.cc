// The memory for large bodies is that of all contexts of a runtime together.
#include <algorithm>
#include <vector>

#include "core/budget.h"
#include "support/catch.h"
#include "support/raw_echo.h"

using namespace weft;
using namespace weft::test;

namespace {

constexpr MethodId reply_sized("test.Shared/Sized");
constexpr std::size_t shared_body_max = 1 << 20;

// Replies with as many bytes as the request demands.
struct SizedReplies final : Service {
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(reply_sized, [](Call call) {
            call.reply(std::vector<std::byte>(base::load<std::uint64_t>(call.request().data())));
        });
    }
};

struct SharedBodies {
    explicit SharedBodies(unsigned contexts = 2, na::sim::WorldOptions network = {},
                          std::size_t arena = 0)
        : rig(1, network),
          server(rig.add("server", {.contexts = contexts,
                                    .arena_bytes_max = arena,
                                    .argument_bytes_max = shared_body_max})) {
        REQUIRE(server.add(shared(service)).ok());
    }
    // A client with a connection to a context of the server.
    Channel client(unsigned context, const std::string& name = "") {
        const Channel channel = rig.add(name).connect("sim://server").value().on(context);
        CHECK(calls(channel, 1, 8, 8) == 1);
        return channel;
    }
    static void call(const Channel& channel, std::size_t request, std::uint64_t reply,
                     CallOutcome& outcome, Duration timeout = 20s) {
        std::vector<std::byte> body(std::max(request, sizeof reply));
        base::store(body.data(), reply);
        channel.call(reply_sized, body, {.timeout = timeout}, outcome.done());
    }
    // Makes `count` calls at once; returns how many succeed.
    std::ptrdiff_t calls(const Channel& channel, std::size_t count, std::size_t request,
                         std::size_t reply) {
        std::vector<CallOutcome> outcomes(count);
        for (CallOutcome& outcome : outcomes) call(channel, request, reply, outcome);
        REQUIRE(rig.run_until([&] {
            return std::ranges::all_of(outcomes, [](const auto& one) { return one.completions; });
        }));
        for (const CallOutcome& one : outcomes) UNSCOPED_INFO(one.status.to_string());
        return std::ranges::count_if(outcomes, [](const auto& one) { return one.status.ok(); });
    }
    bulk::Rendezvous& bodies(unsigned context) {
        return impl_of(server).nodes[context]->bulk.rendezvous;
    }
    std::size_t bytes_held() {
        std::size_t held = 0;
        for (const auto& node : impl_of(server).nodes) held += node->bulk.rendezvous.bytes_held();
        return held;
    }
    // Once all is idle, each context may have nearly all of it.
    void check_returned() {
        rig.run_for(60s);
        for (unsigned k = 0; k < server.contexts(); ++k) {
            CHECK(bodies(k).bytes_held() == 0);
            const Channel first = client(k), second = client(k);
            std::vector<CallOutcome> outcomes(7);
            for (std::size_t i = 0; i < 7; ++i)
                call(i < 4 ? first : second, 8, shared_body_max, outcomes[i]);
            REQUIRE(rig.run_until([&] {
                return std::ranges::all_of(outcomes,
                                           [](const auto& one) { return one.completions; });
            }));
            for (const CallOutcome& one : outcomes) CHECK(one.status.ok());
            rig.run_for(60s);
        }
    }

    SizedReplies service;  // Outlives the runtime that serves it.
    SimRig rig;
    Runtime& server;
};

}  // namespace

TEST_CASE("shared bodies: silent peers of all contexts together hold eight of the largest") {
    std::vector<CallOutcome> held(12);
    SharedBodies shared;
    std::vector<Channel> silent;
    for (unsigned i = 0; i < 3; ++i) {
        const std::string name = "silent" + std::to_string(i);
        silent.push_back(shared.client(i % 2, name));
        REQUIRE(shared.rig.world->ignore_rma(name));
        for (std::size_t k = 0; k < 4; ++k)
            SharedBodies::call(silent[i], shared_body_max, 8, held[4 * i + k], 5s);
    }
    shared.rig.run_for(1s);
    CHECK(shared.bytes_held() >= 7 * shared_body_max);
    CHECK(shared.bytes_held() <= 8 * shared_body_max);
    CHECK(shared.bodies(0).bytes_held() != 0);
    CHECK(shared.bodies(1).bytes_held() != 0);
    shared.rig.run_for(10s);  // Their calls expire, and their transfers end with their connections.
    shared.check_returned();
}

TEST_CASE("shared bodies: silent holders on one context lose it to a waiting peer of another") {
    std::vector<CallOutcome> held(7);  // What the other contexts do not reserve.
    SharedBodies shared(3);            // Of an eighth body they have less than the whole.
    std::vector<Channel> silent;
    for (std::size_t i = 0; i < held.size(); i += 4) {
        const std::string name = "silent" + std::to_string(i);
        silent.push_back(shared.client(0, name));
        REQUIRE(shared.rig.world->ignore_rma(name));
        for (std::size_t k = i; k < std::min(i + 4, held.size()); ++k)
            SharedBodies::call(silent.back(), shared_body_max, 8, held[k], 60s);
    }
    REQUIRE(
        shared.rig.run_until([&] { return shared.bodies(0).bytes_held() == 7 * shared_body_max; }));
    // Without a peer that waits, silent ones keep it.
    shared.rig.run_for(15s);
    for (const CallOutcome& one : held) CHECK(one.completions == 0);
    const Channel waiting = shared.client(1);
    CHECK(shared.calls(waiting, 1, shared_body_max, 8) == 1);
    // The disconnected client reconnects, and its calls fail as never begun.
    CHECK(shared.rig.run_until(
        [&] {
            return std::ranges::count_if(held, [](const CallOutcome& one) {
                       return one.status.code() == Code::unavailable;
                   }) >= 3;
        },
        3s));
}

TEST_CASE("shared bodies: idle blocks hold little, and return where another context lacks memory") {
    std::vector<CallOutcome> held(7);
    SharedBodies shared(5);
    constexpr std::size_t idle_max = 8 * shared_body_max / (4 * 5);
    std::vector<Channel> idle, silent;
    for (unsigned k = 0; k < 4; ++k) {
        idle.push_back(shared.client(k));
        for (const std::size_t kib : {1024, 896, 640, 128})
            CHECK(shared.calls(idle[k], 2, 8, kib << 10) == 2);
        shared.rig.run_for(1ms);  // The fences of further blocks.
        CHECK(shared.bodies(k).bytes_held() != 0);
        CHECK(shared.bodies(k).bytes_held() <= idle_max);
    }
    const auto has_all = [&] { return shared.bodies(4).bytes_held() == 7 * shared_body_max; };
    for (std::size_t i = 0; i < held.size(); ++i) {
        const std::string name = "silent" + std::to_string(i / 4);
        if (i % 4 == 0) silent.push_back(shared.client(4, name));
        if (i % 4 == 0) REQUIRE(shared.rig.world->ignore_rma(name));
        SharedBodies::call(silent.back(), shared_body_max, 8, held[i], 60s);
    }
    shared.rig.run_for(1ms);
    CHECK_FALSE(has_all());
    CHECK(shared.rig.run_until(has_all, 6s));
    for (const CallOutcome& one : held) CHECK(one.completions == 0);
}

TEST_CASE("shared bodies: a body begins soon after another context has returned the memory") {
    std::vector<CallOutcome> first(7);
    CallOutcome waiting;
    na::sim::WorldOptions slow;
    slow.piece_time = 1ms;
    SharedBodies shared(3, slow);
    const Channel one = shared.client(0), another = shared.client(0), last = shared.client(1);
    for (std::size_t i = 0; i < first.size(); ++i)
        SharedBodies::call(i < 4 ? one : another, shared_body_max, 8, first[i]);
    REQUIRE(
        shared.rig.run_until([&] { return shared.bodies(0).bytes_held() == 7 * shared_body_max; }));
    SharedBodies::call(last, shared_body_max, 8, waiting);
    const auto any_done = [&] {
        return std::ranges::any_of(first, [](const auto& each) { return each.completions; });
    };
    REQUIRE(shared.rig.run_until(any_done));
    CHECK(shared.bodies(1).bytes_held() == 0);
    CHECK(shared.rig.run_until([&] { return shared.bodies(1).bytes_held() != 0; }, 10ms));
    REQUIRE(shared.rig.run_until([&] { return waiting.completions == 1; }));
    CHECK(waiting.status.ok());
}

TEST_CASE("shared bodies: memory of calls that are cancelled returns with its fence") {
    na::sim::WorldOptions slow;
    slow.piece_time = 10ms;  // A body takes seconds.
    SharedBodies shared(3, slow);
    std::vector<CallOutcome> outcomes(30);
    const Channel cancelling[] = {shared.client(0), shared.client(1), shared.client(2)};
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
        SharedBodies::call(cancelling[i % 3], shared_body_max, 8, outcomes[i], 50ms);
        shared.rig.run_for(30ms);
        CHECK(shared.bytes_held() <= 8 * shared_body_max);
    }
    shared.check_returned();
    for (const CallOutcome& one : outcomes) CHECK(one.completions == 1);
}

TEST_CASE("shared bodies: contexts that the arena refuses keep no part of the limit") {
    std::vector<CallOutcome> refused(7);
    SharedBodies shared(10, {}, 3 << 20);
    std::vector<Channel> channels;
    Buffer program = shared.server.allocate(5 << 19).value();  // No room for a block is left.
    for (unsigned k = 0; k < refused.size(); ++k) {
        channels.push_back(shared.client(k));
        SharedBodies::call(channels[k], shared_body_max, 8, refused[k], 20ms);
        REQUIRE(shared.rig.run_until([&] { return refused[k].completions == 1; }));
        CHECK(refused[k].status.code() == Code::deadline_exceeded);
    }
    CHECK(shared.bytes_held() == 0);
    program = Buffer();
    // Each of the others may have all of it at once, without a wait for these.
    core::Budget::Share other(
        core::budget_of(impl_of(shared.server).commons.budgets, &core::Budgets::body_bytes), 0);
    CHECK(other.could_extend(0, 7 * shared_body_max));
    CHECK(shared.calls(shared.client(8), 1, shared_body_max, 8) == 1);
}

TEST_CASE("shared bodies: a body waits for what another context has taken and does not use yet") {
    CallOutcome waiting;
    SharedBodies shared;
    const Channel channel = shared.client(0);
    core::Budget::Share other(
        core::budget_of(impl_of(shared.server).commons.budgets, &core::Budgets::body_bytes), 0);
    REQUIRE(other.extend(0, 31 * shared_body_max / 4));  // All that is not reserved.
    SharedBodies::call(channel, shared_body_max, 8, waiting);
    shared.rig.run_for(1s);
    CHECK(waiting.completions == 0);
    CHECK(shared.bytes_held() == 0);
    other.trim(0);
    CHECK(shared.rig.run_until([&] { return shared.bodies(0).bytes_held() != 0; }, 10ms));
    REQUIRE(shared.rig.run_until([&] { return waiting.completions == 1; }));
    CHECK(waiting.status.ok());
}
