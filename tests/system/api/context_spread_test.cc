// Channels that spread their operations over several contexts of the server.
#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <thread>

#include <weft/await.h>

#include "api/runtime_impl.h"
#include "support/contexts.h"
#include "support/fresh_uri.h"
#include "support/numbered_server.h"
#include "support/test_timeout.h"
#include "support/wait_for.h"

using namespace weft;
using namespace weft::test;

// The contexts that answered.
static Task<std::set<std::string>> ask_often(Channel channel, int calls) {
    std::set<std::string> answered;
    for (int i = 0; i < calls; ++i) {
        const auto reply = co_await call(channel, number_method, {});
        answered.insert(reply ? std::string(as_text(*reply)) : reply.status().to_string());
    }
    co_return answered;
}

// Until so many have answered: further connections are made beside the calls.
static Task<bool> reaches(Channel channel, std::size_t contexts) {
    const auto clock = [] { return std::chrono::steady_clock::now(); };
    const TimePoint by = clock() + test_timeout;
    std::set<std::string> answered;
    while (answered.size() < contexts && clock() < by)
        answered.merge(co_await ask_often(channel, 1));
    co_return answered.size() == contexts;
}

TEST_CASE("contexts: one connection of a spread channel for each context of the server, at most") {
    struct Case {
        unsigned server, spread, reached;
    };
    for (const std::string& scheme : steering) {
        for (const Case& one :
             {Case{4, 2, 2}, Case{4, 4, 4}, Case{2, 8, 2}, Case{1, 4, 1}, Case{4, 1, 1}}) {
            CAPTURE(scheme, one.server, one.spread);
            NumberedServer server(one.server, fresh_uri(scheme));
            Runtime client = Runtime::create(with_contexts(1)).value();
            const Channel channel =
                client.connect(server.address(), {.spread = one.spread}).value();
            REQUIRE(client.block_on(reaches(channel, one.reached)));
            const auto answered = client.block_on(ask_often(channel, 200));
            CHECK(answered.size() == one.reached);
            for (const std::string& text : answered) CHECK(text.size() == 1);
        }
    }
}

TEST_CASE("contexts: each context of the client spreads its own calls") {
    NumberedServer server(4, fresh_uri("unix"));
    Runtime client = Runtime::create(with_contexts(2)).value();
    const Channel channel = client.connect(server.address(), {.spread = 2}).value();
    const auto ask = [&](unsigned) { return reaches(channel, 2); };
    for (const bool all : client.block_on(client.on_all(ask))) CHECK(all);
    // Pinned channels of it stay where they are.
    CHECK(client.block_on(ask_often(channel.on(3), 50)) == std::set<std::string>{"3"});
}

TEST_CASE("contexts: other threads use a spread channel, by calls and transfers") {
    NumberedServer server(2, fresh_uri("tcp"));
    const Buffer memory = server.runtime.allocate(4096).value();
    const Region region = server.runtime.expose(memory, {.access = Access::read}).value();
    Runtime client = Runtime::create(with_contexts(1)).value();
    const Channel channel = client.connect(server.address(), {.spread = 2}).value();
    REQUIRE(client.block_on(reaches(channel, 2)));
    std::atomic<int> done{0}, failed{0};
    NumberedService::handled = 0;
    const Buffer local = client.allocate(64).value();
    for (int i = 0; i < 50; ++i) {
        channel.call(number_method, {}, {}, [&](const Status& status, ByteView) {
            failed += !status.ok();
            ++done;
        });
        channel.get(region.ref(), 0, local, {}, [&](const Status& status) {
            failed += !status.ok();
            ++done;
        });
    }
    CHECK(wait_for([&] { return done == 100; }));
    CHECK(failed == 0);
    CHECK(NumberedService::handled == 50);
}

// One context holds the calls of its client, so the next one goes elsewhere.
TEST_CASE("contexts: a spread channel gives each call to the less busy of two connections") {
    NumberedService::begun = 0;
    NumberedServer server(2, fresh_uri("sm"));
    Runtime client = Runtime::create(with_contexts(1)).value();
    const Channel channel = client.connect(server.address(), {.spread = 2}).value();
    REQUIRE(client.block_on(reaches(channel, 2)));
    std::atomic<int> cancelled{0};
    const auto hold = [&](unsigned) {
        std::vector<OperationId> ids;
        for (int i = 0; i < 20; ++i) {
            ids.push_back(channel.call(hold_method, {}, {}, [&](const Status& status, ByteView) {
                cancelled += status.code() == Code::cancelled;
            }));
        }
        return ids;
    };
    const std::vector<OperationId> ids = client.block_on(client.on_all(hold)).front();
    REQUIRE(wait_for([&] { return NumberedService::begun == 20; }));
    const auto held = [](unsigned) {
        const auto& services = static_cast<core::Context&>(*Executor::current());
        std::size_t busiest = 0;
        for (const auto& slot : services.endpoints()) {
            for (const core::Peer* peer : slot->peers)
                if (peer) busiest = std::max<std::size_t>(busiest, peer->interest);
        }
        return busiest;
    };
    for (const std::size_t interest : server.runtime.block_on(server.runtime.on_all(held)))
        CHECK(interest == 10);
    for (const OperationId id : ids) channel.cancel_call(id);
    CHECK(wait_for([&] { return cancelled == 20; }));
}

TEST_CASE("contexts: a spread channel that ends closes all its connections") {
    NumberedServer server(3, fresh_uri("unix"));
    Runtime client = Runtime::create(with_contexts(1)).value();
    const auto peers = [&] {
        const auto count = [](unsigned) {
            std::size_t up = 0;
            for (const auto& slot : static_cast<core::Context&>(*Executor::current()).endpoints()) {
                for (const core::Peer* peer : slot->peers)
                    up += peer && peer->state == core::PeerState::up;
            }
            return up;
        };
        std::size_t all = 0;
        for (const std::size_t up : server.runtime.block_on(server.runtime.on_all(count)))
            all += up;
        return all;
    };
    {
        const Channel channel = client.connect(server.address(), {.spread = 3}).value();
        REQUIRE(client.block_on(reaches(channel, 3)));
        CHECK(peers() == 3);
    }
    CHECK(wait_for([&] { return peers() == 0; }));
}

namespace {

core::Context& context_of_turn() { return static_cast<core::Context&>(*Executor::current()); }

// The peers that fill the table of context 0.
std::vector<core::PeerRef> take_all_peers(Runtime& client) {
    const auto fill = [](unsigned) {
        const na::Address address = na::parse_address("sm://spread-test-nothing").value();
        std::vector<core::PeerRef> taken;
        while (true) {
            const Result<core::PeerRef> peer = context_of_turn().add_peer({address});
            if (!peer) return taken;
            taken.push_back(*peer);
        }
    };
    return client.block_on(client.on_all(fill)).front();
}

void remove_peer(Runtime& client, core::PeerRef peer) {
    const auto remove = [peer](unsigned) {
        context_of_turn().remove_peer(*core::Context::find(peer), fail(Code::cancelled, "a test"));
    };
    client.block_on(client.on_all(remove));
}

Task<Status> get_from(Channel channel, RegionRef from, Buffer local) {
    co_return co_await get(channel, from, 0, local, {.timeout = test_timeout});
}

void check_no_room(const Status& status) {
    CHECK(status.code() == Code::resource_exhausted);
    CHECK(status.effect() == Effect::none);
    CHECK(status.text().find("as many as it may") != std::string_view::npos);
}

}  // namespace

TEST_CASE("contexts: a channel to a context that has no room for its peer works once there is") {
    NumberedServer server(2, fresh_uri("unix"));
    const Buffer memory = server.runtime.allocate(64).value();
    const Region region = server.runtime.expose(memory, {.access = Access::read}).value();
    Runtime client = Runtime::create(with_contexts(1)).value();
    const Buffer local = client.allocate(64).value();
    const Channel channel = client.connect(server.address()).value();
    REQUIRE(ask_context(client, channel) < 2);
    const std::vector<core::PeerRef> taken = take_all_peers(client);
    const Channel pinned = channel.on(1);
    check_no_room(client.block_on(ask_number(pinned)).status());
    check_no_room(client.block_on(get_from(pinned, region.ref(), local)));
    Status posted;
    std::atomic<bool> has_ended{false};
    pinned.call(number_method, {}, {}, [&](const Status& status, ByteView) {
        posted = status;
        has_ended = true;
    });
    REQUIRE(wait_for([&] { return has_ended.load(); }));
    check_no_room(posted);
    remove_peer(client, taken.back());
    CHECK(ask_context(client, pinned) == 1);
    CHECK(ask_context(client, channel.on(1)) == 1);
    CHECK(client.block_on(get_from(pinned, region.ref(), local)).ok());
}

TEST_CASE("contexts: a spread channel without room for peers adds them once there is") {
    NumberedServer server(2, fresh_uri("unix"));
    Runtime client = Runtime::create(with_contexts(1)).value();
    const Channel channel = client.connect(server.address(), {.spread = 2}).value();
    const std::vector<core::PeerRef> taken = take_all_peers(client);
    REQUIRE(client.block_on(ask_often(channel, 50)).size() == 1);
    remove_peer(client, taken.back());
    CHECK(wait_for([&] { return client.block_on(ask_often(channel, 50)).size() == 2; }));
}

TEST_CASE("contexts: no call of a spread channel fails as its other connection is refused") {
    RuntimeOptions few = with_contexts(2);
    few.peers_max = 8;
    for (const char* scheme : {"tcp", "sm"}) {
        CAPTURE(scheme);
        Runtime server = Runtime::create(few).value();
        REQUIRE(server.serve(numbered_services(), fresh_uri(scheme)).ok());
        // As many connections name context 1 as may.
        std::vector<Runtime> others;
        std::vector<Channel> named;
        for (int i = 0; i < 4; ++i) {
            others.push_back(Runtime::create(with_contexts(1)).value());
            named.push_back(others.back().connect(server.addresses().front()).value().on(1));
            REQUIRE(ask_context(others.back(), named.back()) == 1);
        }
        Runtime client = Runtime::create(with_contexts(1)).value();
        const Channel channel = client.connect(server.addresses().front(), {.spread = 2}).value();
        CHECK(client.block_on(ask_often(channel, 200)) == std::set<std::string>{"0"});
        named.pop_back();
        CHECK(client.block_on(reaches(channel, 2)));
    }
}

TEST_CASE("contexts: a spread out of its range is refused") {
    Runtime client = Runtime::create(with_contexts(1)).value();
    for (const unsigned spread : {0u, 65u}) {
        const Result<Channel> channel =
            client.connect("sm://spread-test-nothing", {.spread = spread});
        REQUIRE_FALSE(channel);
        CHECK(channel.status().code() == Code::invalid_argument);
        CHECK(channel.status().text() == "ConnectOptions::spread is " + std::to_string(spread) +
                                             ": expected a number from 1 to 64");
    }
}
