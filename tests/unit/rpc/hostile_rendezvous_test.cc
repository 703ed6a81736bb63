// Rendezvous bodies that no client of weft sends: each is refused or costs its connection, and an
// honest client is served as before.
#include "support/victim.h"

using namespace weft;
using namespace weft::test;
using core::FrameKind;

TEST_CASE("hostile rendezvous: a malformed rendezvous body costs its connection") {
    Victim victim;
    RawPeer raw(victim.rig);
    const RegionRef ref = Victim::rendezvous_ref(raw.incarnation);
    for (const Frame& good : {victim.rendezvous_request(ref), victim.rendezvous_reply(ref)}) {
        for (std::size_t bytes = 16; bytes < good.size(); bytes += 8) {
            Frame cut(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(bytes));
            check_refused(victim, raw, with_bytes(cut, static_cast<std::uint32_t>(bytes)));
        }
        Frame longer = good;
        longer.resize(good.size() + 8);
        check_refused(victim, raw, with_bytes(longer, static_cast<std::uint32_t>(longer.size())));
        Frame marked = good;
        marked[1] = std::byte{3};
        check_refused(victim, raw, marked);
    }
    Frame failed = victim.rendezvous_reply(ref);
    failed[2] = std::byte{5};
    check_refused(victim, raw, failed);
}

TEST_CASE("hostile rendezvous: a request is refused with no effect when its body can't be read") {
    const bool checked = GENERATE(true, false);
    Victim victim(checked);
    RawPeer raw(victim.rig);
    raw.connect("server");
    const auto refusal = [&](const RegionRef& ref, std::uint64_t grant = 1) {
        const Status status = [&] {
            REQUIRE_FALSE(costs_the_connection(raw, victim.rendezvous_request(ref, grant)));
            raw.wait(20ms);
            std::vector<Frame> answers = raw.take();
            // The server closes the grant, whatever the outcome.
            const auto closes = std::erase_if(
                answers, [](const Frame& f) { return head_of(f).kind == FrameKind::bulk_close; });
            CHECK(closes == (grant ? 1 : 0));
            REQUIRE(answers.size() == 1);
            const rpc::ReplyOutcome outcome = rpc::unpack(head_of(answers[0]).aux).value();
            return fail(outcome.code, "").with_effect(outcome.effect);
        }();
        CHECK(status.effect() == Effect::none);
        victim.check_serves();
        return status.code();
    };
    const RegionRef good = Victim::rendezvous_ref(raw.incarnation);
    CHECK(refusal(good) == Code::permission_denied);  // The peer exposes nothing.
    RegionRef forged = good;
    forged.owner ^= 1;
    CHECK(refusal(forged) == Code::permission_denied);
    forged = victim.region.ref();  // The server's own memory.
    CHECK(refusal(forged) == Code::permission_denied);
    forged = good;
    forged.access = Access::write;
    CHECK(refusal(forged) == Code::permission_denied);
    forged = good;
    forged.reserved16 = 1;
    CHECK(refusal(forged) == Code::permission_denied);
    forged = good;
    forged.length = std::uint64_t{1} << 62;
    CHECK(refusal(forged) == Code::resource_exhausted);
    CHECK(refusal(good, 0) == Code::unimplemented);
    forged = good;
    forged.length = 0;
    CHECK(refusal(forged) == Code::invalid_argument);
    victim.rig.run_for(20s);
    CHECK(node_of(victim.server).bulk.rendezvous.bytes_held() == 0);
    CHECK(victim.service.handled == 8);  // The calls of the honest client.
}

TEST_CASE("hostile rendezvous: a peer that sends bodies and reads nothing is disconnected") {
    Victim victim;
    RawPeer raw(victim.rig);
    raw.connect("server");
    const Frame reply = victim.rendezvous_reply(Victim::rendezvous_ref(raw.incarnation), {9, 9});
    const auto malformed = [&] {
        return node_of(victim.server).context.counters().malformed_peers;
    };
    for (int i = 0; i < 200'000 && malformed() == 0; ++i) {
        if (!raw.send(reply)) victim.rig.run_for(50us);  // The server reads; this peer never does.
    }
    CHECK(malformed() == 1);
    victim.check_serves();
}

TEST_CASE("hostile rendezvous: large bodies that never arrive hold one peer's share at most") {
    Victim victim;
    RawPeer raw(victim.rig);
    raw.connect("server");
    auto& rendezvous = node_of(victim.server).bulk.rendezvous;
    for (std::uint32_t i = 0; i < 6000; ++i) {
        const RegionRef ref = Victim::rendezvous_ref(raw.incarnation, rendezvous.body_bytes_max());
        if (!raw.send(victim.rendezvous_request(ref, 1, {i, 1}))) raw.wait();
        CHECK(rendezvous.bytes_held() <= 4 * rendezvous.body_bytes_max());
    }
    raw.wait(1s);
    victim.check_serves();
}
