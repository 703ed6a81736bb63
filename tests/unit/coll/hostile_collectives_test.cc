// Collectives that no client of weft begins.
#include "support/victim.h"

using namespace weft;
using namespace weft::test;

namespace hostile_collectives {

// The server's reply to a request that does not cost its connection.
Status reply_to(RawPeer& raw, const Frame& request) {
    REQUIRE_FALSE(costs_the_connection(raw, request));
    raw.wait(20ms);
    const std::vector<Frame> answers = raw.take();
    REQUIRE(answers.size() == 1);
    const core::FrameHead head = head_of(answers[0]);
    REQUIRE(head.kind == core::FrameKind::reply);
    const rpc::ReplyOutcome outcome = rpc::unpack(head.aux).value();
    const ByteView text = ByteView(answers[0]).subspan(sizeof(rpc::ReplyHeader));
    return fail(outcome.code, std::string(as_text(text)))
        .with_effect(outcome.effect)
        .with_stage(outcome.stage);
}

TEST_CASE("hostile frames: a collective with impossible counts or ranks is refused, not run") {
    Victim victim;
    RawPeer raw(victim.rig);
    const auto refusal_of = [&](auto&& forge) {
        coll::ForwardHeader header = victim.forward_header();
        forge(header);
        const Status status = reply_to(raw, victim.forward(header));
        INFO(status.to_string());
        CHECK(status.effect() == Effect::none);
        CHECK_FALSE(status.text().empty());
        return status.code();
    };
    const auto huge = ~std::uint32_t{0};
    CHECK(refusal_of([](auto& h) { h.first = 1; }) == Code::failed_precondition);  // Not rank 0.
    CHECK(refusal_of([](auto& h) { h.last = 3; }) == Code::invalid_argument);
    CHECK(refusal_of([](auto& h) { h.last = 0; }) == Code::invalid_argument);
    CHECK(refusal_of([&](auto& h) { h.last = huge; }) == Code::invalid_argument);
    CHECK(refusal_of([&](auto& h) { h.root = huge - 1; }) == Code::invalid_argument);
    CHECK(refusal_of([](auto& h) { h.root = 2; }) == Code::invalid_argument);
    CHECK(refusal_of([&](auto& h) { h.first = huge - 1, h.last = huge; }) ==
          Code::invalid_argument);
    const auto with = [&](coll::Tree tree) { return refusal_of([&](auto& h) { h.tree = tree; }); };
    for (const auto shape : {coll::Shape::k_ary, coll::Shape::k_nomial, coll::Shape::greedy}) {
        for (const std::uint8_t fanout : {0, 1, 65, 255}) {
            CHECK(with({shape, fanout, 20}) == Code::invalid_argument);
        }
    }
    CHECK(with({coll::Shape::greedy, 16, 0}) == Code::invalid_argument);
    CHECK(with({coll::Shape::greedy, 16, 257}) == Code::invalid_argument);
    CHECK(with({coll::Shape::greedy, 16, 65535}) == Code::invalid_argument);
    CHECK(with({static_cast<coll::Shape>(4), 16, 20}) == Code::invalid_argument);
    CHECK(with({static_cast<coll::Shape>(255), 16, 20}) == Code::invalid_argument);
    CHECK(refusal_of([&](auto& h) { h.parent = huge; }) == Code::invalid_argument);
    CHECK(refusal_of([](auto& h) { h.key.sequence = 0, h.unacknowledged = 1; }) ==
          Code::invalid_argument);
    for (const std::uint8_t number : {7, 100, 254}) {
        CHECK(refusal_of([&](auto& h) { h.operation = number; }) == Code::invalid_argument);
        CHECK(refusal_of([&](auto& h) { h.number = number; }) == Code::invalid_argument);
        CHECK(refusal_of([&](auto& h) { h.kind = static_cast<coll::RequestKind>(number); }) ==
              Code::invalid_argument);
    }
    for (const std::uint8_t flags : {64, 128, 255}) {
        CHECK(refusal_of([&](auto& h) { h.flags = flags; }) == Code::invalid_argument);
    }
    CHECK(refusal_of([](auto& h) { h.operation = 4, h.number = 2; }) == Code::invalid_argument);
    // A body for each rank is announced, and there is none.
    CHECK(refusal_of([](auto& h) { h.flags = coll::ForwardHeader::scatters; }) ==
          Code::invalid_argument);
    for (std::size_t bytes = 0; bytes < sizeof(coll::ForwardHeader); ++bytes) {
        const Status cut = reply_to(raw, victim.request(coll::forward_method, Frame(bytes)));
        CHECK(cut.code() == Code::invalid_argument);
    }
    CHECK(victim.service.handled == 0);
    CHECK(victim.other_service.handled == 0);
    victim.check_serves();
}

TEST_CASE("hostile frames: unreachable members that a request names fail only themselves") {
    Victim victim;
    RawPeer raw(victim.rig);
    const std::string far(60'000, 'x');
    for (const std::string& uri : {std::string("nonsense"), std::string("sim://"), far,
                                   std::string("sim://unserved"), std::string("\0\xff", 2)}) {
        const Member self{0, {"sim://server"}, 0, false}, other{1, {uri}, 0, false};
        const std::vector<std::byte> named = coll::encode_members({&self, &other});
        const coll::ForwardHeader header = victim.forward_header();
        raw.take();
        REQUIRE_FALSE(costs_the_connection(raw, victim.forward({header, {}, named, {}})));
        raw.wait(40ms);
        const std::vector<Frame> answers = raw.take();
        REQUIRE(answers.size() == 1);
        const auto answer =
            coll::decode_subtree_reply(ByteView(answers[0]).subspan(sizeof(rpc::ReplyHeader)));
        REQUIRE(answer.ok());
        for (const coll::Outcome& one : answer->outcomes) {
            if (one.position == 1) CHECK_FALSE(one.status.ok());
        }
        victim.check_serves();
    }
    // The request names another member than the receiver.
    const Member stranger{7, {"sim://server"}, 0, false};
    coll::ForwardHeader header = victim.forward_header();
    header.last = 1;
    const Status status =
        reply_to(raw, victim.forward({header, {}, coll::encode_members({&stranger}), {}}));
    CHECK(status.code() == Code::failed_precondition);
    CHECK(status.effect() == Effect::none);
}

TEST_CASE("hostile frames: a collective for another view is answered with the server's view") {
    Victim victim;
    RawPeer raw(victim.rig);
    for (const bool is_member : {true, false}) {
        coll::ForwardHeader header = victim.forward_header();
        header.view ^= 1;
        if (!is_member) header.group ^= 1;
        REQUIRE_FALSE(costs_the_connection(raw, victim.forward(header)));
        raw.wait(20ms);
        const std::vector<Frame> answers = raw.take();
        REQUIRE(answers.size() == 1);
        const coll::SubtreeReply answer =
            coll::decode_subtree_reply(ByteView(answers[0]).subspan(sizeof(rpc::ReplyHeader)))
                .value();
        CHECK(answer.kind == coll::SubtreeReply::Kind::stale);
        CHECK(answer.epoch == (is_member ? 1 : 0));
    }
    CHECK(victim.service.handled == 0);
    victim.check_serves();
}

TEST_CASE("hostile frames: a collective of a collective is refused, however deep it is nested") {
    Victim victim;
    RawPeer raw(victim.rig);
    coll::ForwardHeader header = victim.forward_header();
    header.method = coll::forward_method.hash;
    header.last = 1;
    Frame body;
    while (body.size() + sizeof header < 60'000) {
        const coll::ForwardParts parts{header, {}, {}, body};
        Frame outer(parts.bytes());
        coll::encode_forward(parts, outer);
        body = std::move(outer);
    }
    const Status status = reply_to(raw, victim.request(coll::forward_method, body));
    CHECK(status.code() == Code::invalid_argument);
    CHECK(status.effect() == Effect::none);
    victim.check_serves();
}

TEST_CASE("hostile frames: requests about unknown collectives and false counts are refused") {
    Victim victim;
    RawPeer raw(victim.rig);
    const auto huge = ~std::uint32_t{0};
    // Requests about a collective that is unknown here.
    for (const auto kind :
         {coll::RequestKind::resume, coll::RequestKind::self_only, coll::RequestKind::cancel}) {
        coll::ForwardHeader header = victim.forward_header();
        header.kind = kind;
        CHECK(reply_to(raw, victim.forward(header)).code() == Code::aborted);
    }
    // Ranges and named members that are more or fewer than the header says.
    const auto refused = [&](const std::vector<RankSet::Range>& ranges, const Frame& named) {
        const coll::ForwardHeader header = victim.forward_header();
        const Status status = reply_to(raw, victim.forward({header, ranges, named, {}}));
        CHECK(status.effect() == Effect::none);
        return status.code() == Code::invalid_argument;
    };
    CHECK(refused({{1, 0}}, {}));
    CHECK(refused({{0, 0}, {1, 1}}, {}));
    CHECK(refused({{0, 0}}, {}));  // The subtree is larger.
    CHECK(refused({{5, 9}}, {}));
    CHECK(refused({}, Frame(1)));
    CHECK(refused({}, Frame(26)));  // Without addresses.
    CHECK(refused({}, Frame(26, std::byte{255})));
    for (std::uint32_t lie : {1u, 2u, 0x20000000u, huge}) {
        Frame frame = victim.forward(victim.forward_header());
        const std::size_t body = sizeof(rpc::RequestHeader);
        Frame ranges = frame, named = frame;
        base::store(ranges.data() + body + offsetof(coll::ForwardHeader, ranges), lie);
        base::store(named.data() + body + offsetof(coll::ForwardHeader, named), lie);
        CHECK(reply_to(raw, ranges).code() == Code::invalid_argument);
        CHECK(reply_to(raw, named).code() == Code::invalid_argument);
    }
    CHECK(victim.service.handled == 0);
    victim.check_serves();
}

}  // namespace hostile_collectives
