// Processes that die without closing their connections.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "base/unique_fd.h"
#include "na/address.h"
#include "support/na_rig.h"

using namespace weft;
using namespace weft::na;
using namespace weft::test;
using namespace weft::test::wires;

namespace {

// A line of at most 400 bytes; empty at the end of the pipe.
std::string read_line(int fd) {
    std::string line;
    char letter = 0;
    while (line.size() < 400 && ::read(fd, &letter, 1) == 1 && letter != '\n') line += letter;
    return line;
}

void write_line(int fd, std::string line) {
    line += '\n';
    if (::write(fd, line.data(), line.size()) < 0) _exit(3);
}

// The body of the child: an endpoint that listens, connects to the addresses that it reads, and
// polls for ever.
[[noreturn]] void live(const std::function<Wire(base::Random&)>& make, const std::string& uri,
                       int in, int out) {
    base::KernelRandom random;
    base::SteadyClock clock;
    base::Log log{LogLevel::off};
    auto arena = Arena::make(64u << 20);
    Wire wire = make(random);
    Result<Address> address = parse_address(uri);
    EndpointParts parts{random, log, *arena, {random.next(), random.next()}, "", 16};
    auto endpoint = wire.provider->open(&*address, parts, clock.now());
    if (!endpoint) _exit(4);
    write_line(out, (*endpoint)->address());
    const std::string server = read_line(in);
    if (!server.empty()) {
        Result<Address> to = parse_address(server);
        if (!to || !(*endpoint)->connect(*to, clock.now())) _exit(5);
    }
    Event events[16];
    for (;;) {
        (*endpoint)->poll(events, clock.now());
        (*endpoint)->flush();
        usleep(50);
    }
}

struct Child {
    pid_t pid = -1;
    std::string uri;  // The child's address.
    base::UniqueFd to;

    Child() = default;
    Child(Child&&) = delete;
    ~Child() { kill(); }

    // Forks before the parent opens any object of the provider.
    void start(const std::function<Wire(base::Random&)>& make, const std::string& wanted) {
        int down[2], up[2];
        REQUIRE(::pipe2(down, O_CLOEXEC) == 0);
        REQUIRE(::pipe2(up, O_CLOEXEC) == 0);
        pid = ::fork();
        REQUIRE(pid >= 0);
        if (pid == 0) {
            ::close(down[1]);
            ::close(up[0]);
            live(make, wanted, down[0], up[1]);
        }
        ::close(down[0]);
        ::close(up[1]);
        to.reset(down[1]);
        const base::UniqueFd from(up[0]);
        uri = read_line(from.get());
        REQUIRE_FALSE(uri.empty());
    }
    void tell(const std::string& line) { write_line(to.get(), line); }
    void kill() {
        if (pid <= 0) return;
        ::kill(pid, SIGKILL);
        ::waitpid(pid, nullptr, 0);
        pid = -1;
    }
};

// As NaRig::usable(), called in a child process: the check may open an RDMA device, as libfabric
// does, and later children of that process can't use the device.
bool is_usable(NaRig& rig) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        const bool usable = rig.usable();
        std::fflush(stdout);
        ::_exit(usable ? 0 : 1);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    return WEXITSTATUS(status) == 0;
}

// True when peer_down arrived, or is not promised (noted).
bool is_noticed(NaRig& rig, NaNode& node, const Caps& caps) {
    const TimePoint killed = rig.now();
    const bool down = rig.pump_until([&] { return !node.downs.empty(); },
                                     caps.reports_peer_death ? test_timeout : 300ms);
    if (!caps.reports_peer_death) {
        note_capability(rig.wire.scheme, down
                                             ? "SIGKILL of a peer was reported, though not promised"
                                             : "SIGKILL of a peer is not reported");
        return true;
    }
    const Duration took = rig.now() - killed;
    INFO("peer_down after " << took.count() / 1000 << " us");
    CHECK(took <= promised(100ms));
    return down;
}

}  // namespace

CONFORMANCE_KILL("the death of a client is reported within 100 ms") {
    auto rig = NaRig::on<TestType>();
    if (!is_usable(rig)) return;
    if (rig.wire.world) {
        NaPair pair(rig);
        REQUIRE(rig.wire.world->kill(pair.a->address().substr(6)));
        CHECK(is_noticed(rig, pair.b, pair.b->caps()));
        return;
    }
    Child child;
    child.start(&TestType::make, rig.fresh_uri());
    NaNode& server = rig.open();
    child.tell(server->address());
    REQUIRE(rig.pump_until([&] { return server.count(PeerState::up) == 1; }));
    rig.run_until_idle();
    child.kill();
    CHECK(is_noticed(rig, server, server->caps()));
    if (!server.downs.empty()) {
        CHECK(server.downs.size() == 1);
        CHECK(server.downs[0].code == Code::unavailable);
        CHECK_FALSE(server.downs[0].error.empty());
    }
}

CONFORMANCE_KILL("the death of a server with pending messages is reported, and its name is free") {
    auto rig = NaRig::on<TestType>();
    if (!is_usable(rig)) return;
    if (rig.wire.world) {
        NaPair pair(rig);
        const std::string uri = pair.b->address();
        for (int i = 0; i < 20; ++i) REQUIRE(pair.a.send(pair.ab, 1000));
        REQUIRE(rig.wire.world->kill(uri.substr(6)));
        CHECK(is_noticed(rig, pair.a, pair.a->caps()));
        rig.connect(pair.a, rig.open({.uri = uri}));
        return;
    }
    Child child;
    child.start(&TestType::make, rig.fresh_uri());
    NaNode& client = rig.open({.listens = false});
    child.tell("");
    const PeerId peer = rig.start_connect(client, child.uri);
    REQUIRE(rig.pump_until([&] { return client.at(peer).state == PeerState::up; }));
    for (int i = 0; i < 20; ++i) {
        client.send(peer, 1000);
        client->flush();
    }
    ::kill(child.pid, SIGSTOP);
    // Bytes that are still accepted are lost.
    for (int i = 0; i < 1000 && client.send(peer, 1000); ++i) client->flush();
    child.kill();
    CHECK(is_noticed(rig, client, client->caps()));
    NaNode& successor = rig.open({.uri = child.uri});
    rig.connect(client, successor);
}

// Operations of a server in progress with a peer when the peer dies.
enum class UnderWay { frames, a_claim, a_refusal, transfers, a_close, a_fence };

static void begin(UnderWay what, NaRig& rig, NaNode& server, PeerId peer,
                  const std::function<void()>& kill, const std::function<void()>& stop) {
    RmaItem get;
    get.peer = peer;
    static std::byte local[64];
    get.local = local;
    const bool posts = server->caps().rma && server->caps().rma_checked;
    switch (what) {
        case UnderWay::frames:
            for (int i = 0; i < 5; ++i) server.send(peer, 100);
            return kill();
        case UnderWay::a_claim:
            if (std::byte* room = server->reserve(peer, 64)) {
                kill();
                fill_frame({room, 64}, 0);
                server->commit(64);
            }
            return;
        case UnderWay::a_refusal:
            stop();
            for (int i = 0; i < 10'000 && server.send(peer, 4096); ++i) server->flush();
            return kill();
        case UnderWay::transfers:
            for (int i = 0; i < 4 && posts; ++i) server.post(get);
            return kill();
        case UnderWay::a_close:
            server.send(peer, 100);
            if (posts) server.post(get);
            kill();
            return server.close(peer);
        case UnderWay::a_fence: {
            Buffer memory = rig.allocate(4096);
            const bool exposed =
                server->expose({7, 1, 0x77, memory.bytes(), Access::read_write}).ok();
            kill();
            if (!exposed) return;
            server.fence(7);
            REQUIRE(rig.pump_until([&] { return server.fenced.contains(7); }));
            return;
        }
    }
}

CONFORMANCE_KILL("a busy peer that dies affects no other peer, whatever operations are pending") {
    auto rig = NaRig::on<TestType>();
    if (!is_usable(rig)) return;
    constexpr int ways = 6;
    Child children[ways];
    for (Child& child : children) {
        if (rig.wire.world) break;
        child.start(&TestType::make, rig.fresh_uri());
        child.tell("");
    }
    NaPair others(rig);
    NaNode& server = others.a;
    for (int way = 0; way < ways; ++way) {
        INFO("way " << way);
        Child& child = children[way];
        const std::string uri = rig.wire.world ? rig.open()->address() : child.uri;
        const auto kill = [&] {
            if (!rig.wire.world) return child.kill();
            REQUIRE(rig.wire.world->kill(uri.substr(6)));
        };
        const PeerId peer = rig.start_connect(server, uri);
        REQUIRE(rig.pump_until([&] { return server.at(peer).state == PeerState::up; }));
        for (int i = 0; i < 20; ++i) {  // Its reply is in progress.
            server.send(peer, 100);
            rig.pump();
        }
        begin(static_cast<UnderWay>(way), rig, server, peer, kill, [&] {
            if (!rig.wire.world) ::kill(child.pid, SIGSTOP);
        });
        server->flush();
        const auto is_over = [&] { return server.at(peer).state != PeerState::up; };
        if (!rig.pump_until(is_over, server->caps().reports_peer_death ? test_timeout : 300ms)) {
            server.close(peer);
        }
        rig.run_until_idle();
        CHECK(server.at(peer).state != PeerState::up);
        REQUIRE(rig.pump_until([&] { return server.rma_under_way.empty(); }));
        const std::uint64_t before = others.b.at(others.ba).received;
        REQUIRE(rig.pump_until([&] { return others.a.send(others.ab, 100); }));
        REQUIRE(rig.pump_until([&] { return others.b.at(others.ba).received == before + 1; }));
    }
}

CONFORMANCE_KILL("a stopped peer delays no other peer, and its later death is noticed") {
    auto rig = NaRig::on<TestType>();
    if (!is_usable(rig)) return;
    if (rig.wire.world) return;  // A simulated peer that is not polled counts as stopped.
    Child child;
    child.start(&TestType::make, rig.fresh_uri());
    child.tell("");
    NaPair pair(rig);
    const PeerId stopped = rig.start_connect(pair.a, child.uri);
    REQUIRE(rig.pump_until([&] { return pair.a.at(stopped).state == PeerState::up; }));
    ::kill(child.pid, SIGSTOP);
    while (pair.a.at(stopped).sent < 100'000 && pair.a.send(stopped, 4096)) pair.a->flush();
    for (std::uint64_t round = 1; round <= 100; ++round) {
        REQUIRE(rig.pump_until([&] { return pair.a.send(pair.ab, 100); }));
        REQUIRE(rig.pump_until([&] { return pair.b.at(pair.ba).received == round; }));
    }
    child.kill();
    CHECK(is_noticed(rig, pair.a, pair.a->caps()));
    CHECK(pair.a->info(pair.ab) != nullptr);
}
