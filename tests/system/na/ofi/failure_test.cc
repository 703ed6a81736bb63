// Errors that ofi+tcp reports.
#include <sys/epoll.h>

#include <utility>
#include <vector>

#include "na/ofi/listener_probe.h"
#include "support/no_more_threads.h"
#include "support/ofi_process.h"

using namespace weft;
using namespace weft::test;
using na::EventKind;

// A plain TCP socket of the loopback interface; once it listens, the kernel accepts connections.
class PlainListener {
  public:
    explicit PlainListener(bool listens)
        : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
        const auto any = *na::SocketName::from_numeric("127.0.0.1", 0);
        REQUIRE(::bind(fd_.get(), any.get(), any.size()) == 0);
        if (listens) REQUIRE(::listen(fd_.get(), 16) == 0);
        sockaddr_storage name{};
        socklen_t bytes = sizeof name;
        REQUIRE(::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&name), &bytes) == 0);
        port_ = na::SocketName::from_kernel(reinterpret_cast<sockaddr*>(&name), bytes)->port();
    }
    std::string uri() const { return "ofi+tcp://127.0.0.1:" + std::to_string(port_); }
    // The number of connections accepted so far; they stay open until the destructor.
    std::size_t accepted() {
        while (true) {
            base::UniqueFd one(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
            if (!one) return accepted_.size();
            accepted_.push_back(std::move(one));
        }
    }

  private:
    base::UniqueFd fd_;
    std::vector<base::UniqueFd> accepted_;
    std::uint16_t port_ = 0;
};

static na::SocketName socket_name(const std::string& uri) {
    const na::Address address = *na::parse_address(uri);
    return *na::SocketName::from_numeric(address.host, address.port);
}

// Turns until `node` has a peer_down event; returns how long that took.
static Duration time_to_down(Node& node, std::initializer_list<Node*> nodes) {
    const TimePoint start = real_now();
    REQUIRE(turn_until(nodes, [&] { return node.find(EventKind::peer_down); }));
    return real_now() - start;
}

TEST_CASE("ofi: a refused connection is reported at once") {
    PlainListener closed(false);
    Node client;
    const na::PeerId peer = client.connect(closed.uri());
    CHECK(time_to_down(client, {&client}) < promised(500ms));
    const Seen& down = *client.find(EventKind::peer_down);
    CHECK(down.event.peer == peer);
    CHECK(down.event.code == Code::unavailable);
    INFO(down.error);
    CHECK(down.error.find("refused") != std::string::npos);
    CHECK(client->info(peer) == nullptr);
    turn_for({&client}, 100ms);
    CHECK(client.seen.size() == 1);
}

TEST_CASE("ofi: a connect to a silent listener waits, and fails when the listener ends") {
    std::optional<PlainListener> silent(true);
    Node client;
    client.connect(silent->uri());
    turn_for({&client}, 3s);
    CHECK(client.seen.empty());
    silent.reset();
    const TimePoint start = real_now();
    time_to_down(client, {&client});
    CHECK(real_now() - start < promised(3s));
    CHECK(client.seen[0].event.code == Code::unavailable);
}

TEST_CASE("ofi: time in which the thread does not poll is not counted against its peers") {
    Node server(ofi_any_port), client;
    client.connect(server->address());  // The first connect starts libfabric, which takes a while.
    client.connect(server->address());
    client.ahead = 3s;
    REQUIRE(turn_until({&client, &server}, [&] {
        return client.count(EventKind::peer_up) == 2 || client.find(EventKind::peer_down);
    }));
    CHECK(client.count(EventKind::peer_down) == 0);
    client.seen.clear();
    Node other(ofi_any_port);
    client.connect(other->address());
    REQUIRE(turn_until({&client, &other}, [&] {
        client.ahead += 500ms;
        return !client.seen.empty();
    }));
    INFO(client.seen[0].error);
    CHECK(client.find(EventKind::peer_up));
}

TEST_CASE("ofi: a slow start of libfabric does not make the client probe the listener") {
    PlainListener silent(true);
    Node client;
    std::array<na::Event, 1> events;
    // The test controls the time: the turn that starts libfabric ends 150 ms later.
    TimePoint now = real_now();
    REQUIRE(client->connect(*na::parse_address(silent.uri()), now));
    REQUIRE(client->poll(events, now) == 0);
    now += 150ms;
    const TimePoint end = real_now() + test_timeout;
    while (silent.accepted() == 0) {
        REQUIRE(real_now() < end);
        REQUIRE(client->poll(events, now) == 0);
    }
    // The accepted connection is libfabric's; a probe would have started by the end of these turns.
    for (int turn = 0; turn < 200; ++turn) {
        REQUIRE(client->poll(events, now) == 0);
        now += 100us;
    }
    CHECK(silent.accepted() == 1);
}

TEST_CASE("ofi: a host without an address is reported, and localhost is resolved") {
    Node server(ofi_any_port), client;
    client.connect("ofi+tcp://no-such-host.invalid:7");
    time_to_down(client, {&client});
    CHECK(client.seen[0].error.find("no-such-host.invalid") != std::string::npos);
    client.seen.clear();
    client.connect("ofi+tcp://localhost:" + std::to_string(socket_name(server->address()).port()));
    CHECK(turn_until({&client, &server}, [&] { return client.find(EventKind::peer_up); }));
}

TEST_CASE("ofi: a connect fails as unresolved when no thread for the resolver can start") {
    Node client;
    {
        const NoMoreThreads limit;
        client.connect("ofi+tcp://some-host.invalid:7");
    }
    time_to_down(client, {&client});
    CHECK(client.seen[0].event.code == Code::unavailable);
    CHECK(client.seen[0].error.find("no thread") != std::string::npos);
}

TEST_CASE("ofi: a connect without a free descriptor fails and leaves other peers connected") {
    Node server(ofi_any_port), other(ofi_any_port), client;
    const na::PeerId peer = join(client, server);
    na::PeerId unreachable;
    {
        std::vector<base::UniqueFd> all;
        do all.emplace_back(::dup(0));
        while (all.back());
        unreachable = client.connect(other->address());
        time_to_down(client, {&client});
    }
    CHECK(client.find(EventKind::peer_down)->event.peer == unreachable);
    client.seen.clear();
    REQUIRE(client.send(peer, "still"));
    client->flush();
    REQUIRE(turn_until({&client, &server}, [&] { return server.find(EventKind::message); }));
    join(client, other);
}

TEST_CASE("ofi: listening at a port in use fails with ALREADY_EXISTS and names the port") {
    Node server(ofi_any_port);
    base::SeededRandom random(1);
    base::Log log;
    NoArena arena;
    const na::Address at = *na::parse_address(server->address());
    const auto second =
        ofi_tcp().open(&at, {random, log, arena, {1, 2}, std::string(), 16}, real_now());
    REQUIRE_FALSE(second);
    INFO(second.status().to_string());
    CHECK(second.status().code() == Code::already_exists);
    CHECK(second.status().text().find(std::to_string(at.port)) != std::string::npos);
}

TEST_CASE("ofi: closing a peer is reported to the other side, and its id becomes stale") {
    Node server(ofi_any_port), client;
    na::PeerId incoming;
    const na::PeerId peer = join(client, server, &incoming);
    REQUIRE(client.send(peer, "last words"));
    client->flush();
    client->close(peer);
    CHECK(client->info(peer) == nullptr);
    CHECK(client->reserve(peer, 8) == nullptr);
    REQUIRE(turn_until({&client, &server}, [&] { return server.find(EventKind::peer_down); }));
    REQUIRE(server.seen.size() == 2);
    CHECK(server.seen[0].bytes == "last words");
    CHECK(server.seen[1].event.peer == incoming);
    CHECK(server.seen[1].event.code == Code::unavailable);
    CHECK(client.seen.empty());
}

TEST_CASE("ofi: a closed peer can be connected again at once, many times") {
    Node server(ofi_any_port), client;
    for (int round = 0; round < 20; ++round) {
        const na::PeerId peer = join(client, server);
        REQUIRE(client.send(peer, "hello"));
        client->flush();
        REQUIRE(turn_until({&client, &server}, [&] { return server.find(EventKind::message); }));
        client->close(peer);
        client.seen.clear();
        // In half of the rounds the server has not seen the end of the old connection yet.
        if (round % 2) {
            REQUIRE(
                turn_until({&client, &server}, [&] { return server.find(EventKind::peer_down); }));
        }
        server.seen.clear();
    }
}

TEST_CASE("ofi: destroying an endpoint reports peer_down to its peers") {
    Node server(ofi_any_port), client;
    join(client, server);
    server.destroy();
    CHECK(time_to_down(client, {&client}) < promised(1s));
}

TEST_CASE("ofi: two peers at one address are independent") {
    Node server(ofi_any_port), client;
    const na::PeerId first = join(client, server);
    const na::PeerId second = join(client, server);
    REQUIRE_FALSE(first == second);
    client->close(first);
    REQUIRE(turn_until({&client, &server}, [&] { return server.find(EventKind::peer_down); }));
    turn_for({&client, &server}, 300ms);
    CHECK(client.count(EventKind::peer_down) == 0);
    REQUIRE(client.send(second, "still here"));
    client->flush();
    CHECK(turn_until({&client, &server}, [&] { return server.find(EventKind::message); }));
}

TEST_CASE("ofi: two servers connect to each other at the same time") {
    for (int round = 0; round < 5; ++round) {
        Node a(ofi_any_port), b(ofi_any_port);
        const na::PeerId to_b = a.connect(b->address());
        const na::PeerId to_a = b.connect(a->address());
        REQUIRE(turn_until({&a, &b}, [&] {
            return a.count(EventKind::peer_up) == 2 && b.count(EventKind::peer_up) == 2;
        }));
        REQUIRE(a.send(to_b, "from a"));
        REQUIRE(b.send(to_a, "from b"));
        a->flush();
        b->flush();
        CHECK(turn_until({&a, &b},
                         [&] { return a.find(EventKind::message) && b.find(EventKind::message); }));
        CHECK(a.count(EventKind::peer_down) + b.count(EventKind::peer_down) == 0);
    }
}

TEST_CASE("ofi: an endpoint may connect to itself") {
    Node self(ofi_any_port);
    const na::PeerId out = self.connect(self->address());
    REQUIRE(turn_until({&self}, [&] { return self.count(EventKind::peer_up) == 2; }));
    REQUIRE(self.send(out, "echo"));
    self->flush();
    REQUIRE(turn_until({&self}, [&] { return self.find(EventKind::message); }));
    CHECK_FALSE(self.find(EventKind::message)->event.peer == out);
    self->close(out);
    CHECK(turn_until({&self}, [&] { return self.find(EventKind::peer_down); }));
}

TEST_CASE("ofi: IPv6 works, and a peer of the other family is refused with the reason") {
    Node server("ofi+tcp://[::1]:0"), client;
    CHECK(server->address().starts_with("ofi+tcp://[::1]:"));
    join(client, server);
    client.connect("ofi+tcp://127.0.0.1:9");
    time_to_down(client, {&client, &server});
    CHECK(client.seen[0].error.find("can't reach 127.0.0.1:9") != std::string::npos);
    const na::PeerId first = client.connect("ofi+tcp://127.0.0.1:9");  // Refused at once.
    const na::PeerId second = client.connect("ofi+tcp://127.0.0.1:9");
    CHECK(first.index != second.index);  // No end is reported yet.
    CHECK(turn_until({&client, &server}, [&] { return client.count(EventKind::peer_down) == 3; }));
}

TEST_CASE("ofi: peers beyond the endpoint's limit are refused with the reason") {
    Node server(ofi_any_port, 2), a, b, c;
    join(a, server);
    join(b, server);
    c.connect(server->address());
    time_to_down(c, {&c, &server});
    CHECK(c.seen[0].event.code == Code::resource_exhausted);
    CHECK(c.seen[0].error.find("peers of the listener are in use") != std::string::npos);
    CHECK(server.count(EventKind::peer_up) == 0);
}

TEST_CASE("ofi: sending to a killed server reports peer_down") {
    Process owner([](Process::Self& self) {
        Node server(ofi_any_port);
        self.tell(server->address());
        for (;;) server.turn();
    });
    Node client;
    const na::PeerId peer = client.connect(owner.hear());
    REQUIRE(turn_until({&client}, [&] { return client.find(EventKind::peer_up); }));
    owner.kill();
    const TimePoint start = real_now();
    REQUIRE(turn_until({&client}, [&] {
        if (client.send(peer, "are you there")) client->flush();
        return client.find(EventKind::peer_down);
    }));
    CHECK(real_now() - start < promised(1s));
    CHECK(client.find(EventKind::peer_down)->event.code == Code::unavailable);
}

TEST_CASE("ofi: a restarted server receives no message for its predecessor") {
    std::string address;
    Node client;
    na::PeerId peer;
    {
        Process old([](Process::Self& self) {
            Node server(ofi_any_port);
            self.tell(server->address());
            for (;;) server.turn();
        });
        address = old.hear();
        peer = client.connect(address);
        REQUIRE(turn_until({&client}, [&] { return client.find(EventKind::peer_up); }));
    }
    client.seen.clear();
    Node reborn(address);
    // Sent while libfabric reconnects below: at best the message reaches the new process.
    turn_until(
        {&client, &reborn},
        [&] {
            if (client.send(peer, "for the dead")) client->flush();
            return client.find(EventKind::peer_down);
        },
        500ms);
    CHECK(reborn.seen.empty());
    client->close(peer);
    const na::PeerId again = client.connect(address);
    REQUIRE(turn_until({&client, &reborn}, [&] { return client.find(EventKind::peer_up); }));
    REQUIRE(client.send(again, "for the living"));
    client->flush();
    REQUIRE(turn_until({&client, &reborn}, [&] { return reborn.find(EventKind::message); }));
    CHECK(reborn.find(EventKind::message)->bytes == "for the living");
}

TEST_CASE("ofi: plain TCP connections to the listener do not disturb its peers") {
    Node server(ofi_any_port), client;
    const na::PeerId peer = join(client, server);
    const auto name = socket_name(server->address());
    std::vector<na::ofi::ListenerProbe> probes(20);
    for (na::ofi::ListenerProbe& probe : probes) {
        probe.start(name);
        turn_for({&client, &server}, 5ms);
        CHECK(probe.why_refused() == 0);
        REQUIRE(client.send(peer, "still"));
        client->flush();
    }
    REQUIRE(turn_until({&client, &server},
                       [&] { return server.count(EventKind::message) == probes.size(); }));
    turn_for({&client, &server}, 50ms);
    CHECK(client.seen.empty());
    Node late;
    join(late, server);
}

TEST_CASE("ofi: a thread may sleep on the descriptor until a message arrives") {
    Process other([](Process::Self& self) {
        Node server(ofi_any_port);
        self.tell(server->address());
        while (!server.find(EventKind::message)) server.turn();
        ::usleep(100'000);
        REQUIRE(server.send(server.find(EventKind::message)->event.peer, "wake"));
        server->flush();
        for (;;) server.turn();
    });
    Node client;
    const na::PeerId peer = client.connect(other.hear());
    REQUIRE(turn_until({&client}, [&] { return client.find(EventKind::peer_up); }));
    REQUIRE(client.send(peer, "go"));
    client->flush();
    base::UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
    epoll_event event{};
    event.events = EPOLLIN;
    REQUIRE(::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, client->wait_fd(), &event) == 0);
    int sleeps = 0, turns = 0;
    const TimePoint end = real_now() + test_timeout;
    while (!client.find(EventKind::message) && real_now() < end) {
        client.turn();
        ++turns;
        if (client.find(EventKind::message) || !client->arm()) continue;
        ++sleeps;
        ::epoll_wait(epoll.get(), &event, 1, 1000);
    }
    INFO("turns " << turns << ", sleeps " << sleeps);
    CHECK(client.find(EventKind::message));
    CHECK(sleeps >= 1);
    CHECK(turns < 200);
}
