// What two ends of a verbs connection tell each other, and the judging of it.
#include <vector>

#include "base/codec.h"
#include "base/random.h"
#include "na/verbs/wire.h"
#include "support/catch.h"

using namespace weft;
using namespace weft::na::verbs;

TEST_CASE("verbs wire: an opening passes, padded or not, and every truncation is refused") {
    const Opening opening{{7, 8}, 65535, 4095};
    std::byte bytes[56] = {};
    REQUIRE(encode(opening, bytes) == opening_bytes);
    for (const std::size_t size : {opening_bytes, sizeof bytes}) {
        const auto judged = decode_opening({bytes, size});
        REQUIRE(judged);
        CHECK(judged->incarnation == opening.incarnation);
        CHECK(judged->index == opening.index);
        CHECK(judged->credits == opening.credits);
    }
    for (std::size_t cut = 0; cut < opening_bytes; ++cut) {
        const std::vector<std::byte> shorter(bytes, bytes + cut);
        CHECK_FALSE(decode_opening(shorter));
    }
}

TEST_CASE("verbs wire: an opening of another version, of nobody, or with impossible numbers") {
    std::byte bytes[opening_bytes];
    const auto judge = [&](const Opening& opening) {
        encode(opening, bytes);
        return decode_opening(bytes).status().code();
    };
    CHECK(judge({{1, 2}, 65536, 4}) == Code::data_loss);
    CHECK(judge({{1, 2}, 0, 0}) == Code::data_loss);
    CHECK(judge({{1, 2}, 0, 4096}) == Code::data_loss);
    REQUIRE(judge({{1, 2}, 0, 1}) == Code::ok);
    bytes[4] = std::byte{9};
    CHECK(decode_opening(bytes).status().code() == Code::failed_precondition);
    bytes[0] = std::byte{0};
    CHECK(decode_opening(bytes).status().code() == Code::data_loss);
}

TEST_CASE("verbs wire: each part of an immediate stays in its bits") {
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

TEST_CASE("verbs wire: a rejection brings its reason, and its words are made harmless") {
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

TEST_CASE("verbs wire: a word about a lane is what was said, or nothing") {
    const LaneWord word{LaneWord::What::answer, 3, 0xffffff, 0xfffffe, 16, 0};
    std::byte bytes[lane_word_bytes];
    REQUIRE(encode(word, bytes) == lane_word_bytes);
    const auto judged = decode_lane_word(bytes);
    REQUIRE(judged);
    CHECK(judged->what == word.what);
    CHECK(judged->number == 3);
    CHECK(judged->queue_pair == 0xffffff);
    CHECK(judged->sequence == 0xfffffe);
    CHECK(judged->reads == 16);
    CHECK_FALSE(decode_lane_word({bytes, lane_word_bytes - 1}));
    for (const std::size_t at :
         {std::size_t{0}, std::size_t{11}, std::size_t{15}, std::size_t{17}}) {
        std::byte bad[lane_word_bytes];
        std::copy(bytes, bytes + lane_word_bytes, bad);
        bad[at] = std::byte{0xff};
        CHECK_FALSE(decode_lane_word(bad));
    }
    base::SeededRandom random(1);
    for (int i = 0; i < 1000; ++i) {
        std::byte noise[lane_word_bytes];
        for (std::byte& byte : noise) byte = static_cast<std::byte>(random.next());
        if (const auto taken = decode_lane_word(noise)) CHECK(taken->queue_pair < 1u << 24);
    }
}
