#include "na/hello.h"

#include <array>
#include <initializer_list>
#include <vector>

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

// With all items, and the largest numbers of a runtime.
Hello with_items() {
    Hello hello = sample();
    hello.wanted = 0xffff;
    hello.features = 0x8000'0000'0000'0001;
    hello.contexts = contexts_max;
    hello.context = contexts_max - 1;
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
    CHECK(read->wanted == 0);
    CHECK(read->features == 0);
    CHECK(read->contexts == 1);
    CHECK(read->context == 0);
    // Item 0 ends the items: decode_hello() ignores what follows.
    CHECK(decode_hello(encoded.memory));
}

TEST_CASE("a hello's features and contexts are decoded as they were encoded") {
    const Result<Hello> read = decode_hello(Encoded(with_items()).view());
    REQUIRE(read);
    CHECK(read->uri == "sm://store");
    CHECK(read->wanted == 0xffff);
    CHECK(read->features == 0x8000'0000'0000'0001);
    CHECK(read->contexts == 64);
    CHECK(read->context == 63);
    na::PeerInfo info;
    na::apply_hello(info, *read, {});
    CHECK(info.features == 0x8000'0000'0000'0001);
    CHECK(info.contexts == 64);
    CHECK(info.context == 63);
}

namespace {

// The sample with these bytes behind its address.
Result<Hello> followed_by(std::initializer_list<int> bytes) {
    const Encoded encoded(sample());
    std::vector<std::byte> all(encoded.view().begin(), encoded.view().end());
    for (const int byte : bytes) all.push_back(static_cast<std::byte>(byte));
    return decode_hello(all);
}

}  // namespace

TEST_CASE("items of a hello come in any order, and those of unknown kinds are skipped") {
    // 99 with 3 bytes, contexts 5 (2), 0x1234 empty, features 7.
    const auto read = followed_by({99,   0, 3, 0, 1, 2, 3, 2, 0, 4, 0, 5, 0, 2, 0, 0x34,
                                   0x12, 0, 0, 1, 0, 8, 0, 7, 0, 0, 0, 0, 0, 0, 0});
    REQUIRE(read);
    CHECK(read->contexts == 5);
    CHECK(read->context == 2);
    CHECK(read->features == 7);
    // What follows item 0 is ignored.
    CHECK(followed_by({0, 0, 1, 0, 8}));
}

TEST_CASE("invalid items of a hello are refused") {
    const std::initializer_list<int> invalid[] = {
        {1},                                // Half of a kind.
        {99, 0, 1},                         // Half of a length.
        {99, 0, 1, 0},                      // Longer than the rest.
        {99, 0, 255, 255, 0},               //
        {1, 0, 7, 0, 1, 2, 3, 4, 5, 6, 7},  // Features of 7 and 9 bytes.
        {1, 0, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9},
        {2, 0, 2, 0, 1, 0},                // Contexts without a number of the context.
        {2, 0, 4, 0, 0, 0, 0, 0},          // 0 contexts.
        {2, 0, 4, 0, 65, 0, 0, 0},         // 65.
        {2, 0, 4, 0, 3, 0, 3, 0},          // Context 3 of 3.
        {2, 0, 4, 0, 255, 255, 254, 255},  //
        {2, 0, 4, 0, 3, 0, 1, 0, 2, 0, 4, 0, 3, 0, 1, 0},  // Twice.
        {1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0},
    };
    for (const auto& bytes : invalid) {
        const Result<Hello> read = followed_by(bytes);
        INFO(bytes.size());
        REQUIRE_FALSE(read);
        CHECK(read.status().code() == Code::data_loss);
        CHECK(read.status().text() == "the hello has garbage behind its address");
    }
}

TEST_CASE("a hello begins with the documented bytes") {
    const Encoded encoded(sample());
    CHECK(as_text(encoded.view().first(4)) == "weft");
    CHECK(encoded.memory[4] == std::byte{0});
    CHECK(encoded.memory[5] == std::byte{0});
    CHECK(encoded.memory[8] == std::byte{0x88});
    CHECK(encoded.size == 4 + 2 + 2 + 16 + 4 + 4 + 2 + 10);
}

// Between two items a cut is not visible: each transport sends the length of a hello beside it.
TEST_CASE("a hello cut short at any byte is refused") {
    const Encoded encoded(with_items());
    const std::size_t items = encoded.size - hello_items_bytes_max;
    for (std::size_t size = 0; size < encoded.size; ++size) {
        if (size == items || size == items + 12) continue;
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
    Hello hello = with_items();
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
    const Encoded good(with_items());
    for (int round = 0; round < 20'000; ++round) {
        Encoded bad = good;
        bad.memory[random.next() % bad.size] = static_cast<std::byte>(random.next());
        const Result<Hello> read = decode_hello(bad.view());
        if (!read) continue;
        REQUIRE(read->uri.size() <= 256);
        REQUIRE(read->contexts <= contexts_max);
        REQUIRE(read->context < read->contexts);
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
    na::apply_hello(info, {{1, 2}, 2048, 2000, "x", 0, 0, 1, 0}, ours);
    CHECK(info.message_bytes_max == 2048);
    CHECK(info.eager_bytes_max == 2000);
    CHECK(info.incarnation == na::Incarnation{1, 2});
    na::apply_hello(info, {{1, 2}, 1 << 20, 1 << 19, "x", 0, 0, 1, 0}, ours);
    CHECK(info.message_bytes_max == 4096);
    CHECK(info.eager_bytes_max == 4000);
}

TEST_CASE("a wanted context names that of the program always, and that of a session in its life") {
    const Incarnation life{7, 254}, next{8, 255};
    CHECK(encode_wanted(0, nullptr) == 0);
    CHECK(encode_wanted(0, &life) == 0);
    CHECK(encode_wanted(2, nullptr) == 2);
    CHECK(encode_wanted(2, &life) == 0xff02);
    CHECK(encode_wanted(2, &next) == 0x0102);
    CHECK(encode_wanted(0xffff, nullptr) == 0xff);  // No receiver has so many.
    const auto has = [](const Wanted& wanted, std::uint16_t number, bool has_session) {
        return wanted.number == number && wanted.has_session == has_session;
    };
    CHECK(has(decode_wanted(2, life), 2, false));
    CHECK(has(decode_wanted(0xff02, life), 2, true));
    CHECK(has(decode_wanted(0xff02, next), 0, false));
    CHECK(has(decode_wanted(0x0102, next), 2, true));
    CHECK(has(decode_wanted(0xffff, next), 0, false));
}
