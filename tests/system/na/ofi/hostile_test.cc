// Bytes that a correct endpoint never sends, through libfabric itself.
#include <sys/socket.h>

#include <deque>

#include "base/codec.h"
#include "base/unique_fd.h"
#include "na/ofi/fabric.h"
#include "na/ofi/wire.h"
#include "support/ofi_rig.h"

using namespace weft;
using namespace weft::test;
using na::EventKind;
using na::Hello;
using na::wire_magic;
using namespace weft::na::ofi;
using na::SocketName;

static Hello some_hello() {
    Hello hello;
    hello.incarnation = {1, 2};
    hello.message_bytes_max = 16384;
    hello.eager_bytes_max = 8192;
    hello.uri = "ofi+tcp://stranger:1";
    return hello;
}

// A process that uses libfabric but not weft's protocol, or violates that protocol.
class Stranger {
  public:
    explicit Stranger(const std::string& victim)
        : fabric_(Fabric::open(tcp_traits, *SocketName::from_numeric("127.0.0.1", 0), 64, true)
                      .value()) {
        const na::Address at = *na::parse_address(victim);
        const auto name = *SocketName::from_numeric(at.host, at.port);
        REQUIRE(fi_av_insert(fabric_->av(), name.get(), 1, &victim_, 0, nullptr) == 1);
        for (auto& buffer : received_) {
            buffer.resize(20'000);
            REQUIRE(fi_recv(fabric_->ep(), buffer.data(), buffer.size(), nullptr, FI_ADDR_UNSPEC,
                            &buffer) == 0);
        }
    }

    void send(Node& victim, std::string bytes) {
        sent_.push_back(std::move(bytes));  // Kept until the end, as libfabric requires.
        const TimePoint end = real_now() + test_timeout;
        ssize_t error = -FI_EAGAIN;
        while (error == -FI_EAGAIN && real_now() < end) {
            error = fi_send(fabric_->ep(), sent_.back().data(), sent_.back().size(), nullptr,
                            victim_, nullptr);
            poll();
            victim.turn();
        }
        REQUIRE(error == 0);
    }
    void send_hello(Node& victim, Label reply_to, const SocketName& from,
                    const Hello& hello = some_hello()) {
        std::byte message[control_bytes_max];
        const std::size_t bytes = encode_hello(reply_to, from, hello, message);
        send(victim, std::string(as_text({message, bytes})));
    }

    // The next message received; empty when none arrives.
    std::string receive(Node& victim) {
        const TimePoint end = real_now() + test_timeout;
        while (inbox_.empty() && real_now() < end) {
            poll();
            victim.turn();
        }
        if (inbox_.empty()) return "";
        std::string first = std::move(inbox_.front());
        inbox_.pop_front();
        return first;
    }
    const SocketName& name() const { return fabric_->name(); }

  private:
    void poll() {
        fi_cq_msg_entry entry;
        while (fi_cq_read(fabric_->cq(), &entry, 1) == 1) {
            if (!(entry.flags & FI_RECV)) continue;
            inbox_.emplace_back(static_cast<std::string*>(entry.op_context)->data(), entry.len);
        }
    }

    std::deque<std::string> sent_;
    std::string received_[16];
    std::deque<std::string> inbox_;
    std::unique_ptr<Fabric> fabric_;
    fi_addr_t victim_ = FI_ADDR_UNSPEC;
};

static std::string message(Prefix prefix, std::string_view body) {
    prefix.bytes = static_cast<std::uint16_t>(body.size());
    std::string bytes(sizeof prefix, 0);
    std::memcpy(bytes.data(), &prefix, sizeof prefix);
    return bytes.append(body);
}

TEST_CASE("ofi: garbage is dropped while correct peers keep working") {
    Node server(ofi_any_port), client;
    const na::PeerId peer = join(client, server);
    Stranger stranger(server->address());
    stranger.send(server, "x");
    stranger.send(server, std::string(16, '\xff'));
    stranger.send(server, std::string(17000, '\xff'));
    stranger.send(server, message({0, 12345, 1, 0, Kind::data}, "payload"));  // Wrong tag.
    stranger.send(server, message({99999, 1, 1, 0, Kind::data}, "payload"));  // No such peer.
    stranger.send(server, message({no_index, wire_magic, 0, 0, Kind::hello}, "hi"));
    stranger.send(server, message({no_index, 1, 0, 0, Kind::hello}, "hi"));
    stranger.send(server, message({0, 0, 0, 0, Kind::welcome}, ""));
    std::string lie = message({no_index, wire_magic, 0, 0, Kind::data}, "longer than it says");
    lie[12] = 1;
    stranger.send(server, lie);
    // Addresses that no peer can have: port 0, any address, multicast.
    stranger.send_hello(server, {1, 1}, stranger.name().with_port(0));
    stranger.send_hello(server, {1, 1}, *SocketName::from_numeric("0.0.0.0", 9));
    stranger.send_hello(server, {1, 1}, *SocketName::from_numeric("224.0.0.1", 9));
    base::SeededRandom random(3);
    for (int i = 0; i < 300; ++i) {
        std::string noise(random.next() % 600, 0);
        for (char& c : noise) c = static_cast<char>(random.next());
        if (noise.size() >= 16 && i % 2) {
            noise.replace(0, 16, message({no_index, wire_magic, 0, 0, Kind::hello}, ""), 0, 16);
            const auto bytes = static_cast<std::uint16_t>(noise.size() - 16);
            std::memcpy(noise.data() + 12, &bytes, 2);
        }
        stranger.send(server, noise);
    }
    turn_for({&server}, 50ms);
    CHECK(server.seen.empty());
    REQUIRE(client.send(peer, "untouched"));
    client->flush();
    CHECK(turn_until({&client, &server}, [&] { return server.find(EventKind::message); }));
}

TEST_CASE("ofi: another wire version is refused with the reason") {
    Node server(ofi_any_port);
    Stranger stranger(server->address());
    std::byte bytes[control_bytes_max];
    const std::size_t count = encode_hello({7, 8}, stranger.name(), some_hello(), bytes);
    std::string hello(as_text({bytes, count}));
    const std::uint32_t magic = na::wire_magic;
    const std::size_t at = hello.find(std::string_view(reinterpret_cast<const char*>(&magic), 4),
                                      sizeof(Prefix));  // Behind the magic of the prefix.
    REQUIRE(at != std::string::npos);
    hello[at + 4] = 42;
    stranger.send(server, hello);
    const std::string answer = stranger.receive(server);
    const auto prefix = decode_prefix(as_bytes(answer));
    REQUIRE(prefix);
    CHECK(prefix->kind == Kind::refusal);
    CHECK(prefix->index == 7);
    CHECK(prefix->tag == 8);
    const auto refusal = decode_refusal_body(as_bytes(answer).subspan(sizeof(Prefix)));
    REQUIRE(refusal);
    CHECK(refusal->code == Code::failed_precondition);
    CHECK(refusal->text.find("42") != std::string_view::npos);
    CHECK(server.seen.empty());
}

// Sends a hello and returns the label under which the server is addressed.
static Label be_welcomed(Stranger& stranger, Node& server) {
    stranger.send_hello(server, {5, 6}, stranger.name());
    const std::string answer = stranger.receive(server);
    const auto prefix = decode_prefix(as_bytes(answer));
    REQUIRE(prefix);
    REQUIRE(prefix->kind == Kind::welcome);
    REQUIRE(server.find(EventKind::peer_up));
    server.seen.clear();
    return decode_welcome_body(as_bytes(answer).subspan(sizeof(Prefix)))->label;
}

TEST_CASE("ofi: a gap in a peer's sequence disconnects it with DATA_LOSS") {
    Node server(ofi_any_port);
    Stranger stranger(server->address());
    const Label label = be_welcomed(stranger, server);
    stranger.send(server, message({label.index, label.tag, 1, 0, Kind::data}, "one"));
    stranger.send(server, message({label.index, label.tag, 3, 0, Kind::data}, "three"));
    stranger.send(server, message({label.index, label.tag, 4, 0, Kind::data}, "four"));
    REQUIRE(turn_until({&server}, [&] { return server.find(EventKind::peer_down); }));
    turn_for({&server}, 50ms);
    REQUIRE(server.seen.size() == 2);
    CHECK(server.seen[0].bytes == "one");
    CHECK(server.seen[1].event.code == Code::data_loss);
}

TEST_CASE("ofi: pieces are joined to one message when the last one arrives") {
    Node server(ofi_any_port);
    Stranger stranger(server->address());
    const Label label = be_welcomed(stranger, server);
    const auto say = [&](std::uint32_t sequence, Kind kind, std::string_view body) {
        stranger.send(server, message({label.index, label.tag, sequence, 0, kind}, body));
    };
    say(1, Kind::piece, "one ");
    say(2, Kind::piece, "two ");
    say(3, Kind::data, "three");
    say(4, Kind::data, "four");
    REQUIRE(turn_until({&server}, [&] { return server.count(EventKind::message) == 2; }));
    CHECK(server.seen[0].bytes == "one two three");
    CHECK(server.seen[1].bytes == "four");
}

TEST_CASE("ofi: malformed pieces disconnect the peer and deliver no message") {
    Node server(ofi_any_port), client;
    const na::PeerId honest = join(client, server);
    struct Case {
        const char* what;
        std::vector<std::pair<Kind, std::size_t>> messages;  // Kind and bytes of each.
        std::uint32_t gap_before = 0;  // Index of the message behind the gap; 0: no gap.
        Code code = Code::data_loss;
    };
    const std::size_t most = piece_bytes_max;
    const Case cases[] = {
        {"longer than a message may be, with its last piece",
         {{Kind::piece, most}, {Kind::piece, most}, {Kind::piece, most}, {Kind::data, most}}},
        {"longer than a message may be, without an end",
         {{Kind::piece, most}, {Kind::piece, most}, {Kind::piece, most}, {Kind::piece, most}}},
        {"an empty piece", {{Kind::piece, 0}}},
        {"an empty last piece", {{Kind::piece, 8}, {Kind::data, 0}}},
        {"a piece lost", {{Kind::piece, 8}, {Kind::piece, 8}, {Kind::data, 8}}, 2},
        {"the last piece lost", {{Kind::piece, 8}, {Kind::data, 8}}, 2},
        {"a bye in between", {{Kind::piece, 8}, {Kind::bye, 0}}, 0, Code::unavailable},
    };
    for (const Case& each : cases) {
        CAPTURE(each.what);
        Stranger stranger(server->address());
        const Label label = be_welcomed(stranger, server);
        std::uint32_t number = 0, sequence = 0;
        for (const auto& [kind, bytes] : each.messages) {
            ++sequence;
            if (++number == each.gap_before) ++sequence;
            stranger.send(server, message({label.index, label.tag, sequence, 0, kind},
                                          std::string(bytes, 'x')));
        }
        REQUIRE(turn_until({&server}, [&] { return server.find(EventKind::peer_down); }));
        CHECK(server.find(EventKind::peer_down)->event.code == each.code);
        CHECK(server.count(EventKind::message) == 0);
        server.seen.clear();
    }
    REQUIRE(client.send(honest, std::string(client->limits().message_bytes_max, 'h')));
    client->flush();
    CHECK(turn_until({&client, &server}, [&] { return server.find(EventKind::message); }));
}

TEST_CASE("ofi: pieces from a peer that has not sent a welcome are dropped") {
    Node server(ofi_any_port);
    Stranger stranger(server->address());
    server.connect("ofi+tcp://" + stranger.name().text());
    const std::string hello = stranger.receive(server);
    REQUIRE(decode_prefix(as_bytes(hello)));
    REQUIRE(decode_prefix(as_bytes(hello))->kind == Kind::hello);
    const auto asked = decode_hello_body(as_bytes(hello).subspan(sizeof(Prefix)));
    REQUIRE(asked);
    const Label label = asked->reply_to;
    const auto say = [&](std::uint32_t sequence, Kind kind, std::string_view body) {
        stranger.send(server, message({label.index, label.tag, sequence, 0, kind}, body));
    };
    say(1, Kind::piece, "too early");
    say(2, Kind::data, "too early");
    std::byte welcome[control_bytes_max];
    const std::size_t bytes = encode_welcome(label, {5, 6}, some_hello(), welcome);
    stranger.send(server, std::string(as_text({welcome, bytes})));
    REQUIRE(turn_until({&server}, [&] { return server.find(EventKind::peer_up); }));
    say(1, Kind::piece, "in ");
    say(2, Kind::data, "time");
    REQUIRE(turn_until({&server}, [&] { return server.find(EventKind::message); }));
    CHECK(server.find(EventKind::message)->bytes == "in time");
    CHECK(server.seen.size() == 2);
}

TEST_CASE("ofi: a peer that accepts only one piece receives no message in pieces") {
    Node server(ofi_any_port);
    Stranger stranger(server->address());
    stranger.send_hello(server, {5, 6}, stranger.name());
    REQUIRE(decode_prefix(as_bytes(stranger.receive(server)))->kind == Kind::welcome);
    const na::PeerId peer = server.find(EventKind::peer_up)->event.peer;
    const std::size_t most = some_hello().message_bytes_max;
    CHECK(server->reserve(peer, most + 1) == nullptr);
    REQUIRE(server.send(peer, std::string(most, 'x')));
    server->flush();
    const std::string message = stranger.receive(server);
    CHECK(message.size() == sizeof(Prefix) + most);
    REQUIRE(decode_prefix(as_bytes(message)));
    CHECK(decode_prefix(as_bytes(message))->kind == Kind::data);
}

TEST_CASE("ofi: a repeated hello makes no second peer") {
    Node server(ofi_any_port);
    Stranger stranger(server->address());
    const Label label = be_welcomed(stranger, server);
    const Label again = [&] {
        stranger.send_hello(server, {5, 6}, stranger.name());
        return decode_welcome_body(as_bytes(stranger.receive(server)).subspan(sizeof(Prefix)))
            ->label;
    }();
    CHECK(again == label);
    CHECK(server.seen.empty());
}

TEST_CASE("ofi: a flood of hellos takes no more than the endpoint's peers, and expires") {
    Node server(ofi_any_port, 32);
    Stranger stranger(server->address());
    for (std::uint32_t i = 0; i < 500; ++i) {
        // First from its own address, then from ports where no process listens.
        stranger.send_hello(server, {i, i},
                            i < 250 ? stranger.name()
                                    : stranger.name().with_port(static_cast<std::uint16_t>(1 + i)));
    }
    turn_for({&server}, 100ms);
    CHECK(server.count(EventKind::peer_up) <= 32);
    for (const Seen& entry : server.seen) {
        if (entry.event.kind == EventKind::peer_up) server->close(entry.event.peer);
    }
    server.seen.clear();
    // Unanswered hellos are dropped after the time of a handshake.
    turn_for({&server}, 2500ms);
    Node client;
    join(client, server);
}

// A listener that accepts connections and never answers.
class SilentListener {
  public:
    SilentListener() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        const auto any = *SocketName::from_numeric("127.0.0.1", 0);
        REQUIRE(::bind(socket_.get(), any.get(), static_cast<socklen_t>(any.size())) == 0);
        REQUIRE(::listen(socket_.get(), 64) == 0);
    }
    SocketName name() const {
        sockaddr_storage name{};
        socklen_t bytes = sizeof name;
        REQUIRE(::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&name), &bytes) == 0);
        return *SocketName::from_kernel(reinterpret_cast<sockaddr*>(&name), bytes);
    }

  private:
    base::UniqueFd socket_;
};

TEST_CASE("ofi: a client connects while unfinished handshakes of many addresses fill all slots") {
    Node server(ofi_any_port), client;
    Stranger stranger(server->address());
    SilentListener silent[2 * accepting_max / accepting_share];
    for (std::uint32_t label = 1; label <= 2 * accepting_max;) {
        for (const SilentListener& from : silent) {
            stranger.send_hello(server, {label, label}, from.name());
            ++label;
        }
    }
    // The server's time is fixed to a moment before any handshake times out.
    const TimePoint then = real_now() + accepting_min + 10ms;
    const na::PeerId peer = client.connect(server->address());
    const TimePoint end = real_now() + test_timeout;
    while (!client.find(EventKind::peer_up) && real_now() < end) {
        client.turn();
        server.ahead = then - real_now();
        server.turn();
    }
    REQUIRE(client.find(EventKind::peer_up));
    CHECK(client.find(EventKind::peer_up)->event.peer == peer);
}
