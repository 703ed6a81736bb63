// Frames that no client of weft sends, to a whole server: each costs its own connection or is
// answered with a reason, and an honest client is served as before.
#include "support/victim.h"

using namespace weft;
using namespace weft::test;
using core::FrameKind;

namespace {

// The server's reply to a request that does not cost its connection.
Status answer_to(RawPeer& raw, const Frame& request) {
    REQUIRE_FALSE(costs_the_connection(raw, request));
    raw.wait(20ms);
    const std::vector<Frame> answers = raw.take();
    REQUIRE(answers.size() == 1);
    const core::FrameHead head = head_of(answers[0]);
    REQUIRE(head.kind == FrameKind::reply);
    const rpc::ReplyOutcome outcome = rpc::unpack(head.aux).value();
    const ByteView text = ByteView(answers[0]).subspan(sizeof(rpc::ReplyHeader));
    return Status(outcome.code, std::string(as_text(text)))
        .with_effect(outcome.effect)
        .with_stage(outcome.stage);
}

}  // namespace

TEST_CASE("hostile frames: an unknown kind costs its connection") {
    Victim victim;
    RawPeer raw(victim.rig);
    for (unsigned kind = 0; kind < 256; ++kind) {
        if (kind >= 1 && kind < core::frame_kinds) continue;
        struct Unknown {
            core::FrameHead head;
            std::uint64_t more[4] = {};
        } frame;
        frame.head.kind = static_cast<FrameKind>(kind);
        check_refused(victim, raw, frame_of(frame));
    }
}

TEST_CASE("hostile frames: flags and extensions of a later version cost their connection") {
    Victim victim;
    RawPeer raw(victim.rig);
    for (const Frame& good : victim.good_frames()) {
        for (unsigned bit = 0; bit < 8; ++bit) {
            Frame frame = good;
            frame[1] = static_cast<std::byte>(1u << bit);
            const bool is_failure =
                head_of(good).kind == FrameKind::reply && head_of(good).aux != rpc::plain_ok;
            const bool is_known =
                (head_of(good).kind == FrameKind::request && 1u << bit == rpc::idempotent_flag) ||
                (is_failure && 1u << bit == rpc::pushback_flag);
            if (frame != good && !is_known) check_refused(victim, raw, frame);
        }
    }
    Frame extended = victim.request(echo::v1::EchoMethods::Now.id, "x");
    extended[2] = std::byte{8};
    check_refused(victim, raw, extended);
}

TEST_CASE("hostile frames: two calls under one number cost their connection") {
    Victim victim;
    RawPeer raw(victim.rig);
    using echo::v1::EchoMethods;
    const Frame held = victim.request(EchoMethods::Held.id, "held");
    REQUIRE_FALSE(costs_the_connection(raw, held));
    check_refused(victim, raw, held);
    // A client may reuse a slot once the earlier call has its reply.
    const Frame quick = victim.request(EchoMethods::Now.id, "x");
    for (int i = 0; i < 3; ++i) REQUIRE(answer_to(raw, quick).code() == Code::ok);
}

TEST_CASE("hostile frames: a head cut short at any byte costs its connection") {
    Victim victim;
    RawPeer raw(victim.rig);
    for (const Frame& good : victim.good_frames()) {
        for (std::size_t bytes = 1; bytes < sizeof(core::FrameHead); ++bytes) {
            check_refused(victim, raw, ByteView(good).first(bytes));
        }
    }
}

TEST_CASE("hostile frames: a frame longer than its message costs its connection") {
    Victim victim;
    RawPeer raw(victim.rig);
    for (const Frame& good : victim.good_frames()) {
        for (std::size_t bytes = sizeof(core::FrameHead); bytes < good.size(); ++bytes) {
            check_refused(victim, raw, ByteView(good).first(bytes));
        }
        for (const std::uint32_t lie :
             {std::uint32_t(good.size() + 1), 0x7fffffffu, 0x80000000u, 0xfffffff8u, 0xffffffffu}) {
            check_refused(victim, raw, with_bytes(good, lie));
        }
        for (std::uint32_t lie = 0; lie < sizeof(core::FrameHead); ++lie) {
            check_refused(victim, raw, with_bytes(good, lie));
        }
    }
}

TEST_CASE("hostile frames: a frame too short for its kind costs its connection") {
    Victim victim;
    RawPeer raw(victim.rig);
    for (const Frame& good : victim.good_frames()) {
        const FrameKind kind = head_of(good).kind;
        if (kind == FrameKind::ping || kind == FrameKind::pong) continue;
        const std::size_t header = kind == FrameKind::request      ? sizeof(rpc::RequestHeader)
                                   : kind == FrameKind::reply      ? sizeof(rpc::ReplyHeader)
                                   : kind == FrameKind::bulk_grant ? sizeof(bulk::GrantFrame)
                                                                   : good.size();
        for (std::size_t bytes = sizeof(core::FrameHead); bytes < header; ++bytes) {
            const auto cut = static_cast<std::ptrdiff_t>(bytes);
            check_refused(victim, raw,
                          with_bytes(Frame(good.begin(), good.begin() + cut),
                                     static_cast<std::uint32_t>(bytes)));
        }
    }
}

TEST_CASE("hostile frames: frames before a malformed one are processed, those after it are not") {
    Victim victim;
    RawPeer raw(victim.rig);
    const Frame good = victim.request(echo::v1::EchoMethods::Now.id, "first");
    Frame message = good;
    message.resize(core::padded(message.size()));
    const Frame lie = with_bytes(good, 0x01000000);
    message.insert(message.end(), lie.begin(), lie.end());
    message.resize(core::padded(message.size()));
    message.insert(message.end(), good.begin(), good.end());
    const auto handled = victim.service.handled;
    check_refused(victim, raw, message);
    // The first frame's call, and the call of check_refused().
    CHECK(victim.service.handled == handled + 2);
}

TEST_CASE("hostile frames: unexpected replies, revocations, closes and cancels are dropped") {
    const bool checked = GENERATE(true, false);
    Victim victim(checked);
    RawPeer raw(victim.rig);
    rpc::ReplyHeader reply;
    reply.head.aux = rpc::plain_ok;
    bulk::RevokeFrame revoke;
    bulk::CloseFrame close;
    rpc::CancelHeader cancel;
    const auto before = node_of(victim.server).client.counters().late_replies;
    std::uint64_t replies = 0;
    for (const std::uint32_t slot : {0u, 1u, 63u, 64u, 0x7fffffffu, 0xffffffffu}) {
        for (const std::uint32_t generation : {0u, 1u, 0xffffffffu}) {
            reply.call = cancel.call = {slot, generation};
            revoke.grant = close.grant = std::uint64_t{generation} << 32 | slot;
            revoke.transfer_slot = slot;
            revoke.transfer_generation = generation;
            CHECK_FALSE(costs_the_connection(raw, frame_of(reply, as_bytes("psst"))));
            ++replies;
            CHECK_FALSE(costs_the_connection(raw, frame_of(revoke)));
            CHECK_FALSE(costs_the_connection(raw, frame_of(close)));
            CHECK_FALSE(costs_the_connection(raw, frame_of(cancel)));
            victim.check_serves();
        }
    }
    CHECK(node_of(victim.server).client.counters().late_replies == before + replies);
    CHECK(node_of(victim.server).client.in_flight() == 0);
}

TEST_CASE("hostile frames: an unrequested grant costs its connection") {
    // The receiver would have to send a bulk_close for each.
    const bool checked = GENERATE(true, false);
    Victim victim(checked);
    RawPeer raw(victim.rig);
    bulk::GrantFrame grant;
    grant.grant = 9;
    grant.transfer_slot = 3;
    grant.transfer_generation = 1;
    check_refused(victim, raw, frame_of(grant));
}

TEST_CASE("hostile frames: an impossible outcome or grant code costs its connection") {
    Victim victim;
    RawPeer raw(victim.rig);
    for (const unsigned aux : {17u, 255u, 3u << 8, 15u << 8, 5u << 12, 15u << 12, 0xffffu}) {
        rpc::ReplyHeader reply;
        reply.head.aux = static_cast<std::uint16_t>(aux);
        check_refused(victim, raw, frame_of(reply));
    }
    for (const unsigned aux : {17u, 256u, 0xffffu}) {
        bulk::GrantFrame grant;
        grant.head.aux = static_cast<std::uint16_t>(aux);
        check_refused(victim, raw, frame_of(grant));
    }
}

TEST_CASE("hostile frames: an expired or unknown request is answered, not run") {
    Victim victim;
    RawPeer raw(victim.rig);
    Frame expired = victim.request(echo::v1::EchoMethods::Now.id, "late");
    std::memset(expired.data() + offsetof(rpc::RequestHeader, remaining_us), 0, 4);
    CHECK(answer_to(raw, expired).code() == Code::deadline_exceeded);
    const Status unknown = answer_to(raw, victim.request(MethodId("no.Such/Method"), "x"));
    CHECK(unknown.code() == Code::unimplemented);
    CHECK(unknown.effect() == Effect::none);
    const Status garbage =
        answer_to(raw, victim.request(echo::v1::EchoMethods::Now.id, as_bytes("\x0a\xff\xff\xff")));
    CHECK(garbage.code() == Code::invalid_argument);
    CHECK(garbage.effect() == Effect::none);
    CHECK(victim.service.handled == 0);
    victim.check_serves();
}

namespace {

// A server with large replies, and peers that send requests and never poll: replies stay in flight,
// then wait, then are sent by rendezvous, then are refused.
struct Unread {
    static constexpr MethodId ask{"test.Large/Ask"};
    static constexpr std::size_t all = 2u << 20;
    static constexpr std::uint32_t slots = rpc::initial_slots;
    struct Large : Service {
        void register_methods(MethodRegistrar& registrar) override {
            registrar.add(ask, [](Call call) { call.reply(std::vector<std::byte>(10'000)); });
        }
    } service;
    SimRig rig;
    Runtime& server = rig.add("server", {.waiting_bytes_max = all});
    std::size_t most = 0;  // The most bytes that waited at a time.

    Unread() { REQUIRE(server.add(service).ok()); }
    std::unique_ptr<RawPeer> peer() {
        auto peer = std::make_unique<RawPeer>(rig);
        peer->connect("server");
        return peer;
    }
    void send(RawPeer& peer, std::uint32_t number) {
        rpc::RequestHeader header;
        header.remaining_us = 50'000;
        header.method = ask.hash;
        header.call = {number % slots, 1 + number / slots};
        peer.send(frame_of(header, ByteView()));
        rig.run_for(10us);
        most = std::max(most, node_of(server).context.waiting_bytes());
    }
};

}  // namespace

TEST_CASE("hostile frames: a peer that reads no replies is disconnected before memory grows") {
    Unread unread;
    const auto peer = unread.peer();
    for (std::uint32_t i = 0; i < 20'000; ++i) unread.send(*peer, i);
    peer->wait();
    CHECK(peer->lost);
    // A quarter of the limit for all peers, and a short failure for each reply.
    CHECK(unread.most <= Unread::all / 4 + (2u << 20));
    const auto next = unread.peer();
    unread.send(*next, 0);
    next->wait();
    CHECK(next->take().size() == 1);
}

TEST_CASE("hostile frames: peers that read no replies stay within their common limit") {
    Unread unread;
    std::vector<std::unique_ptr<RawPeer>> greedy;
    for (int i = 0; i < 8; ++i) {
        greedy.push_back(unread.peer());
        for (std::uint32_t call = 0; call < 100; ++call) unread.send(*greedy.back(), call);
    }
    CHECK(unread.most > Unread::all * 3 / 4);
    CHECK(unread.most <= Unread::all * 5 / 4);
    // A peer without waiting replies is still served.
    const auto modest = unread.peer();
    unread.send(*modest, 0);
    modest->wait();
    CHECK(modest->take().size() == 1);
    CHECK_FALSE(modest->lost);
}

TEST_CASE("hostile frames: a bulk_open without the right to the memory is refused with a reason") {
    Victim victim(false);
    RawPeer raw(victim.rig);
    const RegionRef good = victim.region.ref();
    const auto refusal_of = [&](auto&& forge) {
        RegionRef ref = good;
        forge(ref);
        REQUIRE_FALSE(costs_the_connection(raw, victim.open(ref)));
        const std::vector<Frame> answers = raw.take();
        REQUIRE(answers.size() == 1);
        REQUIRE(head_of(answers[0]).kind == FrameKind::bulk_grant);
        CHECK(head_of(answers[0]).aux == static_cast<unsigned>(Code::permission_denied));
        return std::string(as_text(ByteView(answers[0]).subspan(sizeof(bulk::GrantFrame))));
    };
    CHECK(refusal_of([](RegionRef& ref) { ref.key ^= 1; }) ==
          "the reference has another key than the region: get a new one from its owner");
    CHECK(refusal_of([](RegionRef& ref) { ref.access = Access::write; }) ==
          "the region does not grant this access");
    CHECK(refusal_of([](RegionRef& ref) { ref.length += 1; }) ==
          "range 0+65537 is outside the region of 65536 bytes");
    CHECK(refusal_of([](RegionRef& ref) { ref.offset = 65537, ref.length = 0; }) ==
          "range 65537+0 is outside the region of 65536 bytes");
    CHECK(refusal_of([](RegionRef& ref) { ref.offset = ~std::uint64_t{0}; }) ==
          "the bytes are no reference of weft: impossible range");
    CHECK(
        refusal_of([](RegionRef& ref) { ++ref.generation; }).starts_with("the region was revoked"));
    CHECK(refusal_of([](RegionRef& ref) {
              ref.region = 0xffffffff;
          }).starts_with("the region was revoked"));
    CHECK(refusal_of([](RegionRef& ref) {
              ref.owner ^= 1;
          }).starts_with("the reference is to memory of another process"));
    CHECK(refusal_of([](RegionRef& ref) { ref.reserved32 = 1; }) ==
          "the bytes are no reference of weft: reserved bits set");
    CHECK(node_of(victim.server).bulk.regions->open_regions() == 1);
    victim.check_serves();
}

TEST_CASE("hostile frames: a bulk_open costs its connection when the transport checks accesses") {
    Victim victim(true);
    RawPeer raw(victim.rig);
    check_refused(victim, raw, victim.open(victim.region.ref()));
}

TEST_CASE("hostile frames: a peer that opens without end gets a bounded number of grants") {
    Victim victim(false);
    RawPeer raw(victim.rig), second(victim.rig);
    raw.connect("server");
    const Frame open = victim.open(victim.region.ref());
    std::size_t granted = 0, refused = 0;
    for (int i = 0; i < 70'000 / 64 && !raw.lost; ++i) {
        for (int k = 0; k < 64; ++k) raw.send(open);
        raw.wait(20us);
        for (const Frame& answer : raw.take()) ++(head_of(answer).aux == 0 ? granted : refused);
    }
    CHECK(granted == 16384);
    CHECK(refused > 0);
    // Another peer still gets a grant.
    second.connect("server");
    REQUIRE(second.send(open));
    second.wait();
    const std::vector<Frame> answers = second.take();
    REQUIRE(answers.size() == 1);
    CHECK(head_of(answers[0]).aux == 0);
    victim.check_serves();
}

TEST_CASE("hostile frames: a peer that keeps a revoked grant is cut off and the memory is freed") {
    Victim victim(false);
    RawPeer keeper(victim.rig), honest(victim.rig);
    const auto open_from = [&](RawPeer& raw) {
        raw.connect("server");
        REQUIRE(raw.send(victim.open(victim.region.ref())));
        raw.wait();
        const Frame answer = raw.take().at(0);
        REQUIRE(head_of(answer).aux == 0);
        return base::load<bulk::GrantFrame>(answer.data()).grant;
    };
    open_from(keeper);
    bulk::CloseFrame close;
    close.grant = open_from(honest);
    bool fenced = false;
    victim.region.close([&] { fenced = true; });
    honest.wait();
    REQUIRE(honest.send(frame_of(close)));
    keeper.wait(2s);
    CHECK_FALSE(fenced);
    const std::vector<Frame> told = keeper.take();
    REQUIRE_FALSE(told.empty());
    CHECK(head_of(told[0]).kind == FrameKind::bulk_revoke);
    // The peer is alive, as its pongs show, and does not close the grant.
    for (int i = 0; i < 100 && !keeper.lost; ++i) {
        core::FrameHead pong{FrameKind::pong, 0, 0, sizeof(core::FrameHead)};
        keeper.send({reinterpret_cast<const std::byte*>(&pong), sizeof pong});
        keeper.wait(100ms);
    }
    CHECK(keeper.lost);
    CHECK(fenced);
    honest.wait();
    CHECK_FALSE(honest.lost);
    victim.check_serves();
}
