// Frames of verbs connections and their validation.
#include <vector>

#include "base/codec.h"
#include "base/random.h"
#include "na/verbs/wire.h"
#include "support/catch.h"

using namespace weft;
using namespace weft::na::verbs;

TEST_CASE("verbs wire: connect data is decoded, padded or not, and each truncation is refused") {
    const ConnectData connect_data{{7, 8}, 65535, 4095, 65};
    std::byte bytes[56] = {};
    REQUIRE(encode(connect_data, bytes) == connect_data_bytes);
    for (const std::size_t size : {connect_data_bytes, sizeof bytes}) {
        const auto decoded = decode_connect_data({bytes, size});
        REQUIRE(decoded);
        CHECK(decoded->incarnation == connect_data.incarnation);
        CHECK(decoded->index == connect_data.index);
        CHECK(decoded->credits == connect_data.credits);
        CHECK(decoded->wanted == connect_data.wanted);
    }
    for (std::size_t cut = 0; cut < connect_data_bytes; ++cut) {
        const std::vector<std::byte> shorter(bytes, bytes + cut);
        CHECK_FALSE(decode_connect_data(shorter));
    }
}

TEST_CASE("verbs wire: connect data of another version or with invalid numbers is refused") {
    std::byte bytes[connect_data_bytes];
    const auto judge = [&](const ConnectData& connect_data) {
        encode(connect_data, bytes);
        return decode_connect_data(bytes).status().code();
    };
    CHECK(judge({{1, 2}, 65536, 4}) == Code::data_loss);
    CHECK(judge({{1, 2}, 0, 0}) == Code::data_loss);
    CHECK(judge({{1, 2}, 0, 4096}) == Code::data_loss);
    REQUIRE(judge({{1, 2}, 0, 1}) == Code::ok);
    bytes[4] = std::byte{9};
    CHECK(decode_connect_data(bytes).status().code() == Code::failed_precondition);
    bytes[0] = std::byte{0};
    CHECK(decode_connect_data(bytes).status().code() == Code::data_loss);
}

TEST_CASE("verbs wire: each field of an immediate stays in its bits") {
    for (std::uint32_t kind = 0; kind < 16; ++kind) {
        const std::uint32_t bits = kind << 28 | 0xffffu << 12 | 0xfffu;
        const auto word = decode_immediate(bits);
        CHECK(word.has_value() == (kind < kinds));
        if (!word) continue;
        CHECK(word->index == 0xffff);
        CHECK(word->credits == credits_max);
        CHECK(encode(*word) == bits);
    }
    CHECK(decode_immediate(encode({Kind::bye, 5, 0}))->kind == Kind::bye);
    CHECK(decode_immediate(encode({Kind::data, 5, 3}))->index == 5);
}

TEST_CASE("verbs wire: a rejection carries its reason, with control characters escaped") {
    std::byte bytes[rejection_bytes_max];
    const Status why(Code::resource_exhausted, "full\n" + std::string(500, 'w'));
    CHECK(encode_rejection(why, bytes) <= rejection_bytes_max);
    const auto told = decode_rejection(bytes);
    REQUIRE(told);
    CHECK(told->code() == Code::resource_exhausted);
    CHECK(std::string(told->text()).starts_with("full\\x0awww"));
    CHECK_FALSE(decode_rejection({bytes, 9}));
    bytes[0] = std::byte{0};
    CHECK_FALSE(decode_rejection(bytes));
}

TEST_CASE("verbs wire: a queue pair message is decoded as encoded, or refused") {
    const QueuePairMessage word{QueuePairMessage::Type::reply, 3, 0xffffff, 0xfffffe, 16, 0};
    std::byte bytes[queue_pair_message_bytes];
    REQUIRE(encode(word, bytes) == queue_pair_message_bytes);
    const auto decoded = decode_queue_pair_message(bytes);
    REQUIRE(decoded);
    CHECK(decoded->type == word.type);
    CHECK(decoded->number == 3);
    CHECK(decoded->qp_number == 0xffffff);
    CHECK(decoded->sequence == 0xfffffe);
    CHECK(decoded->reads == 16);
    CHECK_FALSE(decode_queue_pair_message({bytes, queue_pair_message_bytes - 1}));
    for (const std::size_t at :
         {std::size_t{0}, std::size_t{11}, std::size_t{15}, std::size_t{17}}) {
        std::byte bad[queue_pair_message_bytes];
        std::copy(bytes, bytes + queue_pair_message_bytes, bad);
        bad[at] = std::byte{0xff};
        CHECK_FALSE(decode_queue_pair_message(bad));
    }
    base::SeededRandom random(1);
    for (int i = 0; i < 1000; ++i) {
        std::byte noise[queue_pair_message_bytes];
        for (std::byte& byte : noise) byte = static_cast<std::byte>(random.next());
        if (const auto taken = decode_queue_pair_message(noise)) CHECK(taken->qp_number < 1u << 24);
    }
}
