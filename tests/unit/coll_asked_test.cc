// What a member answers to questions that parents, and those who take their place, ask it.
#include <optional>

#include "support/victim.h"

using namespace weft;
using namespace weft::test;

namespace coll_asked {

// The answer to the one question that was sent.
coll::Answer answer_to(RawPeer& raw, const Frame& question) {
    REQUIRE_FALSE(costs_the_connection(raw, question));
    raw.wait(20ms);
    const std::vector<Frame> answers = raw.take();
    REQUIRE(answers.size() == 1);
    const rpc::Outcome outcome = rpc::unpack(head_of(answers[0]).aux).value();
    INFO(as_text(ByteView(answers[0]).subspan(sizeof(rpc::ReplyHeader))));
    REQUIRE(outcome.code == Code::ok);
    return coll::decode_answer(ByteView(answers[0]).subspan(sizeof(rpc::ReplyHeader))).value();
}

TEST_CASE("a member tells of itself alone, with others below it and without") {
    Victim victim;
    RawPeer raw(victim.rig);
    for (const std::uint32_t last : {1u, 2u}) {
        for (const bool merges : {false, true}) {
            INFO("positions 0 to " << last - 1 << (merges ? ", merged" : ""));
            coll::ForwardHeader header = victim.forward_header();
            header.last = last;
            header.operation = merges ? static_cast<std::uint8_t>(Reduction::Operation::method) : 0;
            const std::string body = request_of("x").SerializeAsString();
            const coll::Answer all = answer_to(raw, victim.forward(header, as_bytes(body)));
            CHECK(all.kind == coll::Answer::Kind::complete);
            header.asking = coll::Asking::rest;
            header.flags = 3 << coll::ForwardHeader::priority_shift;  // It is the same collective.
            const coll::Answer again = answer_to(raw, victim.forward(header));
            CHECK(again.kind == coll::Answer::Kind::complete);
            CHECK(again.ok == all.ok);
            CHECK(again.value == all.value);
            if (!merges) continue;  // Alone are asked those whose replies are in a value.
            header.asking = coll::Asking::alone;
            const coll::Answer own = answer_to(raw, victim.forward(header));
            CHECK(own.kind == coll::Answer::Kind::complete);
            CHECK(own.ok == std::vector<coll::Interval>{{0, 1}});
            CHECK(own.has_value);
            CHECK_FALSE(own.value.empty());
        }
    }
    CHECK(victim.service.handled == 4);
    victim.check_serves();
}

TEST_CASE("a cancel reaches one who has said at once that there is more to come") {
    Victim victim;
    RawPeer eager(victim.rig, "eager");
    const GroupView view =
        GroupView::make("mixed", 1, {{0, {"sim://eager"}}, {1, {"sim://server"}}}).value();
    const Group group = victim.client.group(view).value();
    std::optional<GroupOutcome> outcome;
    const CollectiveId id =
        group.collective(echo::v1::EchoMethods::Everywhere.id, BodyWriter::of({}), {.timeout = 60s},
                         [&](GroupOutcome all) { outcome = std::move(all); });
    const auto came = [&] {
        for (int i = 0; i < 3; ++i) eager.wait();
        return eager.take();
    };
    const auto header_of = [](const Frame& frame) {
        const ByteView body = ByteView(frame).subspan(sizeof(rpc::RequestHeader));
        return coll::decode_forward(body).value().header;
    };
    const auto asked = [&](const Frame& frame) { return header_of(frame).asking; };
    const auto answer = [&](const Frame& to, coll::Answer with) {
        rpc::ReplyHeader reply;
        reply.head.aux = rpc::plain_ok;
        reply.call = base::load<rpc::RequestHeader>(to.data()).call;
        REQUIRE(eager.send(frame_of(reply, coll::encode_answer(std::move(with), 1 << 10))));
    };
    // What time it is there, first.
    const std::vector<Frame> question = came();
    REQUIRE(question.size() == 1);
    CHECK(asked(question[0]) == coll::Asking::clock);
    coll::Answer clock = coll::Outcomes::told_nothing(coll::Answer::Kind::late);
    clock.clock = coll::Ticks{1} << 40;
    answer(question[0], clock);
    const std::vector<Frame> first = came();
    REQUIRE(first.size() == 1);
    CHECK(asked(first[0]) == coll::Asking::all);
    CHECK(header_of(first[0]).began < clock.clock);
    CHECK(header_of(first[0]).began > clock.clock - coll::Ticks{Duration(1s).count()});
    CHECK(header_of(first[0]).lasts() == 60s);
    answer(first[0], coll::Outcomes::told_nothing(coll::Answer::Kind::partial));
    CHECK(came().empty());  // Not asked on yet.
    group.cancel(id);
    const std::vector<Frame> last = came();
    REQUIRE(last.size() == 1);
    CHECK(asked(last[0]) == coll::Asking::stop);
    REQUIRE(outcome.has_value());
    CHECK(outcome->status.code() == Code::cancelled);
}

}  // namespace coll_asked
