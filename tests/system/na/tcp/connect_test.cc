// Connecting over tcp and unix to a busy listener: which failures are retried, for how long, and
// the resources after them.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "na/connect_pacer.h"
#include "na/named_socket.h"
#include "na/tcp/handshake.h"
#include "na/tcp/socket.h"
#include "support/accept.h"
#include "support/accept_handshake.h"
#include "support/na_rma.h"
#include "support/open_files.h"

using namespace weft;
using namespace weft::na;
using namespace weft::test;
using namespace weft::na::tcp;

namespace {

// How a listener ends a connection.
enum class Ending : std::uint8_t { unread, read, in_words, passed };

// A listener that ends each connection as soon as it accepts it.
struct BusyListener {
    bool is_local;
    NaRig rig = is_local ? NaRig::on<wires::Unix>() : NaRig::on<wires::Tcp>();
    std::string uri = rig.fresh_uri();
    NamedSocket file;
    base::UniqueFd port;
    int ended = 0;

    explicit BusyListener(bool local) : is_local(local) {
        if (is_local) {
            const std::string path = uri.substr(std::string("unix://").size());
            file = *NamedSocket::listen(path, path + ".lock", SOCK_STREAM, uri);
        } else {
            port = *listen_at(*SocketName::from_numeric("127.0.0.1", 0), uri);
            uri = "tcp://" + local_name(port.get()).text();
        }
    }
    static void say_passed(int socket) {
        std::byte frame[sizeof(StreamHead)];
        REQUIRE(send_handshake(socket, {frame, encode_control(ControlKind::passed, frame)}));
    }
    // False without a connection.
    bool end_one(Ending how) {
        const base::UniqueFd socket = test::accept_one(is_local ? file.get() : port.get());
        if (!socket) return false;
        ++ended;
        if (how == Ending::passed) say_passed(socket.get());
        if (how == Ending::in_words || how == Ending::passed)
            send_refusal(socket.get(), fail(busy_code, "no place"));
        if (how != Ending::read) return true;
        HandshakeReader hello;
        return rig.pump_until(
            [&] { return hello.read(socket.get()) == HandshakeReader::Read::whole; });
    }
    void close() {
        file = {};
        port.reset();
    }
};

}  // namespace

TEST_CASE("tcp connect: a busy listener is retried until it accepts") {
    const Ending how = GENERATE(Ending::unread, Ending::read, Ending::in_words, Ending::passed);
    BusyListener busy(GENERATE(false, true));
    CAPTURE(how, busy.uri);
    NaNode& client = busy.rig.open({.listens = false});
    const PeerId peer = busy.rig.start_connect(client, busy.uri);
    REQUIRE(busy.rig.pump_until([&] {
        busy.end_one(how);
        return busy.ended == 8 || !client.downs.empty();
    }));
    REQUIRE(client.downs.empty());
    if (how != Ending::passed) {  // Without a slot it is not one of those that wait.
        REQUIRE(busy.rig.pump_until([&] { return !client->why_waiting(peer).empty(); }));
        const std::string why = client->why_waiting(peer);
        CHECK(why.find(how == Ending::in_words ? "no place" : "ulimit -n") != std::string::npos);
    }
    busy.close();
    NaNode& server = busy.rig.open({.uri = busy.uri});
    REQUIRE(busy.rig.pump_until([&] { return client.at(peer).state == PeerState::up; }));
    CHECK(client->why_waiting(peer).empty());
    REQUIRE(client.send(peer, 64));
    REQUIRE(busy.rig.pump_until([&] {
        const PeerId seen = server.peer_of(client.incarnation);
        return seen && server.at(seen).received == 1;
    }));
}

TEST_CASE("tcp connect: a listener says once that another of its contexts has the hello") {
    BusyListener busy(GENERATE(false, true));
    NaNode& client = busy.rig.open({.listens = false});
    busy.rig.start_connect(client, busy.uri);
    HandshakeReader hello;
    const base::UniqueFd socket =
        accept_handshake(busy.rig, busy.is_local ? busy.file.get() : busy.port.get(), hello);
    const Result<Hello> theirs = decode_hello_frame(hello.frame());
    REQUIRE(theirs.ok());
    CHECK((theirs->features & feature::contexts) != 0);
    BusyListener::say_passed(socket.get());
    busy.rig.pass(5ms);
    CHECK(client.downs.empty());
    BusyListener::say_passed(socket.get());
    REQUIRE(busy.rig.pump_until([&] { return !client.downs.empty(); }));
    CHECK(client.downs[0].code == Code::data_loss);
}

TEST_CASE("tcp connect: many connects that a context refuses late are all made in the end") {
    BusyListener busy(GENERATE(false, true));
    constexpr std::size_t many = ConnectPacer::half_open_max + 40;
    NaNode& client = busy.rig.open({.listens = false, .peers_max = many});
    for (std::size_t i = 0; i < many; ++i) busy.rig.start_connect(client, busy.uri);
    REQUIRE(busy.rig.pump_until([&] {
        busy.end_one(Ending::passed);
        return busy.ended == 3 * many || !client.downs.empty();
    }));
    CHECK(client.downs.empty());
    busy.close();
    NaNode& server = busy.rig.open({.uri = busy.uri, .peers_max = many});
    CHECK(busy.rig.pump_until([&] { return client.count(PeerState::up) == many; }));
    CHECK(busy.rig.pump_until([&] { return server.count(PeerState::up) == many; }));
}

TEST_CASE("tcp connect: a listener that hangs up without a reason fails the connect within 3 s") {
    BusyListener busy(GENERATE(false, true));
    const Ending how = GENERATE(Ending::unread, Ending::read);
    CAPTURE(how, busy.uri);
    NaNode& client = busy.rig.open({.listens = false});
    const TimePoint start = busy.rig.now();
    busy.rig.start_connect(client, busy.uri);
    REQUIRE(busy.rig.pump_until([&] {
        busy.end_one(how);
        return !client.downs.empty();
    }));
    CHECK(busy.rig.now() - start < promised(3s));
    CHECK(busy.ended > 4);
    CHECK(busy.ended <= 21);
    CHECK(client.downs[0].code == Code::unavailable);
    CHECK(client.downs[0].error.find(busy.uri) != std::string::npos);
    CHECK(client.downs[0].error.find("does not speak weft") != std::string::npos);
}

TEST_CASE("tcp connect: retries after slow hang-ups are bounded by time, too") {
    BusyListener busy(GENERATE(false, true));
    NaNode& client = busy.rig.open({.listens = false});
    busy.rig.start_connect(client, busy.uri);
    REQUIRE(busy.rig.pump_until([&] {
        if (busy.end_one(Ending::unread)) busy.rig.pass(1s);
        return !client.downs.empty();
    }));
    CHECK(busy.ended >= 3);
    CHECK(busy.ended <= 4);
}

TEST_CASE("tcp connect: time in which a client stalls does not count for hang-ups") {
    BusyListener busy(GENERATE(false, true));
    NaNode& client = busy.rig.open({.listens = false});
    busy.rig.start_connect(client, busy.uri);
    REQUIRE(busy.rig.pump_until([&] {
        if (busy.end_one(Ending::unread) && busy.ended == 2) busy.rig.skip(3s);
        return !client.downs.empty();
    }));
    CHECK(busy.ended > 10);
    CHECK(busy.ended <= 21);
}

TEST_CASE("tcp connect: connects that fail by hang-ups leak no descriptor, slot or pacer turn") {
    BusyListener busy(GENERATE(false, true));
    constexpr std::size_t many = ConnectPacer::half_open_max + 8;
    NaNode& client = busy.rig.open({.listens = false, .peers_max = many});
    const int before = open_files();
    for (std::size_t round = 1; round <= 3; ++round) {
        for (std::size_t i = 0; i < many; ++i) busy.rig.start_connect(client, busy.uri);
        REQUIRE(busy.rig.pump_until([&] {
            if (busy.end_one(Ending::unread)) busy.rig.skip(20ms);
            return client.downs.size() == round * many;
        }));
        CHECK(open_files() == before);
    }
    busy.close();
    NaNode& server = busy.rig.open({.uri = busy.uri});
    for (std::size_t i = 0; i < many; ++i) busy.rig.start_connect(client, busy.uri);
    CHECK(busy.rig.pump_until([&] { return client.count(PeerState::up) == many; }));
    CHECK(busy.rig.pump_until([&] { return server.count(PeerState::up) == many; }));
}

TEST_CASE("tcp connect: a bulk lane that is refused as busy is retried until it is accepted") {
    const Ending how = GENERATE(Ending::unread, Ending::read, Ending::in_words);
    const Duration stall = GENERATE(as<Duration>{}, 0s, 3s);  // Of the client, not of the listener.
    CAPTURE(how, stall / 1s);
    BusyListener busy(false);
    NaNode& client = busy.rig.open({.listens = false});
    const PeerId peer = busy.rig.start_connect(client, busy.uri);
    std::byte frame[handshake_bytes_max];
    HandshakeReader hello, join;
    const base::UniqueFd talk = accept_handshake(busy.rig, busy.port.get(), hello);
    const Hello mine{{7, 8}, 65 * 1024, 64 * 1024, "tcp://raw"};
    REQUIRE(send_handshake(talk.get(), {frame, encode_welcome({1, 2}, mine, frame)}));
    REQUIRE(busy.rig.pump_until([&] { return client.at(peer).state == PeerState::up; }));
    Buffer local = busy.rig.allocate(64);
    RmaItem put;
    put.kind = RmaKind::put;
    put.peer = peer;
    put.local = local.bytes();
    const std::uint64_t cookie = client.post(put);
    REQUIRE(cookie != 0);
    client->flush();
    REQUIRE(busy.rig.pump_until([&] {
        if (busy.end_one(how) && busy.ended == 2) busy.rig.skip(stall);
        return busy.ended == 5 || !client.rma_under_way.contains(cookie);
    }));
    const base::UniqueFd bulk = accept_handshake(busy.rig, busy.port.get(), join);
    REQUIRE(decode_join(join.frame()).value() == Ticket{1, 2});
    REQUIRE(send_handshake(bulk.get(), {frame, encode_control(ControlKind::welcome, frame)}));
    BulkHead head;
    REQUIRE(busy.rig.pump_until([&] {
        return ::recv(bulk.get(), &head, sizeof head, MSG_DONTWAIT) == ssize_t(sizeof head);
    }));
    CHECK(client.rma_under_way.contains(cookie));
}

TEST_CASE("tcp: a connect fails when the server does not speak weft") {
    auto rig = NaRig::on<wires::Tcp>();
    const SocketName any = *SocketName::from_numeric("127.0.0.1", 0);
    const base::UniqueFd listener = listen_at(any, "test").value();
    NaNode& client = rig.open({.listens = false});
    const std::string uri = "tcp://" + local_name(listener.get()).text();
    const PeerId peer = rig.start_connect(client, uri);
    base::UniqueFd accepted;
    REQUIRE(rig.pump_until([&] {
        if (!accepted) accepted = test::accept_one(listener.get());
        return bool(accepted);
    }));
    const std::string answer = GENERATE(as<std::string>{}, "SSH-2.0-OpenSSH_9.2p1 Debian\r\n", "");
    if (!answer.empty()) REQUIRE(::send(accepted.get(), answer.data(), answer.size(), 0) > 0);
    // A listener that hangs up is retried a few times.
    REQUIRE(rig.pump_until([&] {
        if (answer.empty()) accepted = test::accept_one(listener.get());
        return client.downs.size() == 1;
    }));
    CHECK(client.downs[0].peer == peer);
    CHECK(client.downs[0].code == (answer.empty() ? Code::unavailable : Code::data_loss));
    CHECK(client.downs[0].error.find(uri) != std::string::npos);
}
