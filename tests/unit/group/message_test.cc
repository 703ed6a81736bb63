// Views as bytes between members: encoding, decoding and malformed bytes.
#include <weft/group.pb.h>

#include "base/random.h"
#include "support/catch.h"
#include "support/random_view.h"
#include "support/seed.h"

using namespace weft;
using Catch::Matchers::Contains;

namespace {

std::string refusal_of(std::string_view bytes) {
    const Result<GroupView> view = GroupView::decode(bytes);
    REQUIRE(!view.ok());
    CHECK(view.status().code() == Code::invalid_argument);
    return std::string(view.status().text());
}

GroupFile good_message() {
    GroupFile message;
    message.set_name("store");
    message.set_epoch(7);
    GroupFile::Member& member = *message.add_members();
    member.set_rank(3);
    member.add_uris("sm://a");
    return message;
}

std::string refusal_with(const std::function<void(GroupFile&)>& change) {
    GroupFile message = good_message();
    change(message);
    return refusal_of(message.SerializeAsString());
}

}  // namespace

TEST_CASE("a view is decoded from its bytes and its file as it was encoded") {
    for (std::uint64_t run = 0; run < 2000; ++run) {
        const std::uint64_t seed = test::seed_of(run);
        INFO("TEST_SEED=" << seed);
        base::SeededRandom random(seed);
        const GroupView view = test::random_view(random);
        const Result<GroupView> decoded = GroupView::decode(view.encode());
        INFO(view.to_json() << decoded.status().to_string());
        REQUIRE(decoded.ok());
        REQUIRE(test::are_equal(*decoded, view));
        const Result<GroupView> parsed = GroupView::parse(view.to_json());
        INFO(parsed.status().to_string());
        REQUIRE(parsed.ok());
        REQUIRE(test::are_equal(*parsed, view));
    }
}

TEST_CASE("views are equal when their digests are") {
    for (std::uint64_t run = 0; run < 5000; ++run) {
        const std::uint64_t seed = test::seed_of(run);
        INFO("TEST_SEED=" << seed);
        base::SeededRandom random(seed);
        const GroupView view = test::random_view(random);
        const GroupView other = test::mutated(view, random);
        REQUIRE(test::are_equal(view, other) == (view.digest() == other.digest()));
        REQUIRE(GroupView::decode(view.encode()).value().digest() == view.digest());
    }
}

TEST_CASE("bytes that encode no view are refused with the reason") {
    REQUIRE(GroupView::decode(good_message().SerializeAsString()).ok());
    CHECK_THAT(refusal_of(""), Contains("no epoch"));
    CHECK_THAT(refusal_with([](auto& view) { view.clear_epoch(); }), Contains("no epoch"));
    CHECK_THAT(refusal_with([](auto& view) { view.clear_name(); }), Contains("no name"));
    CHECK_THAT(refusal_with([](auto& view) { view.clear_members(); }), Contains("no members"));
    CHECK_THAT(refusal_with([](auto& view) { view.mutable_members(0)->clear_rank(); }),
               Contains("without a rank"));
    CHECK_THAT(refusal_with([](auto& view) { view.mutable_members(0)->clear_uris(); }),
               Contains("no address"));
    CHECK_THAT(refusal_with([](auto& view) { *view.add_members() = view.members(0); }),
               Contains("rank 3 is there twice"));
    CHECK_THAT(refusal_with([](auto& view) {
                   auto& other = *view.add_members();
                   other = view.members(0);
                   other.set_rank(9);
               }),
               Contains("ranks 3 and 9 have one address"));
    CHECK_THAT(refusal_with([](auto& view) { view.set_name(std::string(257, 'x')); }),
               Contains("too long a name"));
    CHECK_THAT(refusal_with([](auto& view) {
                   view.mutable_members(0)->add_uris("sm://" + std::string(400, 'x'));
               }),
               Contains("too long an address"));
    CHECK_THAT(refusal_with([](auto& view) {
                   for (int i = 0; i < 16; ++i) view.mutable_members(0)->add_uris("sm://a");
               }),
               Contains("too many addresses"));
}

TEST_CASE("bytes with unknown fields are refused") {
    const std::string good = good_message().SerializeAsString();
    // Field 4, a varint.
    CHECK_THAT(refusal_of(good + "\x20\x01"), Contains("an unknown field"));
    // Field 1 as 32 bits.
    CHECK_THAT(refusal_of(good + "\x0d\x01\x01\x01\x01"), Contains("unknown"));
    CHECK_THAT(refusal_of(good + std::string("\x1a\x02\x28\x01", 4)),
               Contains("unknown field of a member"));
    CHECK_THAT(refusal_of(good + std::string("\x1a\x04\x08\x01\x20\x02", 6)),
               Contains("draining and is not"));
    CHECK_THAT(refusal_of(good + "\x20"), Contains("unknown"));
    CHECK_THAT(refusal_of(good + "\x80"), Contains("cut off"));
    CHECK_THAT(refusal_of(good + std::string("\x1a\x01\x80", 3)), Contains("member is cut off"));
    CHECK_THAT(refusal_of(good + std::string("\x1a\x01\x08", 3)), Contains("member is cut off"));
    CHECK_THAT(refusal_of(good + std::string("\x1a\x02\x12\x05", 4)),
               Contains("member is cut off"));
    CHECK_THAT(refusal_of(good + std::string("\x1a\x06\x08\xff\xff\xff\xff\x7f", 8)),
               Contains("more than 32 bits"));
    CHECK_THAT(refusal_of(good + std::string("\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 11)),
               Contains("cut off"));  // A number of more than 64 bits.
}

TEST_CASE("truncated or changed bytes are decoded or refused") {
    for (std::uint64_t run = 0; run < 300; ++run) {
        const std::uint64_t seed = test::seed_of(run);
        INFO("TEST_SEED=" << seed);
        base::SeededRandom random(seed);
        const std::string good = test::random_view(random).encode();
        for (std::size_t bytes = 0; bytes < good.size(); ++bytes) {
            // Cut between two members, it is a view of the first ones.
            const Result<GroupView> cut = GroupView::decode(good.substr(0, bytes));
            REQUIRE((cut.ok() || cut.status().code() == Code::invalid_argument));
        }
        for (int change = 0; change < 200; ++change) {
            std::string bad = good;
            bad[random.next() % bad.size()] = static_cast<char>(random.next());
            const Result<GroupView> view = GroupView::decode(bad);
            if (view) REQUIRE(test::are_equal(GroupView::decode(view->encode()).value(), *view));
        }
    }
}

TEST_CASE("bytes with too many members are refused at the first one beyond the limit") {
    std::string many = good_message().SerializeAsString();
    const std::string member("\x1a\x0a\x08\x01\x12\x06sm://a", 12);
    many.reserve(many.size() + member.size() * GroupView::members_max);
    for (std::size_t i = 1; i < GroupView::members_max; ++i) many += member;
    CHECK_THAT(refusal_of(many), Contains("is there twice"));
    CHECK_THAT(refusal_of(many + member), Contains("too many members"));
}

TEST_CASE("bytes beyond the size limit of a view are refused unread") {
    CHECK_THAT(refusal_of(std::string((std::size_t{320} << 20) + 1, '\0')), Contains("too large"));
}
