#include "na/hello.h"

#include <array>

#include "base/random.h"
#include "rpc/header.h"
#include "support/catch.h"

using namespace weft;
using namespace weft::na;

namespace {

Hello sample() {
    Hello hello;
    hello.incarnation = {0x1122334455667788, 0x99aabbccddeeff00};
    hello.message_bytes_max = 65'536;
    hello.eager_bytes_max = 16'384;
    hello.uri = "sm://store";
    return hello;
}

struct Encoded {
    std::array<std::byte, hello_bytes_max> memory{};
    std::size_t size;

    explicit Encoded(const Hello& hello) : size(encode(hello, memory)) {}
    ByteView view() const { return ByteView(memory).first(size); }
};

}  // namespace

TEST_CASE("a hello is decoded as it was encoded") {
    const Hello hello = sample();
    const Encoded encoded(hello);
    const Result<Hello> read = decode_hello(encoded.view());
    REQUIRE(read);
    CHECK(read->incarnation == hello.incarnation);
    CHECK(read->message_bytes_max == hello.message_bytes_max);
    CHECK(read->eager_bytes_max == hello.eager_bytes_max);
    CHECK(read->uri == hello.uri);
    // decode_hello() ignores the bytes behind the hello.
    CHECK(decode_hello(encoded.memory));
}

TEST_CASE("a hello begins with the documented bytes") {
    const Encoded encoded(sample());
    CHECK(as_text(encoded.view().first(4)) == "weft");
    CHECK(encoded.memory[4] == std::byte{0});
    CHECK(encoded.memory[5] == std::byte{0});
    CHECK(encoded.memory[8] == std::byte{0x88});
    CHECK(encoded.size == 4 + 2 + 2 + 16 + 4 + 4 + 2 + 10);
}

TEST_CASE("a hello cut short at any byte is refused") {
    const Encoded encoded(sample());
    for (std::size_t size = 0; size < encoded.size; ++size) {
        const Result<Hello> read = decode_hello(encoded.view().first(size));
        INFO(size);
        REQUIRE_FALSE(read);
        CHECK(read.status().code() == Code::data_loss);
        CHECK_FALSE(read.status().text().empty());
    }
}

TEST_CASE("another magic, another version or impossible limits are refused with a reason") {
    const Encoded good(sample());
    {
        Encoded bad = good;
        bad.memory[0] ^= std::byte{1};
        const Result<Hello> read = decode_hello(bad.view());
        CHECK(read.status().code() == Code::data_loss);
        CHECK(read.status().text() == "the peer does not speak weft (bad magic in its hello)");
    }
    {
        Encoded bad = good;
        bad.memory[4] = std::byte{9};
        const Result<Hello> read = decode_hello(bad.view());
        CHECK(read.status().code() == Code::failed_precondition);
        CHECK(read.status().text() == "the peer speaks wire version 9, this is 0");
    }
    for (const auto& [message, eager] :
         {std::pair{2047u, 100u}, {0u, 0u}, {4096u, 4065u}, {4096u, 4096u}, {4096u, ~0u}}) {
        Hello hello = sample();
        hello.message_bytes_max = message;
        hello.eager_bytes_max = eager;
        const Result<Hello> read = decode_hello(Encoded(hello).view());
        CHECK(read.status().code() == Code::data_loss);
        CHECK(read.status().text() == "the hello has impossible limits");
    }
}

TEST_CASE("an address in a hello is at most 256 bytes, written and read") {
    Hello hello = sample();
    hello.uri = "sm://" + std::string(300, 'x');
    const Encoded encoded(hello);
    CHECK(encoded.size == hello_bytes_max);
    const Result<Hello> read = decode_hello(encoded.view());
    REQUIRE(read);
    CHECK(read->uri == hello.uri.substr(0, 256));

    std::array<std::byte, hello_bytes_max + 1> longer{};
    std::copy(encoded.memory.begin(), encoded.memory.end(), longer.begin());
    longer[32] = std::byte{1};  // 257.
    longer[33] = std::byte{1};
    const Result<Hello> refused = decode_hello(longer);
    REQUIRE_FALSE(refused);
    CHECK(refused.status().text() == "the hello has an address of more than 256 bytes");
}

TEST_CASE("an address in a hello that would write on a terminal or into a log is refused") {
    for (const char* uri : {"sm://a\nERROR forged", "sm://\x1b[2J", "sm://a\x7f"}) {
        Hello hello = sample();
        hello.uri = uri;
        const Result<Hello> read = decode_hello(Encoded(hello).view());
        CHECK(read.status().code() == Code::data_loss);
        CHECK(read.status().text() == "the hello has control or format characters in its address");
    }
}

TEST_CASE("the least limits of a hello hold every reply and every call of weft's protocol") {
    CHECK(2048 >= sizeof(rpc::ReplyHeader) + rpc::error_text_bytes_max);
    CHECK(32 == sizeof(rpc::RequestHeader));
    Hello hello = sample();
    hello.message_bytes_max = 2048;
    hello.eager_bytes_max = 2048 - 32;
    CHECK(decode_hello(Encoded(hello).view()));
}

TEST_CASE("random bytes are refused as a hello, and random changes cause no memory error") {
    base::SeededRandom random(11);
    std::array<std::byte, hello_bytes_max> memory{};
    for (int round = 0; round < 20'000; ++round) {
        for (std::byte& byte : memory) byte = static_cast<std::byte>(random.next());
        REQUIRE_FALSE(decode_hello(ByteView(memory).first(random.next() % memory.size())));
    }
    const Encoded good(sample());
    for (int round = 0; round < 20'000; ++round) {
        Encoded bad = good;
        bad.memory[random.next() % bad.size] = static_cast<std::byte>(random.next());
        const Result<Hello> read = decode_hello(bad.view());
        if (read) REQUIRE(read->uri.size() <= 256);
    }
}

TEST_CASE("the code of a refusal is the peer's, except for codes that only this side can find") {
    CHECK(na::code_of_refusal(8) == Code::resource_exhausted);
    CHECK(na::code_of_refusal(9) == Code::failed_precondition);
    for (const unsigned told : {0u, 12u, 17u, 255u, 0xffffu}) {
        CHECK(na::code_of_refusal(told) == Code::unavailable);
    }
}

TEST_CASE("the smaller limits of two sides apply") {
    na::Limits ours;
    ours.message_bytes_max = 4096;
    ours.eager_bytes_max = 4000;
    na::PeerInfo info;
    na::apply_hello(info, {{1, 2}, 2048, 2000, "x"}, ours);
    CHECK(info.message_bytes_max == 2048);
    CHECK(info.eager_bytes_max == 2000);
    CHECK(info.incarnation == na::Incarnation{1, 2});
    na::apply_hello(info, {{1, 2}, 1 << 20, 1 << 19, "x"}, ours);
    CHECK(info.message_bytes_max == 4096);
    CHECK(info.eager_bytes_max == 4000);
}
