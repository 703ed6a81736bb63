// The documented bytes of docs/wire-format.md for each transport, encoded and decoded.
#include <sys/socket.h>

#include "base/unique_fd.h"
#include "na/sm/handshake.h"
#include "na/tcp/wire.h"
#include "support/vectors.h"
#if WEFT_WITH_OFI
#include "na/ofi/wire.h"
#endif

using namespace weft;
using namespace weft::test;

static const na::Hello hello{{0x1122334455667788, 0x99aabbccddeeff00}, 66560, 65536, "sm://store"};

namespace {

struct Sockets {
    base::UniqueFd ours, theirs;
    Sockets() {
        int ends[2];
        REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
        ours.reset(ends[0]);
        theirs.reset(ends[1]);
    }
    // The packet that arrived at `theirs`; descriptors are dropped.
    std::vector<std::byte> packet() {
        std::vector<std::byte> bytes(1024);
        const ssize_t got = recv(theirs.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
        REQUIRE(got > 0);
        bytes.resize(static_cast<std::size_t>(got));
        return bytes;
    }
    void write(const std::string& vector) {
        const std::vector<std::byte> bytes = vector_of(vector);
        REQUIRE(send(theirs.get(), bytes.data(), bytes.size(), 0) > 0);
    }
};

}  // namespace

TEST_CASE("the packets of sm are the documented ones") {
    namespace sm = na::sm;
    Sockets sockets;
    REQUIRE(sm::send_hello(sockets.ours.get(), hello, {}).ok());
    check_bytes("sm_hello", sockets.packet());
    sockets.write("sm_hello");
    const auto greeting = sm::receive_hello(sockets.ours.get());
    INFO(greeting.status().to_string());
    REQUIRE((greeting && *greeting));
    CHECK((*greeting)->hello.uri == "sm://store");
    CHECK((*greeting)->hello.incarnation == hello.incarnation);

    sm::send_refusal(sockets.ours.get(), fail(Code::resource_exhausted, "full"));
    check_bytes("sm_refusal", sockets.packet());
    sockets.write("sm_refusal");
    const auto refusal = sm::receive_hello(sockets.ours.get());
    CHECK(refusal.status().code() == Code::resource_exhausted);
    CHECK(std::string(refusal.status().text()).find("full") != std::string::npos);

    sm::send_wake(sockets.ours.get());
    CHECK(sockets.packet() == std::vector{std::byte{'w'}});
    sm::send_bye(sockets.ours.get());
    CHECK(sockets.packet() == std::vector{std::byte{'b'}});
}

TEST_CASE("the frames and heads of tcp are the documented ones") {
    using namespace na::tcp;
    std::byte bytes[handshake_bytes_max];
    const auto encoded = [&](std::size_t length) { return ByteView(bytes, length); };
    const Ticket ticket{1, 2};
    const Status full = fail(Code::resource_exhausted, "full");
    check_bytes("tcp_hello", encoded(encode_hello(hello, bytes)));
    check_bytes("tcp_welcome", encoded(encode_welcome(ticket, hello, bytes)));
    check_bytes("tcp_joined", encoded(encode_control(ControlKind::welcome, bytes)));
    check_bytes("tcp_refusal", encoded(encode_refusal(full, bytes)));
    check_bytes("tcp_join", encoded(encode_join(ticket, 0, bytes)));
    check_bytes("tcp_want_bulk", encoded(encode_control(ControlKind::want_bulk, bytes)));
    check_bytes("tcp_bye", encoded(encode_control(ControlKind::bye, bytes)));

    // A frame is decoded without its padding.
    const auto frame_of = [](const char* name) {
        std::vector<std::byte> frame = vector_of(name);
        frame.resize(base::load<StreamHead>(frame.data()).bytes);
        return frame;
    };
    CHECK(decode_hello_frame(frame_of("tcp_hello")).value().uri == "sm://store");
    CHECK(decode_welcome(frame_of("tcp_welcome")).value().ticket == ticket);
    CHECK(decode_welcome(frame_of("tcp_welcome")).value().hello.uri == "sm://store");
    CHECK(decode_joined(frame_of("tcp_joined")).ok());
    CHECK(decode_joined(frame_of("tcp_refusal")).code() == Code::resource_exhausted);
    CHECK(decode_joined(frame_of("tcp_refusal")).text() == "refused: full");
    CHECK(decode_join(frame_of("tcp_join")).value() == ticket);

    BulkHead put;
    put.op = BulkOp::put;
    put.region = 5;
    put.generation = 7;
    put.length = 4096;
    put.key = 0x1122334455667788;
    put.offset = 65536;
    put.transfer = 0x100000003;
    base::store(bytes, put);
    check_bytes("tcp_put", encoded(sizeof put));
    BulkHead done;
    done.code = static_cast<std::uint8_t>(Code::permission_denied);
    done.why = static_cast<std::uint8_t>(Refusal::revoked);
    done.transfer = put.transfer;
    base::store(bytes, done);
    check_bytes("tcp_done", encoded(sizeof done));
}

#if WEFT_WITH_OFI

TEST_CASE("the messages of ofi are the documented ones") {
    using namespace na::ofi;
    std::byte bytes[control_bytes_max];
    const auto name = *na::SocketName::from_numeric("127.0.0.1", 7000);
    const auto encoded = [&](std::size_t length) { return ByteView(bytes, length); };
    const auto body_of = [](const std::vector<std::byte>& message) {
        return ByteView(message).subspan(sizeof(Prefix));
    };

    check_bytes("ofi_hello", encoded(encode_hello({3, 4}, name, hello, bytes)));
    const auto first = vector_of("ofi_hello");
    CHECK(decode_prefix(first).value().kind == Kind::hello);
    const auto opened = decode_hello_body(body_of(first)).value();
    CHECK(opened.reply_to == Label{3, 4});
    CHECK(opened.name.text() == "127.0.0.1:7000");
    CHECK(na::decode_hello(opened.hello).value().uri == "sm://store");

    check_bytes("ofi_welcome", encoded(encode_welcome({3, 4}, {5, 6}, hello, bytes)));
    const auto second = vector_of("ofi_welcome");
    CHECK(decode_prefix(second).value().kind == Kind::welcome);
    CHECK(decode_welcome_body(body_of(second)).value().label == Label{5, 6});

    const Status full = fail(Code::resource_exhausted, "full");
    check_bytes("ofi_refusal", encoded(encode_refusal({3, 4}, full, bytes)));
    const auto third = vector_of("ofi_refusal");
    CHECK(decode_prefix(third).value().kind == Kind::refusal);
    CHECK(decode_refusal_body(body_of(third)).value().code == Code::resource_exhausted);
    CHECK(decode_refusal_body(body_of(third)).value().text == "full");

    Prefix data;
    data.index = 5;
    data.tag = 6;
    data.sequence = 7;
    base::store(bytes, data);
    check_bytes("ofi_data", encoded(sizeof data));
    CHECK(decode_prefix(vector_of("ofi_data")).value().sequence == 7);
}

#endif
