// Connecting over sm: resources after a failed attempt, and the failures that are retried.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>

#include <array>

#include "support/child.h"
#include "support/na_rig.h"
#include "support/open_files.h"
#include "support/ordinary_user.h"
#include "support/sm_raw_peer.h"

using namespace weft;
using namespace weft::test;
using na::EventKind;

namespace {

// A server of the same user that answers each hello manually.
struct RawServer {
    std::string name = unique_name("by-hand");
    na::sm::Listening listening = na::sm::Listening::open(name).value();

    base::UniqueFd accept(SmNode& client) {
        base::UniqueFd socket;
        turn_until({&client}, [&] {
            socket.reset(::accept4(listening.socket(), nullptr, nullptr, SOCK_CLOEXEC));
            return bool(socket) || !client.seen.empty();
        });
        INFO((client.seen.empty() ? "" : client.seen[0].error));
        REQUIRE(client.seen.empty());
        return socket;
    }
    // Closes the socket with the hello read or, which resets the connection, unread.
    void refuse(SmNode& client, Code code, bool reads) {
        const base::UniqueFd socket = accept(client);
        std::array<std::byte, 4096> greeting;
        if (reads) REQUIRE(::recv(socket.get(), greeting.data(), greeting.size(), 0) > 0);
        std::string packet = "wfsm";
        packet += {0, 0, 2, static_cast<char>(code), 4, 0, 'b', 'u', 's', 'y'};
        REQUIRE(::send(socket.get(), packet.data(), packet.size(), MSG_NOSIGNAL) > 0);
    }
};

// Descriptors in flight in a socket, as many as the kernel allows this user.
struct InFlight {
    int ends[2];
    // The kernel counts them for the user, so tests of other processes wait until this process
    // ends.
    bool fill() {
        const int lock = ::open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (lock < 0 || ::flock(lock, LOCK_EX) != 0) return false;
        if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends) != 0) return false;
        na::sm::FilesToSend files;
        files.regions = files.rings = files.arena = ends[0];
        for (int i = 0; i < 1000; ++i) {
            if (!na::sm::send_hello(ends[0], {}, files).ok()) return i != 0;
        }
        return false;
    }
    void drain() const {
        char byte = 0;
        while (::recv(ends[1], &byte, 1, 0) > 0) continue;
    }
};

}  // namespace

TEST_CASE("sm: a connect that is refused as busy is retried, and may be closed meanwhile") {
    const Code code = GENERATE(as<Code>{}, Code::aborted, Code::deadline_exceeded);
    const bool reads = GENERATE(true, false);
    CAPTURE(code, reads);
    RawServer server;
    SmNode client("", 2);
    for (int i = 0; i < 8; ++i) {
        const na::PeerId peer = client.connect(server.name);
        for (int tries = 0; tries < 3; ++tries) server.refuse(client, code, reads);
        for (int turns = 0; turns < 1000; ++turns) client.turn();
        CHECK(client.seen.empty());
        client.endpoint->close(peer);
    }
}

TEST_CASE("sm: a client is served when its hello arrives while the server stalls") {
    NaRig rig = NaRig::on<wires::Sm>();
    NaNode& server = rig.open();
    SmRawPeer peer(server->address().substr(5));
    // The connection is accepted.
    REQUIRE(rig.pump_until([&] { return server->next_deadline() != never; }));
    rig.skip(2700ms);
    rig.run_until_idle();
    peer.greet();
    CHECK(rig.pump_until([&] { return server.count(weft::test::PeerState::up) == 1; }));
}

TEST_CASE("sm: a connect that was refused as busy succeeds when the server has a free slot") {
    RawServer busy;
    SmNode client;
    client.connect(busy.name);
    busy.refuse(client, na::busy_code, true);
    busy.refuse(client, na::busy_code, false);
    busy.listening = {};
    SmNode server(busy.name);
    const na::PeerId peer = await({&client, &server}, client, EventKind::peer_up).event.peer;
    await({&client, &server}, server, EventKind::peer_up);
    REQUIRE(client.send(peer, "hello"));
    client.endpoint->flush();
    CHECK(await({&client, &server}, server, EventKind::message).bytes == "hello");
}

TEST_CASE("sm: a listener says once that another of its contexts has the hello") {
    RawServer server;
    SmNode client;
    client.connect(server.name);
    const base::UniqueFd socket = server.accept(client);
    na::sm::send_passed(socket.get());
    for (int turns = 0; turns < 1000; ++turns) client.turn();
    CHECK(client.seen.empty());
    na::sm::send_passed(socket.get());
    CHECK(await({&client}, client, EventKind::peer_down).event.code == Code::data_loss);
}

TEST_CASE("sm: a client that says that another context has the hello is refused") {
    const std::string name = unique_name("passed");
    SmNode server(name);
    SmRawPeer peer(name);
    na::sm::send_passed(peer.socket.get());
    CHECK(peer.refusal(server).code() == Code::data_loss);
}

TEST_CASE("sm: a listener that accepts and hangs up is retried, then fails with a remedy") {
    RawServer server;
    SmNode client;
    client.connect(server.name);
    int accepted = 0;
    turn_until({&client}, [&] {
        const base::UniqueFd socket(
            ::accept4(server.listening.socket(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        accepted += socket ? 1 : 0;
        return client.find(EventKind::peer_down) != nullptr;
    });
    CHECK(accepted > 10);
    const Seen down = client.take(EventKind::peer_down);
    CHECK(down.event.code == Code::unavailable);
    CHECK(down.error.find(server.name) != std::string::npos);
    CHECK(down.error.find("ulimit -n") != std::string::npos);
}

TEST_CASE("sm: time in which a client stalls does not count for a listener that hangs up") {
    NaRig rig = NaRig::on<wires::Sm>();
    const RawServer server;
    NaNode& client = rig.open({.listens = false});
    rig.start_connect(client, "sm://" + server.name);
    int ended = 0;
    REQUIRE(rig.pump_until([&] {
        const base::UniqueFd socket(
            ::accept4(server.listening.socket(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (socket && ++ended == 2) rig.skip(3s);
        return !client.downs.empty();
    }));
    CHECK(ended > 10);
    CHECK(ended <= 21);
}

TEST_CASE("sm: a connect waits while its user has too many descriptors in flight") {
    const int end = end_of_child([] {
        if (!limit_as_ordinary_user(256)) return 2;
        const std::string name = unique_name("flood");
        SmNode server(name);
        SmNode client("", 4);
        InFlight others;
        if (!others.fill()) return 3;
        int before = 0;
        for (int i = 0; i < 50; ++i) {
            if (i == 1) before = open_files();  // The first connect creates the arena.
            const na::PeerId peer = client.connect(name);
            for (int turns = 0; turns < 10; ++turns) client.turn();
            if (!client.seen.empty()) return 4;
            client.endpoint->close(peer);
        }
        if (open_files() != before) return 5;
        const na::PeerId peer = client.connect(name);
        for (int turns = 0; turns < 1000; ++turns) client.turn();
        others.drain();
        if (await({&client, &server}, client, EventKind::peer_up).event.peer != peer) return 6;
        return 0;
    });
    CHECK(end == 0);
}

TEST_CASE("sm: a connect after an idle time backs off from now, not from the last poll") {
    const int end = end_of_child([] {
        if (!limit_as_ordinary_user(256)) return 2;
        const std::string name = unique_name("idle");
        SmNode server(name);
        SmNode client;
        client.turn();
        InFlight others;
        if (!others.fill()) return 3;
        const TimePoint later = real_now() + 4s;
        if (!client.endpoint->connect({"sm", name, "", 0}, later).ok()) return 4;
        return client.endpoint->next_deadline() > later ? 0 : 5;
    });
    CHECK(end == 0);
}

// The hello has arrived, and the reply with its descriptors can't be sent.
TEST_CASE("sm: a server refuses as busy when its user has too many descriptors in flight") {
    const int end = end_of_child([] {
        if (!limit_as_ordinary_user(256)) return 2;
        const std::string name = unique_name("flooded");
        SmNode server(name);
        SmRawPeer early(name);
        early.greet();
        InFlight others;
        if (!others.fill() || !limit_as_ordinary_user(200)) return 3;
        if (early.refusal(server).code() != na::busy_code) return 4;
        others.drain();
        SmRawPeer late(name);
        late.join(server);
        return 0;
    });
    CHECK(end == 0);
}
