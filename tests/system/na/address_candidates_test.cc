// A host name that has several addresses: which ones are tried, in what order, and which error is
// reported.
#include "na/address_candidates.h"

#include <sys/socket.h>

#include <vector>

#include "na/resolver.h"
#include "na/tcp/handshake.h"
#include "na/tcp/socket.h"
#include "support/accept.h"
#include "support/na_rig.h"

using namespace weft;
using namespace weft::na;
using namespace weft::test;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

namespace {

SocketName address_at(const std::string& host, std::uint16_t port = 0) {
    return *SocketName::from_numeric(host, port);
}

std::vector<SocketName> several;  // The answer of the resolver.

Resolver::Answer answer_several(const std::string&) { return {several, {}}; }

// A client of a host with the addresses `names`.
struct SeveralClient {
    NaRig rig = NaRig::on<wires::Tcp>();
    Resolver resolver{&answer_several};
    NaNode* node = nullptr;
    PeerId peer;

    void connect(std::vector<SocketName> names, std::uint16_t port) {
        several = std::move(names);
        node = &rig.open({.listens = false, .resolver = &resolver});
        peer = rig.start_connect(*node, "tcp://several.test:" + std::to_string(port));
    }
    bool comes_up() {
        return rig.pump_until([&] {
            return node->at(peer).state == PeerState::up || !node->downs.empty();
        }) && node->downs.empty();
    }
};

std::uint16_t port_in(const std::string& uri) {
    return static_cast<std::uint16_t>(std::stoi(uri.substr(uri.rfind(':') + 1)));
}

// A listener at which the kernel drops connection requests.
struct SilentListener {
    base::UniqueFd listener;
    std::vector<base::UniqueFd> waiting;

    explicit SilentListener(const SocketName& at) {
        listener.reset(::socket(at.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
        REQUIRE(::bind(listener.get(), at.get(), static_cast<socklen_t>(at.size())) == 0);
        REQUIRE(::listen(listener.get(), 0) == 0);
        // The kernel accepts one connection beyond the backlog.
        for (int i = 0; i < 2; ++i) waiting.push_back(*tcp::start_connecting(at));
    }
    void let_in() { REQUIRE(::listen(listener.get(), 16) == 0); }
};

}  // namespace

TEST_CASE("address candidates: each gets a short attempt, then silent ones the full timeout") {
    AddressCandidates all(
        {address_at("192.0.2.1"), address_at("192.0.2.2"), address_at("192.0.2.3")});
    CHECK(all.name().host() == "192.0.2.1");
    CHECK(all.time(3s) == AddressCandidates::first_round_time);
    REQUIRE(all.next("first silent", true));
    CHECK(all.name().host() == "192.0.2.2");
    REQUIRE(all.next("second refused", false));
    CHECK(all.name().host() == "192.0.2.3");
    REQUIRE(all.next("third silent", true));
    CHECK(all.name().host() == "192.0.2.1");
    CHECK(all.time(3s) == 3s);
    REQUIRE(all.next("first refused", false));
    CHECK(all.name().host() == "192.0.2.3");
    CHECK_FALSE(all.next("third still silent", true));
    CHECK(all.describe() == "first refused; second refused; third still silent");
}

TEST_CASE("address candidates: none is tried twice when none was silent") {
    AddressCandidates all({address_at("192.0.2.1"), address_at("::1")});
    REQUIRE(all.next("no", false));
    CHECK_FALSE(all.next("nor that", false));
    CHECK(all.describe() == "no; nor that");
}

TEST_CASE("tcp: a host is reached at another address when its first ones refuse") {
    SeveralClient client;
    NaNode& server = client.rig.open();
    client.connect({address_at("::1"), address_at("127.0.0.2"), address_at("127.0.0.3"),
                    address_at("127.0.0.1")},
                   port_in(server->address()));
    CHECK(client.comes_up());
    CHECK(client.rig.pump_until([&] { return server.count(PeerState::up) == 1; }));
}

TEST_CASE("tcp: a host is reached at another address when its first one is silent") {
    SeveralClient client;
    NaNode& server = client.rig.open();
    const std::uint16_t port = port_in(server->address());
    const SilentListener silent(address_at("127.0.0.2", port));
    client.connect({address_at("127.0.0.2"), address_at("127.0.0.1")}, port);
    CHECK(client.comes_up());
}

TEST_CASE("tcp: the error names each address of the host and its failure") {
    SeveralClient client;
    NaNode& server = client.rig.open();
    const std::uint16_t port = port_in(server->address());
    client.rig.destroy(server);
    client.connect({address_at("127.0.0.2"), address_at("127.0.0.1")}, port);
    CHECK_FALSE(client.comes_up());
    REQUIRE(client.node->downs.size() == 1);
    CHECK(client.node->downs[0].code == Code::unavailable);
    const std::string digits = std::to_string(port);
    CHECK_THAT(client.node->downs[0].error,
               Contains("tcp://several.test:" + digits) && Contains("127.0.0.1:" + digits) &&
                   Contains("127.0.0.2:" + digits) && Contains("connection refused"));
}

TEST_CASE("tcp: the reason of a waiting connect names each address that was tried") {
    SeveralClient client;
    const SilentListener silent(address_at("127.0.0.2"));
    const std::uint16_t port = tcp::local_name(silent.listener.get()).port();
    client.connect({address_at("127.0.0.1"), address_at("127.0.0.2"), address_at("127.0.0.3")},
                   port);
    const std::string digits = std::to_string(port);
    CHECK(client.rig.pump_until([&] {
        const std::string why = (*client.node)->why_waiting(client.peer);
        return why.find("127.0.0.2:" + digits + ": no answer yet") != std::string::npos;
    }));
    CHECK_THAT((*client.node)->why_waiting(client.peer),
               StartsWith("tcp://several.test:" + digits + ": ") &&
                   Contains("127.0.0.1:" + digits) && Contains("connection refused") &&
                   !Contains("127.0.0.3"));
}

TEST_CASE("tcp: a slow address has the full timeout when no other address remains") {
    SeveralClient client;
    SilentListener slow(address_at("127.0.0.2"));
    const std::uint16_t port = tcp::local_name(slow.listener.get()).port();
    client.connect({address_at("127.0.0.2"), address_at("127.0.0.1")}, port);
    // The second round, because the other address has refused.
    client.rig.pass(AddressCandidates::first_round_time + 100ms);
    REQUIRE(client.node->downs.empty());
    slow.let_in();
    slow.waiting.clear();
    tcp::HandshakeReader hello;
    base::UniqueFd accepted;
    CHECK(client.rig.pump_until([&] {
        if (!accepted) accepted = accept_one(slow.listener.get());
        if (!accepted) return false;
        const tcp::HandshakeReader::Read read = hello.read(accepted.get());
        if (read == tcp::HandshakeReader::Read::gone)
            accepted.reset();  // A connection that filled the queue.
        return read == tcp::HandshakeReader::Read::whole;
    }));
}
