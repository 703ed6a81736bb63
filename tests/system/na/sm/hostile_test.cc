// Attacks of a broken or hostile process of the same user on an sm server. SO_PEERCRED refuses
// processes of other users; a test of that needs a second user.
#include <fcntl.h>
#include <sys/mman.h>

#include <weft/runtime.h>

#include "core/frame.h"
#include "support/sm_raw_peer.h"

using namespace weft;
using namespace weft::test;
using na::EventKind;

namespace {

struct HostileRig {
    std::string name = unique_name("hostile");
    SmNode server{name};

    // The server still serves other clients.
    void check_alive() {
        SmNode client;
        const na::PeerId peer = client.connect(name);
        await({&client, &server}, client, EventKind::peer_up);
        REQUIRE(client.send(peer, "alive"));
        turn_until({&client, &server},
                   [&] { return !server.seen.empty() && server.seen.back().bytes == "alive"; });
    }
};

base::UniqueFd memory_file(std::size_t bytes, bool sealed) {
    Result<base::UniqueFd> file = na::make_memory_file("test", bytes);
    REQUIRE(file.ok());
    if (sealed) REQUIRE(na::seal(*file, na::FutureWrite::allowed).ok());
    return std::move(*file);
}

constexpr std::size_t segment_bytes = 4096 + 2 * na::sm::ring_bytes;

}  // namespace

TEST_CASE("sm: a garbage hello is refused with a reason") {
    HostileRig rig;
    SmRawPeer peer(rig.name);
    SECTION("random bytes") { peer.say("garbage garbage garbage", 23); }
    SECTION("one byte") { peer.say("g", 1); }
    SECTION("more than the largest hello") {
        const std::string noise(4000, 'n');
        peer.say(noise.data(), noise.size());
    }
    CHECK(peer.refusal(rig.server).code() == Code::data_loss);
    CHECK(rig.server.seen.empty());
    rig.check_alive();
}

TEST_CASE("sm: every truncation of a valid hello is refused") {
    HostileRig rig;
    std::byte good[512];
    std::size_t length = 0;
    {
        int sockets[2];
        REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) == 0);
        base::UniqueFd from(sockets[0]), to(sockets[1]);
        SmRawPeer peer(rig.name);
        REQUIRE(na::sm::send_hello(from.get(), peer.hello, peer.files()).ok());
        length = static_cast<std::size_t>(::recv(to.get(), good, sizeof good, 0));
    }
    for (std::size_t bytes = 1; bytes <= length; ++bytes) {
        SmRawPeer peer(rig.name);
        peer.say(good, bytes);  // The last one is complete and lacks its descriptors.
        REQUIRE(peer.refusal(rig.server).code() == Code::data_loss);
    }
    rig.check_alive();
}

TEST_CASE("sm: the text of a refusal is escaped before it reaches an error") {
    int sockets[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) == 0);
    const base::UniqueFd from(sockets[0]), to(sockets[1]);
    na::sm::send_refusal(from.get(), fail(Code::internal, "no\n\x1b[2Jerror: \x7f"));
    const auto answer = na::sm::receive_hello(to.get());
    CHECK(answer.status().code() == Code::internal);
    CHECK(answer.status().text() == "refused by the server: no\\x0a\\x1b[2Jerror: \\x7f");
}

TEST_CASE("sm: another wire version is refused as such") {
    HostileRig rig;
    SmRawPeer peer(rig.name);
    std::byte bytes[512] = {};
    const std::uint32_t greeting_magic = 0x6d736677;
    std::memcpy(bytes, &greeting_magic, 4);
    SECTION("of the hello") {
        bytes[6] = std::byte{1};
        std::byte* hello = bytes + 8;
        na::encode(peer.hello, Bytes(hello, 400));
        hello[4] = std::byte{9};
    }
    SECTION("of the shared memory") {
        bytes[4] = std::byte{9};
        bytes[6] = std::byte{1};
    }
    peer.say(bytes, 200);
    const Status why = peer.refusal(rig.server);
    CHECK(why.code() == Code::failed_precondition);
    CHECK(why.text().find("9") != std::string::npos);
}

TEST_CASE("sm: descriptors that are unsafe to map are refused") {
    HostileRig rig;
    SmRawPeer peer(rig.name);
    na::sm::FilesToSend files = peer.files();
    base::UniqueFd bad;
    SECTION("rings that can be truncated") { bad = memory_file(segment_bytes, false); }
    SECTION("rings of another size") { bad = memory_file(4096, true); }
    SECTION("rings in a pipe") {
        int pipes[2];
        REQUIRE(::pipe2(pipes, O_CLOEXEC) == 0);
        bad.reset(pipes[0]);
        ::close(pipes[1]);
    }
    SECTION("rings in a file on disk") { bad.reset(::open("/proc/self/exe", O_RDONLY)); }
    SECTION("rings in huge pages") {
        bad.reset(::memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
        if (!bad) return;  // This host has no huge pages.
        if (::ftruncate(bad.get(), 2 << 20) != 0) return;
        (void)na::seal(bad, na::FutureWrite::allowed);
    }
    files.rings = bad.get();
    SECTION("a region table that can be truncated") {
        bad = memory_file(sizeof(na::sm::SharedRegionTable), false);
        files = peer.files();
        files.regions = bad.get();
    }
    SECTION("an arena that can be truncated") {
        bad = memory_file(1 << 20, false);
        files = peer.files();
        files.arena = bad.get();
    }
    SECTION("no rings at all") { files.rings = -1; }
    peer.greet(files);
    const Status why = peer.refusal(rig.server);
    INFO(why.to_string());
    CHECK(why.code() == Code::data_loss);
    rig.check_alive();
}

TEST_CASE("sm: the region table of an owner can't be mapped writable by a peer") {
    SmNode node;
    Result<na::sm::RegionTable> table = na::sm::RegionTable::make(77);
    REQUIRE(table.ok());
    CHECK(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, table->file(), 0) ==
          MAP_FAILED);
}

TEST_CASE("sm: a peer that corrupts shared words is dropped with DATA_LOSS while others stay") {
    HostileRig rig;
    SmRawPeer peer(rig.name);
    const na::PeerId id = peer.join(rig.server);
    SECTION("its tail") { peer.writer_words().tail.store(12345678); }
    SECTION("a record") {
        na::sm::RingWriter writer = peer.writer();
        std::byte* room = writer.claim(1000);
        writer.commit(1000);
        room[-1] = std::byte{0};
        writer.publish(0);
    }
    SECTION("its acknowledged bytes") {
        na::sm::RingWriter writer = peer.writer();
        REQUIRE(writer.claim(8));
        writer.commit(8);
        writer.publish(1 << 20);
    }
    SECTION("its head, when the server needs room") {
        peer.reader_words().head.store(1 << 20);
        while (rig.server.send(id, std::string(60'000, 'x'))) {
        }
    }
    const Seen down = await({&rig.server}, rig.server, EventKind::peer_down);
    CHECK(down.event.peer == id);
    CHECK(down.event.code == Code::data_loss);
    CHECK(!down.error.empty());
    CHECK(!rig.server.send(id, "more"));
    for (int i = 0; i < 1000; ++i) REQUIRE(rig.server.turn() == 0);
    rig.check_alive();
}

TEST_CASE("sm: silent connections are bounded in number and do not keep clients out") {
    HostileRig rig;
    std::vector<std::unique_ptr<SmRawPeer>> strangers;
    for (int i = 0; i < 60; ++i) {
        strangers.push_back(std::make_unique<SmRawPeer>(rig.name));
        for (int turns = 0; turns < 20; ++turns) rig.server.turn();
    }
    rig.check_alive();
    // The first ones were refused to make room.
    CHECK(strangers[0]->refusal(rig.server).code() == na::busy_code);
}

TEST_CASE("sm: a handshake that does not finish times out") {
    HostileRig rig;
    SmRawPeer peer(rig.name);
    na::Event events[8];
    TimePoint now = real_now();
    for (int i = 0; i < 3000; ++i) {
        rig.server.endpoint->poll(events, now += 1ms);
    }
    CHECK(peer.refusal(rig.server).code() == Code::deadline_exceeded);
}

TEST_CASE("sm: a connect to a stalled server waits, and fails UNAVAILABLE when the server ends") {
    const std::string name = unique_name("mute");
    Result<na::sm::Listening> mute = na::sm::Listening::open(name);
    REQUIRE(mute.ok());
    SmNode client;
    const na::PeerId peer = client.connect(name);
    na::Event events[8];
    TimePoint now = real_now();
    for (int i = 0; i < 10'000; ++i) REQUIRE(client.endpoint->poll(events, now += 1ms) == 0);
    *mute = na::sm::Listening();
    std::size_t count = 0;
    int polls = 0;
    while ((count = client.endpoint->poll(events, now += 1ms)) == 0) REQUIRE(++polls < 1000);
    REQUIRE(count == 1);
    CHECK(events[0].kind == EventKind::peer_down);
    CHECK(events[0].peer == peer);
    CHECK(events[0].code == Code::unavailable);
    CHECK(client.endpoint->error().find(name) != std::string::npos);
}

TEST_CASE("sm: a closed peer that keeps publishing does not keep its connection alive") {
    HostileRig rig;
    SmRawPeer peer(rig.name);
    peer.join(rig.server);
    na::sm::RingWriter writer = peer.writer();
    const auto write = [&] {
        if (!writer.claim(8)) return;
        writer.commit(8);
        writer.publish(0);
    };
    write();
    peer.socket.reset();
    turn_until({&rig.server}, [&] {
        write();
        return rig.server.find(EventKind::peer_down) != nullptr;
    });
}

TEST_CASE("sm: peers_max bounds both sides, and counts dropped peers that are still connected") {
    const std::string name = unique_name("few");
    SmNode server(name, 2);
    SmRawPeer first(name), second(name), third(name);
    const na::PeerId id = first.join(server);
    second.join(server);
    third.greet();
    CHECK(third.refusal(server).code() == Code::resource_exhausted);
    server.endpoint->close(id);
    SmRawPeer fourth(name);
    fourth.greet();
    CHECK(fourth.refusal(server).code() == Code::resource_exhausted);
    first.socket.reset();
    for (int i = 0; i < 3000; ++i) server.turn();
    SmRawPeer fifth(name);
    fifth.join(server);
    CHECK(server.endpoint->connect({"sm", name, "", 0}, real_now()).status().code() ==
          Code::resource_exhausted);
}

TEST_CASE("sm: descriptors do not leak, however connections end") {
    HostileRig rig;
    const auto open_files = [] {
        int count = 0;
        for (int fd = 0; fd < 1024; ++fd) count += ::fcntl(fd, F_GETFD) >= 0;
        return count;
    };
    rig.check_alive();
    for (int i = 0; i < 1000; ++i) rig.server.turn();
    const int before = open_files();
    for (int i = 0; i < 50; ++i) {
        rig.check_alive();
        SmRawPeer peer(rig.name);
        if (i % 2 == 0) peer.say("garbage", 7);
        if (i % 2 == 1) peer.join(rig.server);
    }
    const TimePoint end = real_now() + test_timeout;
    while (open_files() > before && real_now() < end) rig.server.turn();
    CHECK(open_files() == before);
}

TEST_CASE("sm: a peer that connects, writes and breaks the protocol in one poll is only dropped") {
    Runtime server = Runtime::create({.log_level = LogLevel::off, .manual = true}).value();
    const std::string name = unique_name("hasty");
    REQUIRE(server.listen("sm://" + name).ok());
    const auto run_until_idle = [&] { server.turn_until([] { return false; }, 20ms); };
    SmRawPeer leaving(name);
    leaving.greet();
    run_until_idle();
    SmRawPeer hasty(name);
    na::sm::RingWriter writer = hasty.writer();
    const core::FrameHead ping{core::FrameKind::ping, 0, 0, sizeof(core::FrameHead)};
    std::memcpy(writer.claim(sizeof ping), &ping, sizeof ping);
    writer.commit(sizeof ping);
    writer.publish(0);
    writer.words().tail.store(writer.words().tail.load() + na::sm::record_unit);
    hasty.greet();
    leaving.socket.reset();
    run_until_idle();
    Runtime client = Runtime::create({.log_level = LogLevel::off, .manual = true}).value();
    Channel channel = client.connect("sm://" + name).value();
    int answers = 0;
    channel.call(MethodId("weft.Node/Ping"), {}, {},
                 [&](const Status& status, ByteView) { answers += status.ok(); });
    client.turn_until(
        [&] {
            server.turn();
            return answers > 0;
        },
        5s);
    CHECK(answers == 1);
}
