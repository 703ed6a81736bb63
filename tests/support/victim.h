// A full server as the target of attacks, an honest client that must never notice them, and the
// frames of an honest peer, from which hostile frames are made.
#pragma once

#include "bulk/wire.h"
#include "coll/wire.h"
#include "rpc/inline_bulk.h"
#include "support/echo.h"
#include "support/raw_peer.h"

namespace weft::test {

struct Victim {
    explicit Victim(bool rma_checked = true, std::uint64_t seed = 1)
        : rig(seed, {.rma_checked = rma_checked}) {
        service.memory = server.allocate(1 << 16).value();
        REQUIRE(server.add(service).ok());
        REQUIRE(server.join(view(), 0).ok());
        REQUIRE(other.add(other_service).ok());
        REQUIRE(other.join(view(), 1).ok());
        region = server.expose(service.memory, {.access = Access::read}).value();
        channel = client.connect("sim://server").value();
    }

    static GroupView view() {
        return GroupView::make("victims", 1, {{0, {"sim://server"}}, {1, {"sim://other"}}}).value();
    }

    // The honest client is still served.
    void check_serves() {
        const std::string text = "still there " + std::to_string(++asked_);
        echo::v1::EchoReply reply;
        Status status = fail(Code::unknown, "no completion");
        bool done = false;
        weft::call(channel, echo::v1::EchoMethods::Now, request_of(text),
                   CallOptions{.timeout = 100ms},
                   [&](const Status& with, const echo::v1::EchoReply& body) {
                       done = true;
                       status = with;
                       reply = body;
                   });
        REQUIRE(rig.run_until([&] { return done; }));
        INFO(status.to_string());
        REQUIRE(status.ok());
        REQUIRE(reply.text() == text);
    }

    Frame request(MethodId method, ByteView body, rpc::WireCallId call = {3, 1}) const {
        rpc::RequestHeader header;
        header.call = call;
        header.remaining_us = 50'000;
        header.method = method.hash;
        return frame_of(header, body);
    }
    Frame request(MethodId method, const std::string& text) const {
        return request(method, as_bytes(request_of(text).SerializeAsString()));
    }
    // A subtree request to rank 0, for both ranks.
    coll::ForwardHeader forward_header() const {
        coll::ForwardHeader header;
        header.view = view().digest();
        header.group = method_hash(view().name());
        header.epoch = 1;
        header.key = {77, ++collectives_};  // Another key each time.
        header.method = echo::v1::EchoMethods::Everywhere.id.hash;
        header.last = 2;
        header.began = impl_of(server).collectives.clock_reading();
        header.progress_interval_us = 10'000;
        return header;
    }
    Frame forward(const coll::ForwardParts& parts) const {
        Frame bytes(parts.bytes());
        coll::encode_forward(parts, bytes);
        return request(coll::forward_method, bytes);
    }
    Frame forward(const coll::ForwardHeader& header, ByteView body = {}) const {
        return forward({header, {}, {}, body});
    }
    Frame open(const RegionRef& ref) const {
        bulk::OpenFrame frame;
        frame.transfer_slot = 1;
        frame.transfer_generation = 1;
        ref.encode(std::span<std::byte, RegionRef::wire_bytes>(
            reinterpret_cast<std::byte*>(frame.ref), RegionRef::wire_bytes));
        return frame_of(frame);
    }

    // A request with a rendezvous body, and a reply. The server requests the body and is refused,
    // because a bare endpoint exposes nothing.
    Frame rendezvous_request(const RegionRef& ref, std::uint64_t grant = 1,
                             rpc::WireCallId call = {3, 1}) const {
        return as_rendezvous(request(echo::v1::EchoMethods::Now.id, ByteView(), call), ref, grant);
    }
    Frame rendezvous_reply(const RegionRef& ref, rpc::WireCallId call = {0, 1}) const {
        rpc::ReplyHeader reply;
        reply.head.aux = rpc::plain_ok;
        reply.call = call;
        return as_rendezvous(frame_of(reply), ref, 1);
    }
    static RegionRef rendezvous_ref(const na::Incarnation& owner, std::uint64_t bytes = 1 << 20) {
        RegionRef ref;
        ref.access = Access::read;
        ref.region = 1;
        ref.generation = 1;
        ref.key = 77;
        ref.length = bytes;
        ref.owner = owner.low;
        return ref;
    }

    // A request with `bytes` of inline bulk data, declared as `declared_bytes`.
    Frame inline_bulk_request(const RegionRef& ref, std::size_t bytes,
                              std::size_t declared_bytes) const {
        Frame frame = request(echo::v1::EchoMethods::Now.id, "hello");
        frame.resize(frame.size() + bytes, std::byte{'r'});
        rpc::InlineBulkTail tail;
        ref.encode(std::span<std::byte, RegionRef::wire_bytes>(
            reinterpret_cast<std::byte*>(tail.ref), RegionRef::wire_bytes));
        tail.bytes = static_cast<std::uint32_t>(declared_bytes);
        const std::size_t at = frame.size();
        frame.resize(at + sizeof tail);
        base::store(frame.data() + at, tail);
        base::store(frame.data() + offsetof(core::FrameHead, bytes),
                    static_cast<std::uint32_t>(frame.size()));
        rpc::mark_inline_bulk(frame.data());
        return frame;
    }
    static Frame data(const RegionRef& ref, ByteView bytes) {
        bulk::DataFrame data;
        ref.encode(std::span<std::byte, RegionRef::wire_bytes>(
            reinterpret_cast<std::byte*>(data.ref), RegionRef::wire_bytes));
        return frame_of(data, bytes);
    }

    // One good frame of every kind that reaches a server or a client.
    std::vector<Frame> good_frames() const {
        using echo::v1::EchoMethods;
        rpc::ReplyHeader reply;
        reply.head.aux = rpc::plain_ok;
        reply.call = {0, 1};
        rpc::ReplyHeader failed = reply;
        failed.head.aux = rpc::pack(Code::not_found, Effect::applied, Stage::executing);
        rpc::CancelHeader cancel;
        cancel.call = {3, 1};
        bulk::GrantFrame grant;
        grant.transfer_slot = 0;
        grant.transfer_generation = 1;
        grant.grant = 1;
        bulk::CloseFrame close;
        close.grant = 1;
        bulk::RevokeFrame revoke;
        revoke.grant = 1;
        struct Bare {
            core::FrameHead head;
        };
        RegionRef to = region.ref(0, 100);
        to.access = Access::write;
        return {request(EchoMethods::Now.id, "hello"),
                request(EchoMethods::Later.id, "later"),
                request(EchoMethods::Held.id, "held"),
                request(EchoMethods::Pull.id, "no reference"),
                request(MethodId("weft.Node/Ping"), as_bytes("ping")),
                forward(forward_header(), as_bytes(request_of("all").SerializeAsString())),
                frame_of(reply, as_bytes(request_of("hello").SerializeAsString())),
                frame_of(failed, as_bytes("nothing here")),
                frame_of(cancel),
                frame_of(Bare{{core::FrameKind::ping}}),
                frame_of(Bare{{core::FrameKind::pong}}),
                open(region.ref()),
                frame_of(grant),
                frame_of(close),
                frame_of(revoke),
                inline_bulk_request(rendezvous_ref({7, 7}, 100), 100, 100),
                data(to, std::vector<std::byte>(100))};
    }

    // The frame of a call with a rendezvous body.
    static Frame as_rendezvous(Frame frame, const RegionRef& ref, std::uint64_t grant) {
        bulk::RendezvousBody where;
        ref.encode(std::span<std::byte, RegionRef::wire_bytes>(
            reinterpret_cast<std::byte*>(where.ref), RegionRef::wire_bytes));
        where.grant = grant;
        const std::size_t at = frame.size();
        frame.resize(at + sizeof where);
        base::store(frame.data() + at, where);
        base::store(frame.data() + offsetof(core::FrameHead, bytes),
                    static_cast<std::uint32_t>(frame.size()));
        rpc::mark_rendezvous(frame.data());
        return frame;
    }

    EchoServer service, other_service;  // They outlive the runtimes that serve them.
    SimRig rig;
    Runtime& server = rig.add("server");
    Runtime& other = rig.add("other");
    Runtime& client = rig.add("");
    Region region;
    Channel channel;

  private:
    int asked_ = 0;
    mutable std::uint64_t collectives_ = 0;
};

// Sends it over a connection of its own. True: the server ended that connection.
inline bool costs_the_connection(RawPeer& raw, ByteView message) {
    if (!raw.peer || raw.lost) raw.connect("server");
    raw.take();
    REQUIRE(raw.send(message));
    raw.wait();
    return raw.lost;
}

inline void check_refused(Victim& victim, RawPeer& raw, ByteView message) {
    INFO(hex_of(message));
    const auto before = node_of(victim.server).context.counters().malformed_peers;
    REQUIRE(costs_the_connection(raw, message));
    CHECK(node_of(victim.server).context.counters().malformed_peers == before + 1);
    victim.check_serves();
}

inline Frame with_bytes(Frame frame, std::uint32_t bytes) {
    core::FrameHead head = head_of(frame);
    head.bytes = bytes;
    base::store(frame.data(), head);
    return frame;
}

}  // namespace weft::test
