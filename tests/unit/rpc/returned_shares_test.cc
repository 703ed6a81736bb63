// What a context has taken of a limit that all contexts share is whole again once it uses nothing,
// however that ends.
#include <span>

#include <weft/context.h>

#include "core/budget.h"
#include "support/lost_pair.h"
#include "support/raw_peer.h"

using namespace weft;
using namespace weft::test;

namespace {

// Whether the contexts have returned all that is not reserved for them.
bool is_whole(Runtime& runtime, core::Budget core::Budgets::*which, std::uint64_t limit) {
    const api::Commons& commons = impl_of(runtime).commons;
    core::Budget::Share probe(core::budget_of(commons.budgets, which), 0);
    return probe.extend(0, limit - (commons.contexts() - 1u) * probe.limit());
}

// Begins calls on one of the caller's contexts.
void call_on(ContextRef context, const Channel& channel, std::span<CallOutcome> outcomes) {
    context.executor().post([&channel, outcomes] {
        for (CallOutcome& outcome : outcomes)
            channel.call(echo_method, {}, {.timeout = 1h}, outcome.done());
    });
}

std::size_t waiting_bytes(Runtime& runtime) {
    std::size_t all = 0;
    for (const auto& node : impl_of(runtime).nodes) all += node->context.waiting_bytes();
    return all;
}

}  // namespace

TEST_CASE("shares: those of calls that outlive their client's connection return with the calls") {
    for (const bool is_orderly : {true, false}) {
        CAPTURE(is_orderly);
        Echo service;
        std::vector<CallOutcome> outcomes(200);
        SimRig rig;
        service.hold = true;
        RuntimeOptions options;
        options.contexts = 2;
        options.handlers_max = 1024;
        options.handler_bytes_max = 4 << 20;
        Runtime& server = rig.add("", options);
        REQUIRE(server.serve(shared(service), "sim://server").ok());
        Runtime& client = rig.add("client");
        const auto are_whole = [&] {
            return is_whole(server, &core::Budgets::handlers, options.handlers_max) &&
                   is_whole(server, &core::Budgets::handler_bytes, options.handler_bytes_max);
        };
        const std::vector<std::byte> large(8192);
        Channel channel = client.connect("sim://server").value().on(0);
        for (CallOutcome& outcome : outcomes)
            channel.call(echo_method, large, {.timeout = 1h}, outcome.done());
        REQUIRE(rig.run_until([&] { return service.held.size() == 200; }));
        CHECK_FALSE(is_whole(server, &core::Budgets::handlers, options.handlers_max));
        CHECK_FALSE(is_whole(server, &core::Budgets::handler_bytes, options.handler_bytes_max));
        is_orderly ? void(channel = Channel()) : rig.kill("client");
        rig.run_for(20s);
        REQUIRE(service.held.size() == 200);
        CHECK_FALSE(are_whole());
        service.held.clear();
        rig.run_for(1s);
        CHECK(are_whole());
    }
}

TEST_CASE("shares: those of a client's calls return when its channel or its server ends") {
    for (const bool server_ends : {true, false}) {
        CAPTURE(server_ends);
        Echo service;
        std::vector<CallOutcome> outcomes(400);
        SimRig rig;
        service.hold = true;
        REQUIRE(rig.add("server").add(service).ok());
        RuntimeOptions options;
        options.contexts = 2;
        options.calls_in_flight_max = 1024;
        options.bytes_in_flight_max = options.waiting_bytes_max = 4 << 20;
        Runtime& client = rig.add("", options);
        const std::vector<std::byte> large(4096);
        Channel channel = client.connect("sim://server").value();
        for (CallOutcome& outcome : outcomes)
            channel.call(echo_method, large, {.timeout = 1h}, outcome.done());
        // One server gets 1 MiB; the rest waits.
        REQUIRE(rig.run_until([&] { return service.held.size() > 200; }));
        const auto are_whole = [&](bool expected) {
            CHECK(is_whole(client, &core::Budgets::sent_calls, 1024) == expected);
            CHECK(is_whole(client, &core::Budgets::sent_bytes, 4 << 20) == expected);
            CHECK(is_whole(client, &core::Budgets::waiting_calls, 4 << 20) == expected);
        };
        are_whole(false);
        server_ends ? rig.kill("server") : void(channel = Channel());
        REQUIRE(rig.run_until([&] {
            return std::ranges::all_of(
                outcomes, [](const CallOutcome& outcome) { return outcome.completions == 1; });
        }));
        rig.run_for(1s);
        are_whole(true);
        service.held.clear();
        rig.run_for(1ms);
    }
}

TEST_CASE("shares: those of waiting frames return when their peer has read them, or is lost") {
    for (const bool reads : {true, false}) {
        CAPTURE(reads);
        Echo service;
        SimRig rig;
        RuntimeOptions options;
        options.contexts = 2;
        options.waiting_bytes_max = 1 << 20;
        Runtime& server = rig.add("", options);
        REQUIRE(server.serve(shared(service), "sim://server").ok());
        RawPeer raw(rig);
        raw.connect("server");
        rpc::RequestHeader header;
        header.call = {3, 1};
        header.remaining_us = 50'000;
        header.method = MethodId("none.None/None").hash;
        // Each is refused, and the refusals are not read.
        const Frame unknown = frame_of(header);
        for (int i = 0; i < 100'000 && waiting_bytes(server) < 128 << 10; ++i) {
            REQUIRE(raw.send(unknown));
            rig.run_for(20us);
        }
        REQUIRE(waiting_bytes(server) >= 128 << 10);
        CHECK_FALSE(is_whole(server, &core::Budgets::waiting_frames, 1 << 20));
        if (!reads) raw.close();
        for (int i = 0; i < 1000 && waiting_bytes(server) != 0; ++i) raw.wait(1ms);
        REQUIRE(waiting_bytes(server) == 0);
        CHECK(raw.lost != reads);
        rig.run_for(1s);
        CHECK(is_whole(server, &core::Budgets::waiting_frames, 1 << 20));
    }
}

TEST_CASE("shares: calls that wait begin once another context has returned what it used") {
    Echo service;
    std::vector<CallOutcome> first(240), waiting(200);
    SimRig rig;
    service.hold = true;
    REQUIRE(rig.add("server").add(service).ok());
    RuntimeOptions options;
    options.contexts = 2;
    options.calls_in_flight_max = 256;
    Runtime& client = rig.add("", options);
    const Channel channel = client.connect("sim://server").value();
    call_on(client.context(0), channel, first);
    REQUIRE(rig.run_until([&] { return service.held.size() == first.size(); }));
    call_on(client.context(1), channel, waiting);
    rig.run_for(10s);
    CHECK(service.held.size() > first.size());
    CHECK(service.held.size() <= options.calls_in_flight_max);
    for (std::size_t i = 0; i < first.size(); ++i) service.held[i].reply({});
    // No call of the waiting context ends meanwhile.
    CHECK(rig.run_until([&] { return service.held.size() == first.size() + waiting.size(); },
                        3 * options.heartbeat_interval));
    for (const CallOutcome& outcome : waiting) CHECK(outcome.completions == 0);
    service.held.clear();
    rig.run_for(1s);
    CHECK(is_whole(client, &core::Budgets::sent_calls, 256));
}

TEST_CASE("shares: one context may use a limit as small as the number of contexts") {
    Echo service, wide;
    std::vector<CallOutcome> outcomes(4), more(10);
    SimRig rig;
    service.hold = wide.hold = true;
    RuntimeOptions options;
    options.contexts = 4;
    options.handlers_max = options.calls_in_flight_max = 4;
    Runtime& server = rig.add("", options);
    REQUIRE(server.serve(shared(service), "sim://server").ok());
    // Calls in handlers,
    Channel channel = rig.add("client").connect("sim://server").value().on(3);
    for (CallOutcome& outcome : outcomes)
        channel.call(echo_method, {}, {.timeout = 1h}, outcome.done());
    CHECK(rig.run_until([&] { return service.held.size() == 4; }, 1s));
    service.held.clear();
    rig.run_for(1s);
    CHECK(is_whole(server, &core::Budgets::handlers, 4));
    // and calls in flight.
    REQUIRE(rig.add("wide").add(wide).ok());
    const Channel to_wide = server.connect("sim://wide").value();
    call_on(server.context(2), to_wide, more);
    rig.run_for(1s);
    CHECK(wide.held.size() == 4);
    wide.held.clear();
    rig.run_for(1s);
    CHECK(wide.held.size() == 4);
    wide.hold = false;
    wide.held.clear();
    REQUIRE(rig.run_until([&] {
        return std::ranges::all_of(more, [](const CallOutcome& one) { return one.completions; });
    }));
    rig.run_for(1s);
    CHECK(is_whole(server, &core::Budgets::sent_calls, 4));
}
