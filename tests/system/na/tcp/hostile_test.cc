// Attacks of a broken or hostile process on a tcp endpoint: it only loses its own connection.
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <memory>

#include "na/connect_pacer.h"
#include "na/tcp/handshake.h"
#include "na/tcp/socket.h"
#include "support/accept_handshake.h"
#include "support/na_rma.h"
#include "support/no_more_memory.h"
#include "support/tcp_raw_peer.h"

using namespace weft;
using namespace weft::na;
using namespace weft::test;
using namespace weft::na::tcp;

namespace {

struct Rig {
    NaRig rig = NaRig::on<wires::Tcp>();
    NaNode& server = rig.open();
    ExposedMemory region{rig, server, 64 * 1024, Access::read_write};

    TcpRawConnection lane() { return TcpRawConnection(server->address()); }
    // The server still serves a correct peer.
    void check_alive() {
        NaNode& client = rig.open({.listens = false});
        const PeerId peer = rig.connect(client, server);
        REQUIRE(client.send(peer, 64));
        const PeerId seen = server.peer_of(client.incarnation);
        REQUIRE(rig.pump_until([&] { return server.at(seen).received == 1; }));
        Buffer local = rig.allocate(4096);
        REQUIRE(run(rig, client, region.get(peer, 0, local.bytes())) == Code::ok);
        client.close(peer);
        REQUIRE(rig.pump_until([&] { return server.count(PeerState::up) == 0; }));
    }
    Status refusal_of(TcpRawConnection& lane) { return decode_joined(lane.receive_frame(rig)); }
};

std::vector<std::byte> hello_frame() {
    const Hello hello{{77, 88}, 65 * 1024, 64 * 1024, "tcp://raw"};
    std::vector<std::byte> frame(handshake_bytes_max);
    frame.resize(encode_hello(hello, frame));
    return frame;
}

// A peer that the test drives manually, with both lanes.
struct RawPeer {
    TcpRawConnection talk;
    TcpRawConnection bulk;
    explicit RawPeer(Rig& rig) : talk(rig.lane()), bulk(rig.lane()) {
        const Ticket ticket = talk.join(rig.rig);
        REQUIRE(bulk.send_join(ticket));
        REQUIRE(decode_joined(bulk.receive_frame(rig.rig)).ok());
    }
};

}  // namespace

TEST_CASE("tcp: a garbage hello is refused with a reason") {
    Rig rig;
    const std::string garbage =
        GENERATE(as<std::string>{}, "GET / HTTP/1.1\r\n\r\n", std::string(8, '\0'),
                 std::string(4000, '\xf0'), std::string("\xf1\0\0\0\x08\0\0\0", 8),
                 std::string("\xf0\0\0\0\x08\0\0\0", 8), std::string("\xf0\0\0\0\x01\x02\0\0", 8),
                 std::string("\xf3\0\0\0\x10\0\0\0--------", 16));
    TcpRawConnection lane = rig.lane();
    lane.say(as_bytes(garbage));
    const std::vector<std::byte> answer = lane.hear(rig.rig, handshake_bytes_max);
    CHECK(lane.is_dropped(rig.rig));
    // Bytes behind the hello may make the kernel reset the connection before the answer arrives.
    if (!answer.empty()) CHECK(decode_joined(answer).code() == Code::data_loss);
    CHECK(rig.server.downs.empty());
    rig.check_alive();
}

TEST_CASE("tcp: a hello may arrive byte by byte, and be cut off anywhere") {
    Rig rig;
    const std::vector<std::byte> hello = hello_frame();
    for (std::size_t bytes = 0; bytes < hello.size(); ++bytes) {
        TcpRawConnection lane = rig.lane();
        lane.say(ByteView(hello).first(bytes));
        rig.rig.pump();
        lane.hang_up();
    }
    TcpRawConnection slow = rig.lane();
    for (const std::byte& byte : hello) {
        slow.say({&byte, 1});
        rig.rig.pump();
    }
    CHECK(decode_welcome(slow.receive_frame(rig.rig)).ok());
    rig.rig.run_until_idle();
    CHECK(rig.server.count(PeerState::up) == 1);
    slow.hang_up();
    REQUIRE(rig.rig.pump_until([&] { return rig.server.downs.size() == 1; }));
    rig.check_alive();
}

TEST_CASE("tcp: another wire version is refused as such") {
    Rig rig;
    std::vector<std::byte> hello = hello_frame();
    hello[sizeof(StreamHead) + 4] ^= std::byte{1};
    TcpRawConnection lane = rig.lane();
    lane.say(hello);
    CHECK(rig.refusal_of(lane).code() == Code::failed_precondition);
    CHECK(lane.is_dropped(rig.rig));
}

TEST_CASE("tcp: silent connections are closed in favor of ones that send a hello") {
    Rig rig;
    std::vector<std::unique_ptr<TcpRawConnection>> silent;
    for (int i = 0; i < 200; ++i) {
        silent.push_back(std::make_unique<TcpRawConnection>(rig.server->address()));
        rig.rig.pump();
    }
    rig.check_alive();
    CHECK(silent.front()->is_dropped(rig.rig));
    // The last ones time out.
    CHECK(silent.back()->is_dropped(rig.rig));
}

TEST_CASE("tcp: a new client waits at most 5 ms for each 64 silent connections") {
    Rig rig;
    std::vector<std::unique_ptr<TcpRawConnection>> silent;
    for (int i = 0; i < 400; ++i) {
        silent.push_back(std::make_unique<TcpRawConnection>(rig.server->address()));
    }
    TcpRawConnection lane = rig.lane();
    lane.say(hello_frame());
    TimePoint now = std::chrono::steady_clock::now();
    na::Event events[8];
    int milliseconds = 0;
    while (rig.server.endpoint->poll(events, now += 1ms) == 0) REQUIRE(++milliseconds < 100);
    CHECK(events[0].kind == EventKind::peer_up);
}

TEST_CASE("tcp: a ticket that is invalid or used does not join a bulk lane") {
    Rig rig;
    TcpRawConnection talk = rig.lane();
    const Ticket ticket = talk.join(rig.rig);
    const Ticket wrong = GENERATE_COPY(Ticket{}, Ticket{ticket.low, ticket.high},
                                       Ticket{ticket.high, ticket.low ^ 1},
                                       Ticket{ticket.high ^ (std::uint64_t{1} << 63), ticket.low});
    TcpRawConnection guess = rig.lane();
    guess.send_join(wrong);
    CHECK(rig.refusal_of(guess).code() == Code::permission_denied);
    CHECK(guess.is_dropped(rig.rig));
    TcpRawConnection bulk = rig.lane();
    bulk.send_join(ticket);
    CHECK(rig.refusal_of(bulk).ok());
    TcpRawConnection again = rig.lane();
    again.send_join(ticket);
    CHECK(rig.refusal_of(again).code() == Code::already_exists);
    // The first lane still works.
    Buffer local = rig.rig.allocate(16);
    BulkHead get;
    get.op = BulkOp::get;
    get.length = 16;
    bulk.send_value(get);
    CHECK(bulk.hear(rig.rig, sizeof(BulkHead)).size() == sizeof(BulkHead));
    talk.hang_up();
    REQUIRE(rig.rig.pump_until([&] { return rig.server.downs.size() == 1; }));
    CHECK(bulk.is_dropped(rig.rig));
    rig.check_alive();
}

TEST_CASE("tcp: an invalid bulk head disconnects the peer") {
    Rig rig;
    struct Bad {
        const char* what;
        BulkHead head;
    };
    const auto head = [](int op, std::uint32_t length, std::uint64_t transfer = 0) {
        BulkHead made;
        made.op = static_cast<BulkOp>(op);
        made.length = length;
        made.transfer = transfer;
        return made;
    };
    const Bad bad = GENERATE_COPY(values<Bad>({
        {"no operation", head(0, 8)},
        {"an operation of a later version", head(5, 8)},
        {"a put of nothing", head(1, 0)},
        {"a get of nothing", head(2, 0)},
        {"a put beyond the limit", head(1, (1 << 20) + 1)},
        {"a get beyond the limit", head(2, 0xffffffff)},
        {"data that was not requested", head(3, 8)},
        {"data for a made-up transfer", head(3, 8, 0x100000000)},
        {"a done for no transfer", head(4, 0, 0x100000000)},
    }));
    INFO(bad.what);
    RawPeer peer(rig);
    peer.bulk.send_value(bad.head);
    REQUIRE(rig.rig.pump_until([&] { return rig.server.downs.size() == 1; }));
    CHECK(rig.server.downs[0].code == Code::data_loss);
    CHECK(peer.talk.is_dropped(rig.rig));
    CHECK(rig.region.is_untouched());
    rig.check_alive();
}

TEST_CASE("tcp: puts and gets with a wrong reference are refused, and the lane stays up") {
    Rig rig;
    RawPeer peer(rig);
    const RmaItem good = rig.region.put({}, 0, {});
    BulkHead right;
    right.op = BulkOp::put;
    right.region = good.region;
    right.generation = good.generation;
    right.key = good.key;
    right.length = 1000;
    struct Wrong {
        Refusal why;
        BulkHead head;
    };
    std::vector<Wrong> wrongs(6, Wrong{Refusal::none, right});
    wrongs[0].head.region = 4095, wrongs[0].why = Refusal::no_region;
    wrongs[1].head.region = 0xffffffff, wrongs[1].why = Refusal::no_region;
    wrongs[2].head.generation += 1, wrongs[2].why = Refusal::stale;
    wrongs[3].head.key ^= 1, wrongs[3].why = Refusal::key;
    wrongs[4].head.offset = 64 * 1024 - 999, wrongs[4].why = Refusal::range;
    wrongs[5].head.offset = ~std::uint64_t{0} - 10, wrongs[5].why = Refusal::range;
    const std::vector<std::byte> body(1000, std::byte{0xee});
    for (const BulkOp op : {BulkOp::put, BulkOp::get}) {
        for (Wrong& wrong : wrongs) {
            wrong.head.op = op;
            peer.bulk.send_value(wrong.head);
            if (op == BulkOp::put) peer.bulk.say(body);
            const auto answer =
                base::load<BulkHead>(peer.bulk.hear(rig.rig, sizeof(BulkHead)).data());
            CHECK(answer.op == BulkOp::done);
            CHECK(answer.code == static_cast<std::uint8_t>(Code::permission_denied));
            CHECK(answer.why == static_cast<std::uint8_t>(wrong.why));
            REQUIRE(rig.region.is_untouched());
        }
    }
    right.offset = 64 * 1024 - 1000;
    peer.bulk.send_value(right);
    peer.bulk.say(body);
    CHECK(base::load<BulkHead>(peer.bulk.hear(rig.rig, sizeof(BulkHead)).data()).code == 0);
    CHECK_FALSE(rig.region.is_untouched());
    CHECK(rig.server.downs.empty());
}

TEST_CASE("tcp: an owner that acknowledges a put before its body was sent is disconnected") {
    // Otherwise the caller would regain the memory while the endpoint still reads it.
    auto rig = NaRig::on<wires::Tcp>();
    const base::UniqueFd listener =
        listen_at(*SocketName::from_numeric("127.0.0.1", 0), "test").value();
    NaNode& client = rig.open({.listens = false});
    const PeerId peer = rig.start_connect(client, "tcp://" + local_name(listener.get()).text());
    std::byte frame[handshake_bytes_max];
    HandshakeReader hello, join;
    const base::UniqueFd talk = accept_handshake(rig, listener.get(), hello);
    const Hello mine{{7, 8}, 65 * 1024, 64 * 1024, "tcp://raw"};
    REQUIRE(send_handshake(talk.get(), {frame, encode_welcome({1, 2}, mine, frame)}));
    REQUIRE(rig.pump_until([&] { return client.at(peer).state == PeerState::up; }));
    // More than any socket takes: the last put has not even started.
    RmaItem put;
    put.kind = RmaKind::put;
    put.peer = peer;
    Buffer local = rig.allocate(1 << 20);
    put.local = local.bytes();
    for (int i = 0; i < 32; ++i) REQUIRE(client.post(put) != 0);
    client->flush();
    const base::UniqueFd bulk = accept_handshake(rig, listener.get(), join);
    REQUIRE(decode_join(join.frame()).value() == Ticket{1, 2});
    REQUIRE(send_handshake(bulk.get(), {frame, encode_control(ControlKind::welcome, frame)}));
    BulkHead head;
    REQUIRE(rig.pump_until([&] {
        return ::recv(bulk.get(), &head, sizeof head, MSG_DONTWAIT) == ssize_t(sizeof head);
    }));
    rig.run_until_idle();  // Until the socket is full.
    BulkHead done;
    done.transfer = head.transfer + 31;  // The slots of one block are in order.
    REQUIRE(::send(bulk.get(), &done, sizeof done, 0) == ssize_t(sizeof done));
    REQUIRE(rig.pump_until([&] { return client.downs.size() == 1; }));
    CHECK(client.downs[0].code == Code::data_loss);
    REQUIRE(rig.pump_until([&] { return client.rma_under_way.empty(); }));
    for (const auto& [cookie, code] : client.rma_done) CHECK(code == Code::unavailable);
}

TEST_CASE("unix: a connect to a full accept queue waits, on either lane, from either side") {
    auto rig = NaRig::on<wires::Unix>();
    NaNode& server = rig.open();
    NaNode& client = rig.open({.listens = false});
    const std::string path = server->address().substr(std::string("unix://").size());
    std::vector<base::UniqueFd> crowd;
    const auto fill_queue = [&] {
        while (true) {
            Result<base::UniqueFd> one = start_connecting(*SocketName::from_path(path));
            REQUIRE(one.ok());
            if (!*one) return;
            crowd.push_back(*std::move(one));
        }
    };
    fill_queue();
    const PeerId peer = rig.start_connect(client, server->address());
    for (int i = 0; i < 10; ++i) client.poll();
    REQUIRE(client.at(peer).state == PeerState::connecting);
    crowd.clear();
    REQUIRE(rig.pump_until([&] { return client.at(peer).state == PeerState::up; }));
    REQUIRE(rig.pump_until([&] { return server.count(PeerState::up) == 1; }));
    const bool from_client = GENERATE(true, false);
    NaNode& owner = from_client ? server : client;
    NaNode& initiator = from_client ? client : server;
    ExposedMemory region(rig, owner, 4096, Access::read_write);
    Buffer local = rig.allocate(4096);
    const PeerId to = from_client ? peer : server.peer_of(client.incarnation);
    fill_queue();
    const std::uint64_t cookie = initiator.post(region.get(to, 0, local.bytes()));
    REQUIRE(cookie != 0);
    initiator->flush();
    bool may_sleep = false;  // The client does not spin meanwhile.
    for (int i = 0; i < 100; ++i) {
        client.poll();
        may_sleep |= client->arm() && client->next_deadline() < rig.now() + 10ms;
    }
    CHECK((may_sleep || !from_client));
    REQUIRE(initiator.rma_under_way.size() == 1);
    crowd.clear();
    REQUIRE(rig.pump_until([&] { return initiator.rma_done.contains(cookie); }));
    CHECK(initiator.rma_done[cookie] == Code::ok);
}

TEST_CASE("tcp: an endpoint does not spin for a peer that should open the bulk lane") {
    auto rig = NaRig::on<wires::Tcp>();
    NaNode& server = rig.open();
    TcpRawConnection talk(server->address());
    talk.join(rig);
    REQUIRE(rig.pump_until([&] { return server.count(PeerState::up) == 1; }));
    const PeerId peer = server.peer_of({77, 88});
    // Whole chunks, until no message fits.
    constexpr std::size_t bytes = 32 * 1024;
    for (int refused = 0; refused < 1000; server.poll()) {
        std::byte* room = server->reserve(peer, bytes);
        if (!room) {
            ++refused;
            continue;
        }
        refused = 0;
        std::memset(room, 0, bytes);
        server->commit(bytes);
    }
    Buffer local = rig.allocate(4096);
    RmaItem item;
    item.peer = peer;
    item.local = local.bytes();
    const std::uint64_t cookie = server.post(item);
    REQUIRE(cookie != 0);
    server->flush();
    REQUIRE(rig.pump_until([&] { return server->arm(); }));
    CHECK(server->next_deadline() < rig.now() + 3s);
    CHECK(server.rma_under_way.size() == 1);
    REQUIRE(rig.pump_until([&] { return server.rma_done.contains(cookie); }));
    CHECK(server.rma_done[cookie] == Code::unavailable);
    CHECK(server.at(peer).state == PeerState::up);
}

TEST_CASE("tcp: a peer that posts gets and does not read is disconnected") {
    Rig rig;
    RawPeer peer(rig);
    const RmaItem good = rig.region.get({}, 0, {});
    BulkHead get;
    get.op = BulkOp::get;
    get.region = good.region;
    get.generation = good.generation;
    get.key = good.key;
    get.length = 64 * 1024;
    const std::vector<BulkHead> many(100, get);
    const ByteView bytes{reinterpret_cast<const std::byte*>(many.data()),
                         many.size() * sizeof(BulkHead)};
    for (int i = 0; i < 200 && rig.server.downs.empty() && peer.bulk.say(bytes); ++i) {
        for (int turns = 0; turns < 20; ++turns) rig.server.poll();
    }
    REQUIRE(rig.rig.pump_until([&] { return rig.server.downs.size() == 1; }));
    CHECK(rig.server.downs[0].code == Code::data_loss);
    rig.check_alive();
}

TEST_CASE("tcp: a region may be fenced in the middle of a raw put, and the rest is discarded") {
    Rig rig;
    RawPeer peer(rig);
    const RmaItem good = rig.region.put({}, 0, {});
    BulkHead put;
    put.op = BulkOp::put;
    put.region = good.region;
    put.generation = good.generation;
    put.key = good.key;
    put.length = 60'000;
    peer.bulk.send_value(put);
    const std::vector<std::byte> half(30'000, std::byte{0xee});
    peer.bulk.say(half);
    const auto landed = [&] { return rig.region.bytes()[29'999] == std::byte{0xee}; };
    REQUIRE(rig.rig.pump_until(landed));
    rig.region.close();
    fill_random(rig.region.bytes(), rig.rig.random);
    const std::vector<std::byte> shadow(rig.region.bytes().begin(), rig.region.bytes().end());
    peer.bulk.say(half);
    const auto answer = base::load<BulkHead>(peer.bulk.hear(rig.rig, sizeof(BulkHead)).data());
    CHECK(answer.code == static_cast<std::uint8_t>(Code::permission_denied));
    CHECK(answer.why == static_cast<std::uint8_t>(Refusal::revoked));
    CHECK(std::ranges::equal(rig.region.bytes(), shadow));
}

TEST_CASE("tcp: connections are refused as busy without descriptors, and accepted later") {
    Rig rig;
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    std::vector<base::UniqueFd> hoard;
    TcpRawConnection early = rig.lane();
    {
        rlimit tight = before;
        tight.rlim_cur = 256;
        REQUIRE(::setrlimit(RLIMIT_NOFILE, &tight) == 0);
        TcpRawConnection unlucky = rig.lane();
        while (true) {
            base::UniqueFd fd(::fcntl(0, F_DUPFD_CLOEXEC, 0));
            if (!fd) break;
            hoard.push_back(std::move(fd));
        }
        // No connection can be accepted, and none stays in the backlog, where it would wake the
        // thread.
        CHECK(rig.refusal_of(unlucky).code() == busy_code);
        CHECK(rig.refusal_of(early).code() == busy_code);
        REQUIRE(rig.rig.pump_until([&] { return rig.server->arm(); }));
        pollfd idle{rig.server->wait_fd(), POLLIN, 0};
        CHECK(::poll(&idle, 1, 0) == 0);
        CHECK(unlucky.is_dropped(rig.rig));
        hoard.clear();
        REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
    }
    rig.check_alive();
}

TEST_CASE("tcp: connects to a stalled server wait, and fail UNAVAILABLE when it ends") {
    auto rig = NaRig::on<wires::Tcp>();
    base::UniqueFd listener = listen_at(*SocketName::from_numeric("127.0.0.1", 0), "test").value();
    NaNode& client = rig.open({.listens = false, .peers_max = 256});
    // More than the pacer starts at a time.
    constexpr std::size_t many = 3 * ConnectPacer::half_open_max;
    for (std::size_t i = 0; i < many; ++i) {
        rig.start_connect(client, "tcp://" + local_name(listener.get()).text());
    }
    CHECK_FALSE(rig.pump_until([&] { return !client.downs.empty(); }, 3s));
    listener.reset();
    REQUIRE(rig.pump_until([&] { return client.downs.size() == many; }, promised(3s)));
    for (const auto& down : client.downs) CHECK(down.code == Code::unavailable);
}

TEST_CASE("tcp: connects to an unresponsive listener with a full queue fail within 3 s") {
    auto rig = NaRig::on<wires::Tcp>();
    const base::UniqueFd listener =
        listen_at(*SocketName::from_numeric("127.0.0.1", 0), "test").value();
    REQUIRE(::listen(listener.get(), 0) == 0);  // Like a host that is down: no answer to a SYN.
    const SocketName name = local_name(listener.get());
    std::vector<base::UniqueFd> crowd;
    for (int i = 0; i < 3; ++i) crowd.push_back(start_connecting(name).value());
    NaNode& client = rig.open({.listens = false, .peers_max = 256});
    const TimePoint start = rig.now();
    constexpr std::size_t many = 3 * ConnectPacer::half_open_max;
    for (std::size_t i = 0; i < many; ++i) rig.start_connect(client, "tcp://" + name.text());
    REQUIRE(rig.pump_until([&] { return client.downs.size() == many; }));
    for (const auto& down : client.downs) CHECK(down.code == Code::unavailable);
    CHECK(rig.now() - start < promised(3s));
}

#ifdef WEFT_TEST_MEMORY_LIMITS
TEST_CASE("tcp: a peer fails with RESOURCE_EXHAUSTED when its partial frame finds no memory") {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        Rig rig;
        RawPeer peer(rig);
        if (!use_up_blocks_of(128 * 1024)) ::_exit(2);
        peer.talk.send_value(StreamHead{0, 0, 0, 100'000});
        const bool ended = rig.rig.pump_until([&] { return !rig.server.downs.empty(); });
        ::_exit(ended && rig.server.downs[0].code == Code::resource_exhausted ? 0 : 1);
    }
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
}
#endif
