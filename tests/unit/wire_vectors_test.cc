// The documented bytes of docs/wire-format.md, encoded and decoded.
#include <vector>

#include <weft/method.h>
#include <weft/region.h>

#include "bulk/wire.h"
#include "coll/wire.h"
#include "core/frame.h"
#include "na/hello.h"
#include "rpc/header.h"
#include "rpc/inline_bulk.h"
#include "rpc/session_wire.h"
#include "support/vectors.h"

using namespace weft;
using namespace weft::test;

namespace {

template <class T>
std::vector<std::byte> bytes_of(const T& value) {
    std::vector<std::byte> bytes(sizeof value);
    base::store(bytes.data(), value);
    return bytes;
}

}  // namespace

TEST_CASE("the bytes of a hello are the documented ones") {
    na::Hello hello{{0x1122334455667788, 0x99aabbccddeeff00}, 66560, 65536, "sm://store"};
    hello.wanted = 2;
    hello.features = na::feature::contexts;
    hello.contexts = 4;
    hello.context = 3;
    std::vector<std::byte> bytes(na::hello_bytes_max);
    bytes.resize(na::encode(hello, bytes));
    check_bytes("hello", bytes);
    const na::Hello back = na::decode_hello(vector_of("hello")).value();
    CHECK(back.incarnation == hello.incarnation);
    CHECK(back.message_bytes_max == 66560);
    CHECK(back.eager_bytes_max == 65536);
    CHECK(back.uri == "sm://store");
    CHECK(back.wanted == 2);
    CHECK(back.features == na::feature::contexts);
    CHECK(back.contexts == 4);
    CHECK(back.context == 3);
}

TEST_CASE("the bytes of calls are the documented ones") {
    rpc::RequestHeader request;
    request.head.bytes = 37;
    request.call = {7, 3};
    request.remaining_us = 500'000;
    request.method = method_hash("demo.Greeter/Greet");
    check_bytes("request", bytes_of(request));
    const auto read = base::load<rpc::RequestHeader>(vector_of("request").data());
    CHECK(rpc::is_request(read.head));
    CHECK(read.remaining_us == 500'000);

    rpc::ReplyHeader reply;
    reply.head.bytes = 27;
    reply.head.aux = rpc::pack(Code::not_found, Effect::applied, Stage::executing);
    reply.call = {7, 3};
    check_bytes("reply", bytes_of(reply));
    const auto outcome = rpc::unpack(base::load<core::FrameHead>(vector_of("reply").data()).aux);
    REQUIRE(outcome);
    CHECK(outcome->code == Code::not_found);
    CHECK(outcome->effect == Effect::applied);

    rpc::CancelHeader cancel;
    cancel.call = {7, 3};
    check_bytes("cancel", bytes_of(cancel));
}

TEST_CASE("the bytes of sessions are the documented ones") {
    rpc::SessionFrame session;
    session.head.flags = rpc::resume_flag;
    session.id = {0x1122334455667788, 0x99aabbccddeeff00};
    check_bytes("session", bytes_of(session));
    CHECK_FALSE(rpc::why_no_session(session.head));
    rpc::SessionGrantFrame grant;
    grant.head.aux = static_cast<std::uint16_t>(rpc::SessionReply::resumed);
    grant.slots = 128;
    grant.window = 64;
    check_bytes("session_grant", bytes_of(grant));
    CHECK_FALSE(rpc::why_no_session_grant(grant.head));
    grant = {};
    grant.head.aux = static_cast<std::uint16_t>(rpc::SessionReply::ended);
    check_bytes("session_grant_ended", bytes_of(grant));
    CHECK_FALSE(rpc::why_no_session_grant(grant.head));
    ++grant.head.aux;
    CHECK(rpc::why_no_session_grant(grant.head));
    check_bytes("session_end", bytes_of(rpc::SessionEndFrame()));
    rpc::CallQueryFrame query;
    query.call = {7, 3};
    check_bytes("call_query", bytes_of(query));
    CHECK_FALSE(rpc::why_no_call_query(query.head));
    rpc::CallStatusFrame call_status;
    call_status.head.aux = static_cast<std::uint16_t>(rpc::CallStatus::executing);
    call_status.call = {7, 3};
    check_bytes("call_status", bytes_of(call_status));
    CHECK_FALSE(rpc::why_no_call_status(call_status.head));

    std::vector<std::byte> pushback(sizeof(rpc::ReplyHeader) + rpc::pushback_bytes + 2);
    rpc::store_reply(pushback.data(), pushback.size(),
                     rpc::pack(Code::resource_exhausted, Effect::none, Stage::queued), {7, 3});
    pushback[1] = std::byte{rpc::pushback_flag};
    base::store(pushback.data() + sizeof(rpc::ReplyHeader), std::uint32_t{5000});
    std::memcpy(pushback.data() + sizeof(rpc::ReplyHeader) + rpc::pushback_bytes, "no", 2);
    check_bytes("pushback", pushback);
    CHECK_FALSE(rpc::why_no_reply(base::load<core::FrameHead>(pushback.data())));
}

TEST_CASE("the bytes of rendezvous calls are the documented ones") {
    bulk::RendezvousBody where;
    const std::vector<std::byte> ref = vector_of("reference");
    std::memcpy(where.ref, ref.data(), ref.size());
    where.fabric = {0x10, 0x20};
    where.grant = 77;
    std::vector<std::byte> request(rpc::rendezvous_request_bytes);
    rpc::store_request(request.data(), request.size(), 0, {7, 3}, 500'000,
                       MethodId("demo.Greeter/Greet").hash);
    rpc::mark_rendezvous(request.data());
    base::store(request.data() + sizeof(rpc::RequestHeader), where);
    check_bytes("rendezvous_request", request);
    CHECK_FALSE(rpc::why_no_request(base::load<core::FrameHead>(request.data())));
    std::vector<std::byte> reply(rpc::rendezvous_reply_bytes);
    rpc::store_reply(reply.data(), reply.size(), rpc::plain_ok, {7, 3});
    rpc::mark_rendezvous(reply.data());
    base::store(reply.data() + sizeof(rpc::ReplyHeader), where);
    check_bytes("rendezvous_reply", reply);
    CHECK_FALSE(rpc::why_no_reply(base::load<core::FrameHead>(reply.data())));
}

TEST_CASE("the bytes of inline bulk are the documented ones") {
    const RegionRef ref = RegionRef::decode(vector_of("reference")).value();
    RegionRef small = ref;
    small.length = 4;
    const std::vector<std::byte> memory(4, std::byte{0xaa});
    const std::vector<std::byte> body(3, std::byte{0xbb});
    const BodyWriter plain = BodyWriter::of(body);
    rpc::InlineBulkBody inline_bulk(plain, small, memory);
    std::vector<std::byte> request(sizeof(rpc::RequestHeader) + inline_bulk.size());
    rpc::store_request(request.data(), request.size(), rpc::inline_bulk_flag, {7, 3}, 500'000,
                       MethodId("demo.Greeter/Greet").hash);
    inline_bulk.writer()(request.data() + sizeof(rpc::RequestHeader));
    check_bytes("inline_bulk_request", request);
    CHECK_FALSE(rpc::why_no_request(base::load<core::FrameHead>(request.data())));
    const auto back = rpc::decode_inline_bulk(request);
    REQUIRE(back);
    CHECK(as_text(back->body) == as_text(ByteView(body)));
    CHECK(as_text(back->bytes) == as_text(ByteView(memory)));
    CHECK(back->ref.key == ref.key);

    bulk::DataFrame data;
    data.head.bytes = sizeof data + 4;
    data.call = std::uint64_t{9} << 32 | 7;
    small.access = Access::write;
    small.encode(std::span<std::byte, RegionRef::wire_bytes>(reinterpret_cast<std::byte*>(data.ref),
                                                             RegionRef::wire_bytes));
    std::vector<std::byte> frame(sizeof data + 4, std::byte{0xcc});
    base::store(frame.data(), data);
    check_bytes("bulk_data", frame);
}

TEST_CASE("the bytes of references and grants are the documented ones") {
    RegionRef ref;
    ref.access = Access::read;
    ref.region = 5;
    ref.generation = 2;
    ref.key = 0x0123456789abcdef;
    ref.offset = 4096;
    ref.length = 1 << 20;
    ref.owner = 0x99aabbccddeeff00;
    std::array<std::byte, RegionRef::wire_bytes> bytes;
    ref.encode(bytes);
    check_bytes("reference", bytes);
    const RegionRef back = RegionRef::decode(vector_of("reference")).value();
    CHECK(back.key == ref.key);
    CHECK(back.length == ref.length);

    bulk::OpenFrame open;
    open.transfer_slot = 1;
    open.transfer_generation = 9;
    std::memcpy(open.ref, bytes.data(), bytes.size());
    check_bytes("bulk_open", bytes_of(open));
    bulk::GrantFrame grant;
    grant.head.bytes = sizeof grant;
    grant.transfer_slot = 1;
    grant.transfer_generation = 9;
    grant.fabric = {0x10, 0x20};
    grant.grant = 77;
    check_bytes("bulk_grant", bytes_of(grant));
    bulk::CloseFrame close;
    close.grant = 77;
    check_bytes("bulk_close", bytes_of(close));
    bulk::RevokeFrame revoke;
    revoke.grant = 77;
    revoke.transfer_slot = 1;
    revoke.transfer_generation = 9;
    check_bytes("bulk_revoke", bytes_of(revoke));
}

namespace {

coll::ForwardHeader question() {
    coll::ForwardHeader header;
    header.view = 0xaaaa;
    header.group = 0xbbbb;
    header.epoch = 4;
    header.key = {0xcccc, 0xdd};
    header.method = 0xeeee;
    header.began = 0x1122'3344'5566'7788;
    header.time_limit_ns = 5'000'000'000;
    header.first = 3;
    return header;
}

std::vector<std::byte> encoded(const coll::ForwardParts& parts) {
    std::vector<std::byte> bytes(parts.bytes());
    coll::encode_forward(parts, bytes);
    return bytes;
}

}  // namespace

TEST_CASE("the bytes of collective forwards are the documented ones") {
    coll::ForwardHeader header = question();
    header.unacknowledged = 5;
    header.client = 0x0b0a;
    header.parent = 2;
    header.root = 2;
    header.last = 9;
    header.progress_interval_us = 250'000;
    header.flags = coll::ForwardHeader::ordered | 5 << coll::ForwardHeader::priority_shift;
    header.operation = static_cast<std::uint8_t>(Reduction::Operation::sum);
    header.number = static_cast<std::uint8_t>(Reduction::Number::f64);
    const std::vector<RankSet::Range> ranks{{2, 17}};
    check_bytes("forward", encoded({header, ranks, {}, as_bytes("hi")}));
    const std::vector<std::byte> forward = vector_of("forward");  // Owns the bytes of the view.
    const coll::ForwardView back = coll::decode_forward(forward).value();
    CHECK(back.header.last == 9);
    CHECK(back.header.acknowledged_below() == 0xd8);
    CHECK(back.header.began == header.began);
    CHECK(back.header.time_limit() == 5s);
    CHECK(back.header.parent == 2);
    CHECK(back.header.plan_flags() == coll::ForwardHeader::ordered);
    CHECK(back.header.priority() == 5);
    CHECK(coll::decode_ranges(back.ranges).value() == ranks);
    CHECK(as_text(back.body) == "hi");

    header = question();
    header.last = 5;
    header.time_limit_ns = UINT64_MAX;
    header.tree = {coll::Shape::k_ary, 2};
    header.progress_interval_us = 1'000'000;
    header.flags = coll::ForwardHeader::scatters;
    const Member first{4, {"sm://s4"}, 7, false}, second{9, {"sm://s9", "sim://s9"}, 0, false};
    const std::vector<std::byte> named = coll::encode_members({&first, &second});
    const std::vector<std::byte> bodies = [] {
        const ByteView bytes = as_bytes(std::string_view("\1\0\0\0\2\0\0\0abc", 11));
        return std::vector<std::byte>(bytes.begin(), bytes.end());
    }();
    check_bytes("forward_named", encoded({header, {}, named, bodies}));
    const std::vector<std::byte> whole = vector_of("forward_named");
    const coll::ForwardView other = coll::decode_forward(whole).value();
    const coll::MemberList members = coll::decode_members(other.named, 2).value();
    CHECK(other.header.time_limit() == Duration::max());
    CHECK(members.at(0) == first);
    CHECK(members.at(1) == second);
    CHECK(as_text(coll::piece_of(other.body, 2, 1).value()) == "bc");
}

TEST_CASE("the bytes of subtree replies are the documented ones") {
    coll::SubtreeReply answer;
    answer.kind = coll::SubtreeReply::Kind::partial;
    answer.ok = {{3, 4}, {6, 9}};
    answer.outcomes.push_back({4,
                               Status().with_effect(Effect::applied).with_stage(Stage::executing),
                               {std::byte{'o'}, std::byte{'k'}}});
    answer.outcomes.push_back({5,
                               fail(Code::unavailable, "gone")
                                   .with_effect(Effect::none)
                                   .with_stage(Stage::queued)
                                   .with_peer("sm://s4"),
                               {}});
    check_bytes("subtree_reply", coll::encode_subtree_reply(answer, 4096));
    const coll::SubtreeReply read = coll::decode_subtree_reply(vector_of("subtree_reply")).value();
    CHECK(read.ok == answer.ok);
    REQUIRE(read.outcomes.size() == 2);
    CHECK(read.outcomes[0].status.ok());
    CHECK(read.outcomes[1].status.peer() == "sm://s4");
    CHECK(read.outcomes[1].status.text() == "gone");

    coll::SubtreeReply merged;
    merged.ok = {{3, 9}};
    merged.has_value = true;
    merged.value = std::vector<std::byte>(8);
    merged.value[0] = std::byte{42};
    merged.cost = {300, 6000};
    check_bytes("subtree_reply_merged", coll::encode_subtree_reply(merged, 4096));
    CHECK(coll::decode_subtree_reply(vector_of("subtree_reply_merged"))->value == merged.value);
    CHECK(coll::decode_subtree_reply(vector_of("subtree_reply_merged"))->cost == merged.cost);

    coll::SubtreeReply stale;
    stale.kind = coll::SubtreeReply::Kind::stale;
    stale.epoch = 5;
    check_bytes("subtree_reply_stale", coll::encode_subtree_reply(stale, 4096));
    CHECK(coll::decode_subtree_reply(vector_of("subtree_reply_stale"))->epoch == 5);

    coll::SubtreeReply expired;
    expired.kind = coll::SubtreeReply::Kind::expired;
    expired.clock = 0x1122'3344'5566'7788;
    check_bytes("subtree_reply_expired", coll::encode_subtree_reply(expired, 4096));
    CHECK(coll::decode_subtree_reply(vector_of("subtree_reply_expired"))->clock == expired.clock);
}

TEST_CASE("a truncated subtree reply is refused at every length") {
    const std::vector<std::byte> whole = vector_of("subtree_reply");
    int refused = 0;
    for (std::size_t bytes = 1; bytes < whole.size(); ++bytes) {
        refused += !coll::decode_subtree_reply(ByteView(whole).first(bytes)).ok();
    }
    // All but truncations at the ends of the intervals and of the first outcome.
    CHECK(refused == static_cast<int>(whole.size()) - 3);
}
