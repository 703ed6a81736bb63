// What is tcp's own about an endpoint; the rest is in tests/conformance.
#include "na/connect_pacer.h"
#include "na/tcp/socket.h"
#include "support/na_rig.h"

using namespace weft;
using namespace weft::test;

// The same queue holds what a full socket did not take and is tried again in the next turn.
TEST_CASE("tcp: nobody sleeps on what has been committed and has not left") {
    NaRig rig = NaRig::on<wires::Tcp>();
    NaPair pair(rig);
    REQUIRE(rig.pump_until([&] { return pair.a->arm(); }));
    REQUIRE(pair.a.send(pair.ab, 100));  // Leaves at once, as the first of a turn.
    REQUIRE(pair.a.send(pair.ab, 100));
    CHECK_FALSE(pair.a->arm());
    pair.a->flush();
    CHECK(pair.a->arm());
    REQUIRE(rig.pump_until([&] { return pair.b.at(pair.ba).received == 2; }));
}

TEST_CASE(
    "tcp: connects have their own time when their turn comes late at a server that stands still") {
    NaRig rig = NaRig::on<wires::Tcp>();
    const base::UniqueFd listener =
        na::tcp::listen_at(*na::SocketName::from_numeric("127.0.0.1", 0), "test").value();
    const std::string uri = "tcp://" + na::tcp::local_name(listener.get()).text();
    NaNode& client = rig.open({.listens = false, .peers_max = 256});
    constexpr std::size_t first = na::ConnectPacer::half_open_max, late = 28;
    std::vector<na::PeerId> peers;
    while (peers.size() < first + late) peers.push_back(rig.start_connect(client, uri));
    rig.settle();  // The kernel takes the first; no process greets them.
    rig.skip(4s);
    rig.settle();
    REQUIRE(client.count(PeerState::connecting) == first + late);
    for (std::size_t i = 0; i < first; ++i) client.close(peers[i]);
    CHECK_FALSE(rig.pump_until([&] { return !client.downs.empty(); }, 1s));
    CHECK(client.count(PeerState::connecting) == late);
}
