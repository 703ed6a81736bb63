// The prefix and control messages of ofi+tcp, and the validation of received ones.
#include <vector>

#include "base/random.h"
#include "na/ofi/wire.h"
#include "support/catch.h"

using namespace weft;
using namespace weft::na::ofi;
using na::decode_hello;
using na::SocketName;

static na::Hello made_up_hello() {
    na::Hello hello;
    hello.incarnation = {1, 2};
    hello.message_bytes_max = 17408;
    hello.eager_bytes_max = 16384;
    hello.uri = "ofi+tcp://127.0.0.1:7000";
    return hello;
}

TEST_CASE("ofi wire: a hello carries the socket name of its sender") {
    const auto name = *SocketName::from_numeric("127.0.0.1", 7000);
    std::byte bytes[control_bytes_max];
    const ByteView message(bytes, encode_hello({3, 4}, name, made_up_hello(), bytes));
    const auto prefix = decode_prefix(message);
    REQUIRE(prefix);
    CHECK(prefix->kind == Kind::hello);
    const auto body = decode_hello_body(message.subspan(sizeof(Prefix)));
    REQUIRE(body);
    CHECK(body->reply_to == Label{3, 4});
    CHECK(body->name.text() == "127.0.0.1:7000");
    CHECK(decode_hello(body->hello)->uri == "ofi+tcp://127.0.0.1:7000");
}

TEST_CASE("ofi wire: the largest control message fits its buffer") {
    na::Hello hello = made_up_hello();
    hello.uri.assign(1000, 'u');
    std::byte bytes[control_bytes_max];
    const auto name = *SocketName::from_numeric("fd00::1", 7000);
    CHECK(encode_hello({3, 4}, name, hello, bytes) <= control_bytes_max);
    const Status why(Code::internal, std::string(5000, 'w'));
    const ByteView message(bytes, encode_refusal({1, 2}, why, bytes));
    REQUIRE(decode_prefix(message));
    const auto refusal = decode_refusal_body(message.subspan(sizeof(Prefix)));
    REQUIRE(refusal);
    CHECK(refusal->text.size() == refusal_text_max);
}

TEST_CASE("ofi wire: every truncation is refused and nothing is read past the end") {
    const auto name = *SocketName::from_numeric("::1", 7000);
    std::byte bytes[control_bytes_max];
    const std::size_t count = encode_hello({3, 4}, name, made_up_hello(), bytes);
    for (std::size_t cut = 0; cut < count; ++cut) {
        // A vector of the exact size, so that a sanitizer finds reads past its end.
        const std::vector<std::byte> shorter(bytes, bytes + cut);
        CHECK_FALSE(decode_prefix(shorter));
        if (cut < sizeof(Prefix)) continue;
        const std::vector<std::byte> body(bytes + sizeof(Prefix), bytes + cut);
        const auto judged = decode_hello_body(body);
        if (judged) CHECK_FALSE(decode_hello(judged->hello));
    }
}

TEST_CASE("ofi wire: random bytes are decoded without a memory error") {
    base::SeededRandom random(5);
    for (int round = 0; round < 20'000; ++round) {
        std::vector<std::byte> noise(random.next() % 80);
        for (std::byte& b : noise) b = std::byte(random.next() % 40);
        (void)decode_prefix(noise);
        (void)decode_hello_body(noise);
        (void)decode_welcome_body(noise);
        if (const auto refusal = decode_refusal_body(noise)) CHECK(refusal->code != Code::ok);
    }
}

TEST_CASE("ofi wire: a refusal is rejected when its text has control characters") {
    for (const char control : {'\n', '\x1b', '\0', '\x7f'}) {
        std::byte bytes[control_bytes_max];
        const Status why(Code::internal, std::string("why") + control);
        const ByteView message(bytes, encode_refusal({1, 2}, why, bytes));
        CHECK_FALSE(decode_refusal_body(message.subspan(sizeof(Prefix))));
    }
}

TEST_CASE("ofi wire: socket names that no peer can have are refused") {
    const auto wire = [](const SocketName& name) { return SocketName::from_wire(name.bytes()); };
    CHECK(wire(*SocketName::from_numeric("10.0.0.1", 1)));
    CHECK(wire(*SocketName::from_numeric("::1", 1)));
    CHECK_FALSE(wire(*SocketName::from_numeric("10.0.0.1", 0)));
    CHECK_FALSE(wire(*SocketName::from_numeric("0.0.0.0", 1)));
    CHECK_FALSE(wire(*SocketName::from_numeric("::", 1)));
    CHECK_FALSE(wire(*SocketName::from_numeric("239.1.2.3", 1)));
    CHECK_FALSE(wire(*SocketName::from_numeric("ff02::1", 1)));
    CHECK_FALSE(SocketName::from_wire({}));
    CHECK_FALSE(SocketName::from_wire(as_bytes("no socket name")));
}
