// The end of a tcp connection at moments when the endpoint still refers to it.
#include <functional>
#include <vector>

#include "na/address.h"
#include "support/tcp_raw_peer.h"

using namespace weft;
using namespace weft::na;
using namespace weft::test;
using namespace weft::na::tcp;

namespace {

// An endpoint with a log sink that runs a function of the test in the middle of a poll, where a
// peer on another core could act.
class Busy {
  public:
    explicit Busy(Wire wire) : wire_(std::move(wire)) {
        const Address at = parse_address(rig_.fresh_uri()).value();
        endpoint = wire_.provider->open(&at, {random_, log_, *arena_, {1, 2}, "", 8}, now_).value();
    }
    TcpRawConnection lane() { return TcpRawConnection(endpoint->address()); }
    // The endpoint refuses an unknown connection and logs that.
    TcpRawConnection disturb() {
        TcpRawConnection stranger = lane();
        REQUIRE(stranger.say(as_bytes("GET / HTTP/1.1\r\n\r\n")));
        return stranger;
    }
    std::vector<EventKind> poll(int polls = 1) {
        std::vector<EventKind> kinds;
        for (int i = 0; i < polls; ++i) {
            now_ += 1ms;  // Long enough to poll every socket.
            Event events[16];
            const std::size_t count = endpoint->poll(events, now_);
            for (std::size_t j = 0; j < count; ++j) kinds.push_back(events[j].kind);
            endpoint->flush();
        }
        return kinds;
    }
    NaRig& rig() { return rig_; }

    std::function<void()> in_poll;
    std::unique_ptr<Endpoint> endpoint;

  private:
    Wire wire_;
    NaRig rig_{[scheme = wire_.scheme](base::Random&) {
        return scheme == "unix" ? factories::unix_wire() : factories::tcp_wire();
    }};
    base::SeededRandom random_{1};
    base::Log log_{LogLevel::info, [this](LogLevel, std::string_view) {
                       if (in_poll) std::exchange(in_poll, {})();
                   }};
    std::shared_ptr<Arena> arena_ = Arena::make(1 << 20);
    TimePoint now_ = TimePoint(1h);
};

}  // namespace

TEST_CASE("tcp: a peer that ends before its peer_up is delivered leaves no pointer behind") {
    const bool local = GENERATE(false, true);
    Busy server(local ? factories::unix_wire() : factories::tcp_wire());
    TcpRawConnection talk = server.lane();
    REQUIRE(talk.send_hello());
    const TcpRawConnection stranger = server.disturb();
    std::optional<TcpRawConnection> bulk;
    server.in_poll = [&] {
        const auto welcome = decode_welcome(talk.receive_frame(server.rig()));
        REQUIRE(welcome.ok());
        bulk.emplace(server.lane());
        REQUIRE(bulk->send_join(welcome->ticket));
        REQUIRE(bulk->say(std::vector<std::byte>(sizeof(BulkHead))));  // No valid operation.
    };
    const std::vector<EventKind> kinds = server.poll(20);
    CHECK(bulk.has_value());
    CHECK(kinds == std::vector{EventKind::peer_up, EventKind::peer_down});
    TcpRawConnection honest = server.lane();
    REQUIRE(honest.send_hello());
    CHECK(server.poll(3) == std::vector{EventKind::peer_up});
    CHECK(decode_welcome(honest.receive_frame(server.rig())).ok());
}

TEST_CASE("tcp: closing a peer with frames, a claim and transfers removes it from all lists") {
    Busy server(factories::unix_wire());
    TcpRawConnection talk = server.lane();
    REQUIRE(talk.send_hello());
    Event events[16];
    PeerId peer;
    for (int i = 0; i < 10 && !peer; ++i) {
        if (server.endpoint->poll(events, TimePoint(2h) + i * 1ms) == 1) peer = events[0].peer;
    }
    REQUIRE(peer);
    // Until a reserve is refused: the peer reads nothing.
    std::byte local[64];
    RmaItem item;
    item.peer = peer;
    item.local = local;
    CHECK(server.endpoint->post({&item, 1}) == 1);
    for (int i = 0; i < 10'000; ++i) {
        std::byte* room = server.endpoint->reserve(peer, 4096);
        if (!room) break;
        std::memset(room, 0, 4096);
        server.endpoint->commit(4096);
    }
    CHECK(server.endpoint->reserve(peer, 4096) == nullptr);
    server.endpoint->close(peer);
    CHECK(server.poll(20) == std::vector{EventKind::rma_done});
    CHECK(server.endpoint->arm());
}
