// The replies of a member to requests of its parent and of ranks that replace the parent.
#include <optional>

#include "support/victim.h"

using namespace weft;
using namespace weft::test;

namespace coll_requests {

// The reply to the request `question`.
coll::SubtreeReply reply_to(RawPeer& raw, const Frame& question) {
    REQUIRE_FALSE(costs_the_connection(raw, question));
    raw.wait(20ms);
    const std::vector<Frame> answers = raw.take();
    REQUIRE(answers.size() == 1);
    const rpc::ReplyOutcome outcome = rpc::unpack(head_of(answers[0]).aux).value();
    INFO(as_text(ByteView(answers[0]).subspan(sizeof(rpc::ReplyHeader))));
    REQUIRE(outcome.code == Code::ok);
    return coll::decode_subtree_reply(ByteView(answers[0]).subspan(sizeof(rpc::ReplyHeader)))
        .value();
}

TEST_CASE("a member replies to self_only with its own outcome, with and without a subtree") {
    Victim victim;
    RawPeer raw(victim.rig);
    for (const std::uint32_t last : {1u, 2u}) {
        for (const bool merges : {false, true}) {
            INFO("positions 0 to " << last - 1 << (merges ? ", merged" : ""));
            coll::ForwardHeader header = victim.forward_header();
            header.last = last;
            header.operation = merges ? static_cast<std::uint8_t>(Reduction::Operation::method) : 0;
            const std::string body = request_of("x").SerializeAsString();
            const coll::SubtreeReply all = reply_to(raw, victim.forward(header, as_bytes(body)));
            CHECK(all.kind == coll::SubtreeReply::Kind::complete);
            header.kind = coll::RequestKind::resume;
            header.flags = 3 << coll::ForwardHeader::priority_shift;  // Still the same collective.
            const coll::SubtreeReply again = reply_to(raw, victim.forward(header));
            CHECK(again.kind == coll::SubtreeReply::Kind::complete);
            CHECK(again.ok == all.ok);
            CHECK(again.value == all.value);
            if (!merges) continue;  // Only ranks in a merged value are requested alone.
            header.kind = coll::RequestKind::self_only;
            const coll::SubtreeReply own = reply_to(raw, victim.forward(header));
            CHECK(own.kind == coll::SubtreeReply::Kind::complete);
            CHECK(own.ok == std::vector<coll::Interval>{{0, 1}});
            CHECK(own.has_value);
            CHECK_FALSE(own.value.empty());
        }
    }
    CHECK(victim.service.handled == 4);
    victim.check_serves();
}

TEST_CASE("a cancel reaches a child that has sent a partial reply at once") {
    Victim victim;
    RawPeer eager(victim.rig, "eager");
    const GroupView view =
        GroupView::make("mixed", 1, {{0, {"sim://eager"}}, {1, {"sim://server"}}}).value();
    const Group group = victim.client.group(view).value();
    std::optional<GroupOutcome> outcome;
    const CollectiveId id =
        group.collective(echo::v1::EchoMethods::Everywhere.id, BodyWriter::of({}), {.timeout = 60s},
                         [&](GroupOutcome all) { outcome = std::move(all); });
    const auto receive = [&] {
        for (int i = 0; i < 3; ++i) eager.wait();
        return eager.take();
    };
    const auto header_of = [](const Frame& frame) {
        const ByteView body = ByteView(frame).subspan(sizeof(rpc::RequestHeader));
        return coll::decode_forward(body).value().header;
    };
    const auto kind_of = [&](const Frame& frame) { return header_of(frame).kind; };
    const auto answer = [&](const Frame& to, coll::SubtreeReply with) {
        rpc::ReplyHeader reply;
        reply.head.aux = rpc::plain_ok;
        reply.call = base::load<rpc::RequestHeader>(to.data()).call;
        REQUIRE(eager.send(frame_of(reply, coll::encode_subtree_reply(std::move(with), 1 << 10))));
    };
    // First the request for its clock.
    const std::vector<Frame> question = receive();
    REQUIRE(question.size() == 1);
    CHECK(kind_of(question[0]) == coll::RequestKind::clock);
    coll::SubtreeReply clock = coll::Outcomes::empty_snapshot(coll::SubtreeReply::Kind::expired);
    clock.clock = coll::Ticks{1} << 40;
    answer(question[0], clock);
    const std::vector<Frame> first = receive();
    REQUIRE(first.size() == 1);
    CHECK(kind_of(first[0]) == coll::RequestKind::all);
    CHECK(header_of(first[0]).began < clock.clock);
    CHECK(header_of(first[0]).began > clock.clock - coll::Ticks{Duration(1s).count()});
    CHECK(header_of(first[0]).time_limit() == 60s);
    answer(first[0], coll::Outcomes::empty_snapshot(coll::SubtreeReply::Kind::partial));
    CHECK(receive().empty());  // No further request yet.
    group.cancel(id);
    const std::vector<Frame> last = receive();
    REQUIRE(last.size() == 1);
    CHECK(kind_of(last[0]) == coll::RequestKind::cancel);
    REQUIRE(outcome.has_value());
    CHECK(outcome->status.code() == Code::cancelled);
}

}  // namespace coll_requests
