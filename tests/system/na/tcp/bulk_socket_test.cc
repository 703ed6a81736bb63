// The bulk lane of a tcp peer when it can't be opened or written for a while.
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <memory>

#include "na/tcp/handshake.h"
#include "na/tcp/socket.h"
#include "support/accept.h"
#include "support/na_rma.h"

using namespace weft;
using namespace weft::na;
using namespace weft::test;
using namespace weft::na::tcp;

namespace {

// Memory that a socket can't read but every other copy can, like memory of some devices.
std::atomic<const std::byte*> unsendable{nullptr};
std::atomic<std::size_t> unsendable_bytes{0};
std::atomic<std::uint64_t> sends_refused{0};

bool is_unsendable(const iovec& piece) {
    const auto* const at = static_cast<const std::byte*>(piece.iov_base);
    const std::byte* const from = unsendable;
    return from && at >= from && at < from + unsendable_bytes;
}

// A listener that answers a client's hello manually and refuses its bulk lane as busy.
struct BusyServer {
    NaRig rig = NaRig::on<wires::Tcp>();
    base::UniqueFd listener = listen_at(*SocketName::from_numeric("127.0.0.1", 0), "test").value();
    NaNode& client = rig.open({.listens = false});
    PeerId peer = rig.start_connect(client, "tcp://" + local_name(listener.get()).text());
    base::UniqueFd talk;
    std::size_t joins = 0;

    BusyServer() {
        HandshakeReader hello;
        talk = accept(hello);
        const Hello mine{{7, 8}, 65 * 1024, 64 * 1024, "tcp://raw"};
        REQUIRE(say(talk, [&](Bytes to) { return encode_welcome({1, 2}, mine, to); }));
        REQUIRE(rig.pump_until([&] { return client.at(peer).state == PeerState::up; }));
    }
    base::UniqueFd accept(HandshakeReader& greeting) {
        base::UniqueFd socket;
        REQUIRE(rig.pump_until([&] {
            if (!socket) socket = test::accept_one(listener.get());
            return socket && greeting.read(socket.get()) == HandshakeReader::Read::whole;
        }));
        return socket;
    }
    template <class Encode>
    static bool say(const base::UniqueFd& to, Encode encode) {
        std::byte frame[handshake_bytes_max];
        return send_handshake(to.get(), {frame, encode(Bytes(frame))});
    }
    void refuse_one() {
        HandshakeReader join;
        const base::UniqueFd lane = accept(join);
        ++joins;
        REQUIRE(say(lane, [](Bytes to) {
            return encode_refusal(fail(busy_code, "too many unfinished handshakes"), to);
        }));
    }
};

}  // namespace

extern "C" ssize_t sendmsg(int socket, const msghdr* message, int flags) {
    for (std::size_t i = 0; i < message->msg_iovlen; ++i) {
        if (!is_unsendable(message->msg_iov[i])) continue;
        ++sends_refused;
        errno = EFAULT;
        return -1;
    }
    return ::syscall(SYS_sendmsg, socket, message, flags);
}

TEST_CASE("tcp: a bulk lane that a busy listener refuses is retried with growing pauses") {
    BusyServer server;
    Buffer local = server.rig.allocate(4096);
    RmaItem get;
    get.peer = server.peer;
    get.local = local.bytes();
    const std::uint64_t cookie = server.client.post(get);
    REQUIRE(cookie != 0);
    server.client->flush();
    const TimePoint since = server.rig.now();
    while (server.joins < 8) server.refuse_one();
    // 2, 4, 8, 16, 32, 64 and 128 ms, and at least half of each.
    CHECK(server.rig.now() - since > 120ms);
    // As with a connect, a listener that answers is retried without a time limit.
    for (int i = 0; i < 4; ++i) {
        server.rig.pass(2s);
        server.refuse_one();
    }
    REQUIRE(server.client.rma_under_way.contains(cookie));
    HandshakeReader join;
    const base::UniqueFd lane = server.accept(join);
    REQUIRE(
        BusyServer::say(lane, [](Bytes to) { return encode_control(ControlKind::welcome, to); }));
    BulkHead head;
    REQUIRE(server.rig.pump_until([&] {
        return ::recv(lane.get(), &head, sizeof head, MSG_DONTWAIT) == ssize_t(sizeof head);
    }));
    CHECK(head.op == BulkOp::get);
}

TEST_CASE("tcp: transfers of a lane fail with a reason if no socket can read their memory") {
    auto rig = NaRig::on<wires::Tcp>();
    NaPair pair(rig);
    ExposedMemory region(rig, pair.b, 64 * 1024, Access::read_write);
    Buffer local = rig.allocate(4096), good = rig.allocate(4096);
    REQUIRE(run(rig, pair.a, region.put(pair.ab, 0, good.bytes())) == Code::ok);
    unsendable_bytes = local.size();
    unsendable = local.data();
    sends_refused = 0;
    const std::uint64_t cookie = pair.a.post(region.put(pair.ab, 0, local.bytes()));
    REQUIRE(cookie != 0);
    pair.a->flush();
    const bool has_ended = rig.pump_until([&] { return pair.a.rma_done.contains(cookie); }, 2s);
    unsendable = nullptr;
    CHECK(has_ended);
    CHECK(sends_refused <= 8);
    CHECK(pair.a.rma_done[cookie] == Code::unavailable);
    // The peer stays up, with a new lane.
    CHECK(run(rig, pair.a, region.put(pair.ab, 0, good.bytes())) == Code::ok);
    CHECK(pair.a.downs.empty());
}
