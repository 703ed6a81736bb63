// Several channels and several addresses between the same two processes over ofi+tcp: none disturbs
// the others.
#include <unistd.h>

#include <cstdio>

#include <weft/runtime.h>

#include "support/catch.h"
#include "support/hold_server.h"
#include "support/test_timeout.h"
#include "support/usable.h"

#if WEFT_WITH_OFI

using namespace weft;
using namespace weft::test;

namespace {

constexpr MethodId echo = HoldServer::echo;
constexpr MethodId hold = HoldServer::hold;

struct Reply {
    bool done = false;
    Status status;
    Completion completion() {
        return [this](const Status& with, ByteView) {
            done = true;
            status = with;
        };
    }
};

void check_echo(Runtime& client, const Channel& channel) {
    Reply reply;
    channel.call(echo, as_bytes("x"), {.timeout = test_timeout}, reply.completion());
    REQUIRE(client.turn_until([&] { return reply.done; }, test_timeout));
    INFO(reply.status.to_string());
    REQUIRE(reply.status.ok());
}

}  // namespace

TEST_CASE("a region without grants closes, and no channel ends with it") {
    HoldServer service;
    Runtime server = Runtime::create({.manual = true}).value();
    REQUIRE(server.serve(service, "ofi+tcp://127.0.0.1:0").ok());
    const std::string uri = server.addresses().front();
    Runtime client = Runtime::create({.manual = true}).value();
    const auto both_until = [&](auto done) {
        const auto end = std::chrono::steady_clock::now() + test_timeout;
        while (!done() && std::chrono::steady_clock::now() < end) {
            server.turn();
            client.turn();
        }
        return done();
    };
    Channel main = client.connect(uri).value();
    Reply held;
    main.call(hold, {}, {.timeout = test_timeout}, held.completion());
    REQUIRE(both_until([&] { return service.held.size() == 1; }));
    for (int round = 0; round < 20; ++round) {
        {
            Channel passing = client.connect(uri).value();
            Reply reply;
            passing.call(echo, {}, {}, reply.completion());
            REQUIRE(both_until([&] { return reply.done; }));
        }
        bool fenced = false;
        Region region =
            server.expose(server.allocate(4096).value(), {.access = Access::read_write}).value();
        region.close([&] { fenced = true; });
        REQUIRE(both_until([&] { return fenced; }));
    }
    INFO(held.status.to_string());
    CHECK_FALSE(held.done);
    service.held[0].reply({});
    REQUIRE(both_until([&] { return held.done; }));
    CHECK(held.status.ok());
}

TEST_CASE("an address that one endpoint can't reach is tried from another, or from a new one") {
    HoldServer service;
    Runtime server = Runtime::create().value();
    if (!has_ipv6()) return;
    REQUIRE(server.serve(service, "ofi+tcp://[::1]:0").ok());
    const std::string uri = server.addresses().front();
    SECTION("from another") {
        Runtime client = Runtime::create({.manual = true}).value();
        REQUIRE(client.listen("ofi+tcp://127.0.0.1:0").ok());
        REQUIRE(client.listen("ofi+tcp://[::1]:0").ok());
        check_echo(client, client.connect(uri).value());
    }
    SECTION("from a new one") {
        Runtime client = Runtime::create({.manual = true}).value();
        REQUIRE(client.listen("ofi+tcp://127.0.0.1:0").ok());
        check_echo(client, client.connect(uri).value());
    }
    SECTION("from a new one, though other transports are there") {
        Runtime client = Runtime::create({.manual = true}).value();
        REQUIRE(client.listen("ofi+tcp://127.0.0.1:0").ok());
        REQUIRE(client.listen("sm://neighbours-" + std::to_string(getpid())).ok());
        check_echo(client, client.connect(uri).value());
    }
    SECTION("after an address without a server") {
        Runtime client = Runtime::create({.manual = true}).value();
        check_echo(client, client.connect({"ofi+tcp://127.0.0.1:1", uri}).value());
    }
    SECTION("an address without a server is UNAVAILABLE, once") {
        Runtime client = Runtime::create({.manual = true}).value();
        REQUIRE(client.listen("ofi+tcp://127.0.0.1:0").ok());
        Reply reply;
        Channel absent = client.connect("ofi+tcp://[::1]:1").value();
        absent.call(echo, {}, {}, reply.completion());
        REQUIRE(client.turn_until([&] { return reply.done; }, test_timeout));
        CHECK(reply.status.code() == Code::unavailable);
    }
}

#endif
