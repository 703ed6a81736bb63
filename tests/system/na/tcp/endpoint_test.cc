// Properties of tcp endpoints only; the common ones are in tests/conformance.
#include <sys/socket.h>

#include "na/connect_pacer.h"
#include "na/resolution.h"
#include "na/tcp/socket.h"
#include "support/na_rig.h"
#include "support/tcp_raw_peer.h"

using namespace weft;
using namespace weft::test;

// The same queue holds the frames that a full socket refused, which the next turn retries.
TEST_CASE("tcp: an endpoint does not sleep while committed messages are unsent") {
    NaRig rig = NaRig::on<wires::Tcp>();
    NaPair pair(rig);
    REQUIRE(rig.pump_until([&] { return pair.a->arm(); }));
    REQUIRE(pair.a.send(pair.ab, 100));  // Sent at once, as the first message of the turn.
    REQUIRE(pair.a.send(pair.ab, 100));
    CHECK_FALSE(pair.a->arm());
    pair.a->flush();
    CHECK(pair.a->arm());
    REQUIRE(rig.pump_until([&] { return pair.b.at(pair.ba).received == 2; }));
}

TEST_CASE("tcp: connects that the pacer starts late at a stalled server have their full timeout") {
    NaRig rig = NaRig::on<wires::Tcp>();
    const base::UniqueFd listener =
        na::tcp::listen_at(*na::SocketName::from_numeric("127.0.0.1", 0), "test").value();
    const std::string uri = "tcp://" + na::tcp::local_name(listener.get()).text();
    NaNode& client = rig.open({.listens = false, .peers_max = 256});
    constexpr std::size_t first = na::ConnectPacer::half_open_max, late = 28;
    std::vector<na::PeerId> peers;
    while (peers.size() < first + late) peers.push_back(rig.start_connect(client, uri));
    rig.run_until_idle();  // The kernel accepts the first ones; no process answers their hello.
    rig.pass(4s);
    rig.run_until_idle();
    REQUIRE(client.count(PeerState::connecting) == first + late);
    for (std::size_t i = 0; i < first; ++i) client.close(peers[i]);
    CHECK_FALSE(rig.pump_until([&] { return !client.downs.empty(); }, 1s));
    CHECK(client.count(PeerState::connecting) == late);
}

// A listener with a full queue drops connection requests, like a link that loses them.
TEST_CASE("tcp: a connect without an answer fails alone when its listener answers others") {
    NaRig rig = NaRig::on<wires::Tcp>();
    const base::UniqueFd listener =
        na::tcp::listen_at(*na::SocketName::from_numeric("127.0.0.1", 0), "test").value();
    constexpr std::size_t at_once = na::ConnectPacer::half_open_max, later = 8;
    REQUIRE(::listen(listener.get(), at_once - 2) == 0);  // One more: all but the last.
    const std::string uri = "tcp://" + na::tcp::local_name(listener.get()).text();
    NaNode& client = rig.open({.listens = false, .peers_max = 256});
    std::vector<na::PeerId> peers;
    while (peers.size() < at_once + later) peers.push_back(rig.start_connect(client, uri));
    rig.pass(1s);
    const base::UniqueFd accepted(::accept(listener.get(), nullptr, nullptr));
    REQUIRE(accepted);
    client.close(peers[0]);  // The next one starts and takes the place in the queue.
    rig.pass(1s);
    REQUIRE(client.downs.empty());
    REQUIRE(rig.pump_until([&] { return !client.downs.empty(); }));
    CHECK(client.downs[0].peer == peers[at_once - 1]);
    rig.pass(2s);  // The one behind it has its own timeout.
    CHECK(client.downs.size() == 1);
    REQUIRE(rig.pump_until([&] { return client.downs.size() > 1; }));
    // No answer in all of that time: none of the others waits as long.
    CHECK(rig.pump_until([&] { return client.downs.size() == later; }, 1s));
    CHECK(client.count(PeerState::connecting) == at_once - 1);
}

TEST_CASE("tcp: a stalled process loses no connect, however many are answered meanwhile") {
    NaRig rig = NaRig::on<wires::Tcp>();
    const base::UniqueFd listener =
        na::tcp::listen_at(*na::SocketName::from_numeric("0.0.0.0", 0), "test").value();
    const std::string port = std::to_string(na::tcp::local_name(listener.get()).port());
    NaNode& client = rig.open({.listens = false, .peers_max = 256});
    constexpr int hosts = 200;
    for (int i = 1; i <= hosts; ++i) {
        rig.start_connect(client, "tcp://127.0.0." + std::to_string(i) + ":" + port);
    }
    rig.skip(2700ms);
    rig.run_until_idle();
    CHECK(client.downs.empty());
    CHECK(client.count(PeerState::connecting) == hosts);
}

TEST_CASE("tcp: a host name that was resolved while this process stalled does not time out") {
    NaRig rig = NaRig::on<wires::Tcp>();
    NaNode& client = rig.open({.listens = false});
    const std::string uri = "tcp://weft.invalid:1";
    rig.start_connect(client, uri);
    na::Resolution::start(na::parse_address(uri).value(), rig.now())->wait();
    rig.skip(2700ms);
    REQUIRE(rig.pump_until([&] { return !client.downs.empty(); }));
    INFO(client.downs[0].error);
    CHECK(client.downs[0].error.find("in time") == std::string::npos);
}

TEST_CASE("tcp: a server serves a client when its hello arrives while the server stalls") {
    NaRig rig = NaRig::on<wires::Tcp>();
    NaNode& server = rig.open();
    TcpRawConnection talk(server->address());
    // The connection is accepted.
    REQUIRE(rig.pump_until([&] { return server->next_deadline() != never; }));
    rig.skip(2700ms);
    rig.run_until_idle();
    talk.join(rig);
    CHECK(rig.pump_until([&] { return server.count(PeerState::up) == 1; }));
}

TEST_CASE("tcp: a connect to a silent host fails in a process that polls seldom") {
    NaRig rig = NaRig::on<wires::Tcp>();
    const base::UniqueFd listener =
        na::tcp::listen_at(*na::SocketName::from_numeric("127.0.0.1", 0), "test").value();
    REQUIRE(::listen(listener.get(), 0) == 0);
    const na::SocketName name = na::tcp::local_name(listener.get());
    const base::UniqueFd first = na::tcp::start_connecting(name).value();
    NaNode& client = rig.open({.listens = false});
    rig.start_connect(client, "tcp://" + name.text());
    for (int looks = 0; looks < 12; ++looks) {
        rig.skip(1s);
        client.poll();
    }
    CHECK(client.downs.size() == 1);
}
