// Merge functions that protoc-gen-weft generates from the rules in tests/protos/merge.proto.
#include <cmath>
#include <limits>
#include <random>

#include <google/protobuf/stubs/logging.h>

#include <weft/protobuf_merge.h>

#include "merge.weft.h"
#include "support/catch.h"

namespace merge::v1 {

using weft::as_bytes;
using weft::ByteView;
using weft::Code;
using weft::Effect;
using weft::MergeFunction;
using weft::Status;

namespace {

constexpr MergeFunction merge_alls = MergingMethods::Everything.merge;

using Bytes = std::vector<std::byte>;

template <class Message>
Bytes bytes_of(const Message& message) {
    Bytes bytes(message.ByteSizeLong());
    message.SerializeWithCachedSizesToArray(reinterpret_cast<std::uint8_t*>(bytes.data()));
    return bytes;
}

template <class Message>
Message message_of(const Bytes& bytes) {
    Message message;
    REQUIRE(message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())));
    return message;
}

// Merges two replies, which `fill` fills with 0 and 1.
template <class Fill>
All merged_of(Fill fill) {
    All first, second;
    fill(first, 0);
    fill(second, 1);
    Bytes into = bytes_of(first);
    const Status status = merge_alls(into, bytes_of(second));
    INFO(status.to_string());
    REQUIRE(status.ok());
    return message_of<All>(into);
}

}  // namespace

TEST_CASE("merge: SUM adds every kind of number") {
    const Sums sums = merged_of([](All& all, int which) {
                          Sums& into = *all.mutable_sums();
                          into.set_i32(which ? -7 : 3);
                          into.set_i64(which ? -7 : 3);
                          into.set_u32(which ? 7 : 3);
                          into.set_u64(which ? 7 : 3);
                          into.set_s32(which ? -7 : 3);
                          into.set_f64(which ? -7 : 3);
                          into.set_narrow(which ? 0.5f : 0.25f);
                          into.set_wide(which ? 0.5 : 0.25);
                          for (int i = 0; i < 2 + which; ++i) into.add_bins(which ? 10 : 1);
                      }).sums();
    CHECK(sums.i32() == -4);
    CHECK(sums.i64() == -4);
    CHECK(sums.u32() == 10);
    CHECK(sums.u64() == 10);
    CHECK(sums.s32() == -4);
    CHECK(sums.f64() == -4);
    CHECK(sums.narrow() == 0.75f);
    CHECK(sums.wide() == 0.75);
    CHECK_FALSE(sums.has_maybe());
    CHECK(std::vector<std::uint64_t>(sums.bins().begin(), sums.bins().end()) ==
          std::vector<std::uint64_t>{11, 11, 10});
}

TEST_CASE("merge: SUM of integers wraps") {
    using Limits = std::numeric_limits<std::int64_t>;
    const Sums sums = merged_of([](All& all, int which) {
                          Sums& into = *all.mutable_sums();
                          into.set_i32(std::numeric_limits<std::int32_t>::max());
                          into.set_i64(which ? Limits::min() : -1);
                          into.set_u64(std::numeric_limits<std::uint64_t>::max());
                      }).sums();
    CHECK(sums.i32() == -2);
    CHECK(sums.i64() == Limits::max());
    CHECK(sums.u64() == std::numeric_limits<std::uint64_t>::max() - 1);
}

TEST_CASE("merge: MIN and MAX work on numbers and enums") {
    const Bounds bounds = merged_of([](All& all, int which) {
                              Bounds& into = *all.mutable_bounds();
                              into.set_low(which ? -3 : 8);
                              into.set_high(which ? -3 : 8);
                              into.set_least(which ? -0.5 : 8);
                              into.set_most(which ? -0.5 : 8);
                              into.set_quietest(which ? LOUD : LOUDEST);
                              into.set_loudest(which ? LOUD : LOUDEST);
                              into.add_lows(which ? -1 : 1);
                              if (which) into.add_lows(5);
                              into.add_louds(which ? QUIET : LOUD);
                              if (which) into.set_maybe_low(4);
                          }).bounds();
    CHECK(bounds.low() == -3);
    CHECK(bounds.high() == 8);
    CHECK(bounds.least() == -0.5);
    CHECK(bounds.most() == 8);
    CHECK(bounds.quietest() == LOUD);
    CHECK(bounds.loudest() == LOUDEST);
    CHECK(bounds.lows(0) == -1);
    CHECK(bounds.lows(1) == 5);
    CHECK(bounds.louds(0) == LOUD);
    CHECK(bounds.maybe_low() == 4);
    CHECK_FALSE(bounds.has_maybe_high());
}

TEST_CASE("merge: MIN and MAX return NaN when one value is NaN") {
    for (const int one : {0, 1}) {
        const Bounds bounds = merged_of([one](All& all, int which) {
                                  all.mutable_bounds()->set_least(which == one ? NAN : 1);
                                  all.mutable_bounds()->set_most(which == one ? NAN : 1);
                              }).bounds();
        CHECK(std::isnan(bounds.least()));
        CHECK(std::isnan(bounds.most()));
    }
}

TEST_CASE("merge: AND and OR work on bools and integers") {
    const Bits bits = merged_of([](All& all, int which) {
                          Bits& into = *all.mutable_bits();
                          into.set_every(which);
                          into.set_any(which);
                          into.set_common(which ? 6 : 3);
                          into.set_all(which ? -2 : 1);
                          into.set_maybe_every(true);
                          into.add_anies(!which);
                          if (!which) into.add_anies(true);
                      }).bits();
    CHECK_FALSE(bits.every());
    CHECK(bits.any());
    CHECK(bits.common() == 2);
    CHECK(bits.all() == -1);
    CHECK(bits.maybe_every());
    CHECK(bits.anies_size() == 2);
    CHECK(bits.anies(0));
    CHECK(bits.anies(1));
}

TEST_CASE("merge: CONCAT joins texts and lists") {
    const Lists lists = merged_of([](All& all, int which) {
                            Lists& into = *all.mutable_lists();
                            into.set_text(which ? "b" : "a");
                            into.set_data(which ? "d" : "c");
                            if (which) into.set_maybe("e");
                            into.add_names(which ? "g" : "f");
                            into.add_numbers(which);
                            into.add_parts()->set_rank(which);
                        }).lists();
    CHECK(lists.text() == "ab");
    CHECK(lists.data() == "cd");
    CHECK(lists.maybe() == "e");
    CHECK(lists.names(0) + lists.names(1) == "fg");
    CHECK(lists.numbers(1) == 1);
    CHECK(lists.parts(0).rank() == 0);
    CHECK(lists.parts(1).rank() == 1);
}

TEST_CASE("merge: FIRST takes the value of the first reply that has one") {
    for (const bool empty : {false, true}) {
        const Firsts firsts = merged_of([empty](All& all, int which) {
                                  all.mutable_firsts();
                                  if (empty && which == 0) return;
                                  Firsts& into = *all.mutable_firsts();
                                  const std::string name = which ? "second" : "first";
                                  into.set_text(name);
                                  into.set_data(name);
                                  into.set_number(1 + which);
                                  into.set_level(which ? LOUDEST : LOUD);
                                  into.set_maybe(name);
                                  into.set_maybe_number(which);
                                  into.mutable_part()->set_rank(which);
                                  into.add_names(name);
                                  into.set_is(true);
                                  into.set_wide(1 + which);
                              }).firsts();
        const std::string name = empty ? "second" : "first";
        CHECK(firsts.text() == name);
        CHECK(firsts.data() == name);
        CHECK(firsts.number() == 1u + empty);
        CHECK(firsts.level() == (empty ? LOUDEST : LOUD));
        CHECK(firsts.maybe() == name);
        CHECK(firsts.maybe_number() == empty);
        CHECK(firsts.part().rank() == empty);
        REQUIRE(firsts.names_size() == 1);
        CHECK(firsts.names(0) == name);
        CHECK(firsts.is());
        CHECK(firsts.wide() == 1 + empty);
    }
}

TEST_CASE("merge: an optional field is merged from the replies that have it") {
    for (const int only : {0, 1, 2}) {  // The first reply, the second, both.
        const All all = merged_of([only](All& into, int which) {
            if (only != 2 && only != which) return;
            into.mutable_sums()->set_maybe(5);
            into.mutable_bounds()->set_maybe_low(6 + which);
            into.mutable_bounds()->set_maybe_high(6 + which);
            into.mutable_bits()->set_maybe_every(which == 0);
            into.mutable_lists()->set_maybe(which ? "2" : "1");
            into.mutable_slowest()->set_ms(7);
        });
        CHECK(all.sums().maybe() == (only == 2 ? 10 : 5));
        CHECK(all.bounds().maybe_low() == (only == 1 ? 7 : 6));
        CHECK(all.bounds().maybe_high() == (only == 0 ? 6 : 7));
        CHECK(all.bits().maybe_every() == (only == 0));
        CHECK(all.lists().maybe() == (only == 2 ? "12" : only ? "2" : "1"));
        CHECK(all.slowest().ms() == 7);
    }
}

TEST_CASE("merge: nested messages follow their own rules, also of proto2 and of another file") {
    const All all = merged_of([](All& into, int which) {
        into.set_class_(which);
        All& deep = *into.mutable_next()->mutable_next();
        deep.mutable_sums()->set_u32(1);
        parts::v1::Counted& counted = *deep.mutable_counted();
        counted.set_calls(3);
        if (which) {
            counted.set_least(9);  // More than the default, which no reply has set.
            counted.set_name("known");
        }
        counted.set_shade(which ? parts::v1::DARK : parts::v1::LIGHT);
        counted.mutable_inner()->set_any(which);
    });
    CHECK(all.class_() == 1);
    const All& deep = all.next().next();
    CHECK(deep.sums().u32() == 2);
    CHECK(deep.counted().calls() == 6);
    CHECK(deep.counted().least() == 9);
    CHECK(deep.counted().name() == "known");
    CHECK(deep.counted().shade() == parts::v1::LIGHT);
    CHECK(deep.counted().inner().any());
}

TEST_CASE("merge: USER calls the program's own function") {
    const auto fill = [](All& all, int which) {
        all.mutable_slowest()->set_rank(which);
        all.mutable_slowest()->set_ms(which ? 90 : 40);
        all.mutable_agreed()->set_value(8);
    };
    const All all = merged_of(fill);
    CHECK(all.slowest().rank() == 1);
    CHECK(all.slowest().ms() == 90);
    CHECK(all.agreed().value() == 8);
}

TEST_CASE("merge: an error or exception of USER is the status, and the merged bytes stay") {
    for (const std::uint32_t value : {9u, 666u}) {
        All first, second;
        first.mutable_agreed()->set_value(8);
        second.mutable_agreed()->set_value(value);
        Bytes into = bytes_of(first);
        const Bytes before = into;
        const Status status = merge_alls(into, bytes_of(second));
        CHECK(status.code() == (value == 9 ? Code::aborted : Code::internal));
        CHECK(status.text() == (value == 9
                                    ? "they do not agree"
                                    : "merging replies into one merge.v1.All threw an exception"));
        CHECK(into == before);
    }
}

TEST_CASE("merge: unknown fields of both replies are kept") {
    const auto with_unknown = [](const char* text, bool deep) {
        All all;
        google::protobuf::Message& message =
            deep ? static_cast<google::protobuf::Message&>(*all.mutable_sums()) : all;
        message.GetReflection()->MutableUnknownFields(&message)->AddLengthDelimited(99, text);
        return bytes_of(all);
    };
    for (const bool deep : {false, true}) {
        Bytes into = with_unknown("mine", deep);
        REQUIRE(merge_alls(into, with_unknown("theirs", deep)).ok());
        const All all = message_of<All>(into);
        const google::protobuf::Message& message =
            deep ? static_cast<const google::protobuf::Message&>(all.sums()) : all;
        const auto& unknown = message.GetReflection()->GetUnknownFields(message);
        REQUIRE(unknown.field_count() == 2);
        CHECK(unknown.field(0).length_delimited() == "mine");
        CHECK(unknown.field(1).length_delimited() == "theirs");
    }
}

TEST_CASE("merge: an empty message merges to an empty message") {
    Bytes into;
    CHECK(MergingMethods::Done.merge(into, {}).ok());
    CHECK(into.empty());
    CHECK(MergingMethods::weft_merges_.merge(into, {}).ok());
    CHECK(MergingMethods::List.merge == nullptr);
}

TEST_CASE("merge: replies that are too large together are refused") {
    const auto keep = [](Lists&, Lists&) { return Status(); };
    const auto grow = [](Lists& into, Lists&) {
        into.set_text(std::string(100, 'x'));
        return Status();
    };
    Lists lists;
    lists.set_text("1234567890");
    const Bytes reply = bytes_of(lists);
    Bytes into = reply;
    CHECK(weft::merging::replies<Lists>(into, reply, keep, 24).ok());
    const Status together = weft::merging::replies<Lists>(into, reply, keep, 23);
    CHECK(together.code() == Code::resource_exhausted);
    CHECK(together.text() == "replies are too large to be merged into one merge.v1.Lists");
    CHECK(weft::merging::replies<Lists>(into, {}, grow, 24).code() == Code::resource_exhausted);
    CHECK(into == reply);
}

// ---- bytes from the wire
// --------------------------------------------------------------------------

namespace {

class Random {
  public:
    explicit Random(std::uint32_t seed) : random_(seed) {}
    std::uint32_t below(std::uint32_t end) { return static_cast<std::uint32_t>(random_() % end); }
    bool one_in(std::uint32_t n) { return below(n) == 0; }
    std::uint64_t number() { return one_in(2) ? below(5) : random_(); }
    std::string text() { return std::string(below(4), static_cast<char>('a' + below(26))); }

  private:
    std::mt19937_64 random_;
};

// Without floats, because their sums depend on the grouping.
void fill(All& all, Random& random, int depth = 0) {
    if (random.one_in(2)) {
        Sums& sums = *all.mutable_sums();
        sums.set_i32(static_cast<std::int32_t>(random.number()));
        sums.set_i64(static_cast<std::int64_t>(random.number()));
        sums.set_u32(static_cast<std::uint32_t>(random.number()));
        if (random.one_in(2)) sums.set_maybe(static_cast<std::int64_t>(random.number()));
        for (std::uint32_t i = random.below(4); i > 0; --i) sums.add_bins(random.number());
    }
    if (random.one_in(2)) {
        Bounds& bounds = *all.mutable_bounds();
        bounds.set_low(static_cast<std::int32_t>(random.number()));
        if (random.one_in(2)) bounds.set_maybe_high(random.number());
        const auto number = [&]() -> double {
            if (random.one_in(5)) return random.one_in(2) ? NAN : -NAN;
            return random.one_in(4) ? -0.0 : random.below(9);
        };
        bounds.set_least(number());
        bounds.set_most(number());
        bounds.set_loudest(static_cast<Level>(random.below(3)));
        for (std::uint32_t i = random.below(4); i > 0; --i) {
            bounds.add_louds(static_cast<Level>(random.below(3)));
        }
    }
    if (random.one_in(2)) {
        Bits& bits = *all.mutable_bits();
        bits.set_every(random.one_in(2));
        bits.set_common(static_cast<std::uint32_t>(random.number()));
        if (random.one_in(2)) bits.set_maybe_every(random.one_in(2));
        for (std::uint32_t i = random.below(4); i > 0; --i) bits.add_anies(random.one_in(2));
    }
    if (random.one_in(2)) {
        Lists& lists = *all.mutable_lists();
        lists.set_text(random.text());
        if (random.one_in(2)) lists.set_maybe(random.text());
        for (std::uint32_t i = random.below(3); i > 0; --i) lists.add_names(random.text());
        for (std::uint32_t i = random.below(3); i > 0; --i) lists.add_parts()->set_ms(i);
    }
    if (random.one_in(2)) {
        Firsts& firsts = *all.mutable_firsts();
        firsts.set_text(random.text());
        firsts.set_number(random.below(3));
        if (random.one_in(2)) firsts.set_maybe_number(random.below(3));
        for (std::uint32_t i = random.below(3); i > 0; --i) firsts.add_names(random.text());
    }
    if (random.one_in(2)) {
        all.mutable_slowest()->set_ms(random.below(4));
        all.mutable_slowest()->set_rank(random.below(4));
    }
    if (random.one_in(2)) all.mutable_counted()->set_calls(random.below(4));
    if (depth < 2 && random.one_in(2)) fill(*all.mutable_next(), random, depth + 1);
    if (random.one_in(3)) {
        all.GetReflection()->MutableUnknownFields(&all)->AddVarint(77, random.number());
    }
}

// Merges the replies from `first` to `last` in order, grouped at random.
Bytes merge_range(const std::vector<Bytes>& replies, std::size_t first, std::size_t last,
                  Random& random) {
    if (last - first == 1) return replies[first];
    const std::size_t middle =
        first + 1 + random.below(static_cast<std::uint32_t>(last - first - 1));
    Bytes into = merge_range(replies, first, middle, random);
    REQUIRE(merge_alls(into, merge_range(replies, middle, last, random)).ok());
    return into;
}

}  // namespace

TEST_CASE("merge: the result does not depend on how replies are grouped") {
    for (std::uint32_t seed = 1; seed <= 300; ++seed) {
        Random random(seed);
        std::vector<Bytes> replies(2 + random.below(8));
        for (Bytes& reply : replies) {
            All all;
            fill(all, random);
            reply = bytes_of(all);
        }
        Bytes in_turn = replies[0];
        for (std::size_t i = 1; i < replies.size(); ++i) {
            REQUIRE(merge_alls(in_turn, replies[i]).ok());
        }
        INFO("seed " << seed);
        for (int times = 0; times < 3; ++times) {
            REQUIRE(merge_range(replies, 0, replies.size(), random) == in_turn);
        }
    }
}

TEST_CASE("merge: bytes that are no valid message fail with a status and change nothing") {
    const google::protobuf::LogSilencer no_complaints;
    const auto no_message = [](std::string_view text) {
        const ByteView view = as_bytes(text);
        return Bytes(view.begin(), view.end());
    };
    All good;
    good.set_class_(1);
    const Bytes bad[] = {no_message("\n\x7f"), no_message("\x42\x00"),
                         no_message("\x42\x02\x08\xff"),
                         no_message("\x22\x03\n\1\xff")};  // Text that is not UTF-8.
    for (const Bytes& bytes : bad) {
        Bytes into = bytes_of(good);
        const Status from = merge_alls(into, bytes);
        CHECK(from.code() == Code::internal);
        CHECK(from.effect() == Effect::applied);
        CHECK(from.text() == "the reply is not a valid merge.v1.All");
        CHECK(into == bytes_of(good));
        into = bytes;
        CHECK(merge_alls(into, bytes_of(good)).code() == Code::internal);
        CHECK(into == bytes);
    }
}

TEST_CASE("merge: random damage ends with a status or a valid message") {
    const google::protobuf::LogSilencer no_complaints;  // Of text that is not UTF-8.
    for (std::uint32_t seed = 1; seed <= 3000; ++seed) {
        Random random(seed);
        Bytes both[2];
        for (Bytes& bytes : both) {
            All all;
            fill(all, random);
            bytes = bytes_of(all);
            for (std::uint32_t i = random.below(4); i > 0 && !bytes.empty(); --i) {
                const std::uint32_t at = random.below(static_cast<std::uint32_t>(bytes.size()));
                switch (random.below(3)) {
                    case 0: bytes[at] = static_cast<std::byte>(random.below(256)); break;
                    case 1: bytes.resize(at); break;
                    default:
                        bytes.insert(bytes.begin() + at, static_cast<std::byte>(random.below(256)));
                }
            }
        }
        const Bytes before = both[0];
        const Status status = merge_alls(both[0], both[1]);
        INFO("seed " << seed);
        if (status.ok()) {
            All all;
            REQUIRE(all.ParseFromArray(both[0].data(), static_cast<int>(both[0].size())));
        } else {
            REQUIRE(both[0] == before);
        }
    }
}

}  // namespace merge::v1
