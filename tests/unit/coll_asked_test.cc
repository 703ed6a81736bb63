// What a member answers to questions that parents, and those who take their place, ask it.
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

}  // namespace coll_asked
