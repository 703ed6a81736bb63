// The simulated network with faults.
#include "support/sim_net.h"

using namespace weft;
using na::PeerId;
using na::sim::NetworkFaults;
using na::sim::World;
using Host = test::SimHost;
using Net = test::SimNet;

namespace {

// Sends 200 messages and checks that they arrive in order; returns the hash of the trace.
std::uint64_t send_200(std::uint64_t seed, const weft::sim::Link& link, NetworkFaults* faults) {
    Net net(seed, link);
    Host& server = net.open("server");
    Host& client = net.open("client");
    const PeerId peer = net.join(client, "server");
    for (int i = 0; i < 200; ++i) REQUIRE(Net::send(client, peer, "message " + std::to_string(i)));
    REQUIRE(net.until([&] { return server.messages.size() == 200; }));
    for (int i = 0; i < 200; ++i) CHECK(server.messages[i] == "message " + std::to_string(i));
    CHECK(server.downs.empty());
    net.until([] { return false; }, 1s);
    CHECK(server.messages.size() == 200);
    if (faults) *faults = net.world->faults();
    return net.world->trace_hash();
}

}  // namespace

TEST_CASE("sim links: messages survive packets that are lost, repeated and reordered") {
    weft::sim::Link bad;
    bad.jitter = 20us;
    bad.loss = 0.2;
    bad.duplicate = 0.2;
    bad.reorder = 0.3;
    bad.bytes_per_second = 1e9;
    NetworkFaults faults;
    const std::uint64_t hash = send_200(1, bad, &faults);
    CHECK(faults.resent > 20);
    CHECK(faults.repeated > 20);
    CHECK(send_200(1, bad, nullptr) == hash);
    CHECK(send_200(2, bad, nullptr) != hash);
}

TEST_CASE("sim links: a message over a slow link takes the transmission time of its bytes") {
    weft::sim::Link slow;
    slow.bytes_per_second = 1e6;
    Net net(1, slow);
    Host& server = net.open("server");
    Host& client = net.open("client");
    const PeerId peer = net.join(client, "server");
    const TimePoint start = net.clock.now();
    REQUIRE(Net::send(client, peer, std::string(10'000, 'x')));
    REQUIRE(Net::send(client, peer, std::string(10'000, 'x')));
    REQUIRE(net.until([&] { return server.messages.size() == 2; }));
    CHECK(net.clock.now() - start >= 20ms);
    CHECK(net.clock.now() - start < 21ms);
}

TEST_CASE("sim links: a damaged packet disconnects both sides") {
    Net net(1);
    Host& server = net.open("server");
    Host& client = net.open("client");
    const PeerId peer = net.join(client, "server");
    weft::sim::Link damages;
    damages.damage = 1;
    net.world->set_link("client", "server", damages);
    REQUIRE(Net::send(client, peer, "hello"));
    REQUIRE(net.until([&] { return !server.downs.empty() && !client.downs.empty(); }));
    CHECK(server.downs == std::vector{Code::data_loss});
    CHECK(client.downs == std::vector{Code::unavailable});
    CHECK(server.messages.empty());
}

TEST_CASE("sim links: a short cut delays messages, and a long one disconnects the sender") {
    Net net(1);
    Host& server = net.open("server");
    Host& client = net.open("client");
    const PeerId peer = net.join(client, "server");
    net.world->cut("client", "server");
    REQUIRE(Net::send(client, peer, "one"));
    CHECK_FALSE(net.until([&] { return !server.messages.empty(); }, 300ms));
    net.world->heal("client", "server");
    REQUIRE(net.until([&] { return !server.messages.empty(); }));

    net.world->cut("client", "server");
    REQUIRE(Net::send(client, peer, "two"));
    REQUIRE(net.until([&] { return !client.downs.empty(); }, 3s));
    CHECK(client.downs == std::vector{Code::unavailable});
    // The server has not noticed the cut: its packet reaches the client, which has closed the
    // connection.
    CHECK(server.downs.empty());
    net.world->mend_all();
    REQUIRE(Net::send(server, server.ups.front(), "are you there?"));
    REQUIRE(net.until([&] { return !server.downs.empty(); }));
    CHECK(client.messages.empty());
    CHECK(server.messages == std::vector<std::string>{"one"});
    CHECK(net.world->faults().given_up == 1);
}

TEST_CASE("sim links: a connect fails UNAVAILABLE when its request or reply is lost") {
    Net net(1);
    net.open("server");
    Host& client = net.open("client");
    const bool there = GENERATE(true, false);  // Whether the request or the reply is lost.
    net.world->cut(there ? "client" : "server", there ? "server" : "client");
    REQUIRE(client.endpoint->connect({"sim", "server", "", 0}, net.clock.now()));
    REQUIRE(net.until([&] { return !client.downs.empty(); }, 3s));
    CHECK(client.downs == std::vector{Code::unavailable});
}

TEST_CASE("sim links: a late reply to a connect that has timed out is refused") {
    weft::sim::Link patient;
    patient.give_up_after = 1min;
    Net net(1, patient);
    Host& server = net.open("server");
    Host& client = net.open("client");
    net.world->cut("server", "client");
    REQUIRE(client.endpoint->connect({"sim", "server", "", 0}, net.clock.now()));
    REQUIRE(net.until([&] { return !server.ups.empty(); }));
    // The client is not polled: it timed out at 2 s, and has not reported that when the reply
    // arrives.
    const auto poll_server = [&](Duration time) {
        const TimePoint end = net.clock.now() + time;
        while (net.world->next_event() <= end) {
            net.clock.advance(net.world->next_event() - net.clock.now());
            net.world->advance(net.clock.now());
        }
    };
    poll_server(2100ms);
    net.world->mend_all();
    poll_server(1s);
    REQUIRE(net.until([&] { return !server.downs.empty(); }));
    CHECK(client.downs == std::vector{Code::unavailable});
    CHECK(client.ups.empty());
}

TEST_CASE("sim links: a stopped host sends nothing, and has no connections after its restart") {
    Net net(1);
    Host& server = net.open("server");
    Host& client = net.open("client");
    const PeerId peer = net.join(client, "server");
    REQUIRE(net.world->stop_host("server", false));
    CHECK_FALSE(net.world->stop_host("server", false));
    CHECK_FALSE(net.until([&] { return !client.downs.empty(); }, 500ms));
    const bool returns = GENERATE(false, true);
    CAPTURE(returns);
    REQUIRE(Net::send(client, peer, "hello"));
    if (returns) {
        server.endpoint.reset();
        net.open("server");
        REQUIRE(net.until([&] { return !client.downs.empty(); }, 200ms));
        CHECK(server.messages.empty());
        net.join(client, "server");
    } else {
        REQUIRE(net.until([&] { return !client.downs.empty(); }, 2s));
    }
    CHECK(client.downs == std::vector{Code::unavailable});
}

TEST_CASE("sim links: after a refused reserve the endpoint reports writable") {
    Net net(1);
    Host& server = net.open("server");
    Host& client = net.open("client");
    const PeerId peer = net.join(client, "server");
    net.world->refuse(1);
    CHECK_FALSE(Net::send(client, peer, "hello"));
    net.world->refuse(0);
    REQUIRE(net.until([&] { return client.writable == 1; }));
    REQUIRE(Net::send(client, peer, "hello"));
    REQUIRE(net.until([&] { return server.messages.size() == 1; }));
}

TEST_CASE("sim links: at a sender's end its packets in flight arrive and its queue is lost") {
    Net net(1);
    Host& server = net.open("server");
    Host& client = net.open("client");
    const PeerId peer = net.join(client, "server");
    // 64 KiB of them are sent; the server reads nothing.
    for (int i = 0; i < 5; ++i) REQUIRE(Net::send(client, peer, std::string(20'000, 'x')));
    SECTION("when the sender ends at once") {
        client.endpoint.reset();
        REQUIRE(net.until([&] { return !server.downs.empty(); }));
        CHECK(server.messages.size() == 3);
    }
    SECTION("when the server reads on") {
        REQUIRE(net.until([&] { return server.messages.size() == 5; }));
    }
}

TEST_CASE("sim links: a poll takes a share of each peer's messages when all exceed its limit") {
    weft::sim::Link link;
    link.latency = 1us;
    Net net(1, link);
    Host& server = net.open("server");
    const std::string names[] = {"a", "b", "c", "d", "e", "f"};
    std::map<std::string, PeerId> peers;
    for (const std::string& name : names) peers[name] = net.join(net.open(name), "server");
    for (const std::string& name : names) {
        for (int i = 0; i < 4; ++i) {
            REQUIRE(Net::send(net.at(name), peers[name], name + std::string(50'000, '.')));
        }
    }
    std::array<na::Event, 64> events;
    std::map<std::string, int> read;
    for (int polls = 0; polls < 3; ++polls) {
        net.clock.advance(10us);
        std::size_t bytes = 0;
        const std::size_t count = server.endpoint->poll(events, net.clock.now());
        for (const na::Event& event : std::span(events).first(count)) {
            if (event.kind != na::EventKind::message) continue;
            bytes += event.bytes.size();
            ++read[std::string(as_text(event.bytes.first(1)))];
        }
        CHECK(bytes <= 320'000);
    }
    for (const std::string& name : names) CHECK(read[name] >= 2);
}

TEST_CASE("sim links: a connection that hangs up ends on both sides, with its first message") {
    weft::sim::Link link;
    link.hang_up = 1;
    Net net(1, link);
    Host& server = net.open("server");
    Host& client = net.open("client");
    const PeerId peer = net.join(client, "server");
    REQUIRE(Net::send(client, peer, "hello"));
    REQUIRE(net.until([&] { return !client.downs.empty() && !server.downs.empty(); }));
    CHECK(server.messages.empty());
    CHECK(net.world->faults().hung_up == 1);
}

TEST_CASE("sim links: unwritten words of a reserved message are counted when it is sent") {
    Net net(1);
    Host& server = net.open("server");
    Host& client = net.open("client");
    const PeerId peer = net.join(client, "server");
    std::byte* const claim = client.endpoint->reserve(peer, 32);
    REQUIRE(claim);
    std::fill(claim, claim + 16, std::byte{1});
    client.endpoint->commit(32);
    client.endpoint->flush();
    REQUIRE(net.until([&] { return server.messages.size() == 1; }));
    CHECK(net.world->unwritten_words() == 2);
}
