// The calling half: calls in flight in a slot table, each completed exactly once.
//
// Life of a call: submit() takes a slot, arms the deadline and claims a frame (in the transport, or
// in the peer's FIFO); a body that is too large for one is lent to the server. Whatever comes first
// completes it: the reply, once it was fetched if it is large, the deadline, cancel(), the loss of
// the peer, shutdown. The slot is given back before the completion runs, so a late reply
// finds a newer generation and is counted and dropped.
#pragma once

#include <memory>
#include <vector>

#include <weft/channel.h>

#include "bulk/bulk.h"
#include "core/context.h"
#include "rpc/header.h"

namespace weft::rpc {

using weft::BodyWriter;
using weft::Completion;

using CallId = base::SlotId;

class Client final : public core::FrameSink {
  public:
    Client(core::Context& context, bulk::Bulk& bulk);
    ~Client();

    // Thread: the context's. `done` runs once, in a later turn or at shutdown(), never in here
    // unless no record is left for the call. Requires: a peer that is or was.
    CallId submit(core::PeerRef peer, const MethodId& method, BodyWriter body, TimePoint deadline,
                  Completion&& done);
    // The largest body that surely fits a message to the peer, as far as it is known now.
    std::size_t eager_bytes_max(const core::Peer& peer) const;
    // Completes the call with CANCELLED in the next turn and tells the peer. Stale ids are ignored.
    void cancel(CallId id);
    // As cancel(), but the completion never runs: its owner is going away.
    void abandon(CallId id);
    // Completes every call with `why`, now; what is submitted from here on completes at once.
    void shutdown(const Status& why);

    std::uint32_t in_flight() const { return calls_.taken(); }
    struct Counters {
        std::uint64_t late_replies = 0;
    };
    const Counters& counters() const { return counters_; }

    void on_frame(core::Peer& peer, core::FrameHead head, ByteView frame) override;
    void on_leaving(core::Peer& peer, Bytes frame) override;
    void on_refused(core::Peer& peer, ByteView frame) override;
    void on_peer_down(core::Peer& peer, const Status& why) override;

  private:
    struct Call : base::Timer, core::Deferred {
        Call() { fire = &Client::on_deadline; }
        Client* client = nullptr;
        core::Peer* peer = nullptr;  // nullptr once it is gone and the completion waits.
        Stage stage = Stage::none;
        Completion done;
        Status early;                         // Why a deferred completion happens.
        core::QueuedFrame* queued = nullptr;  // While the stage is `queued`.
    };
    using Entry = base::SlotTable<Call>::Entry;

    // Of one whose large reply is on its way.
    struct Fetching {
        CallId call;
        bulk::FetchId fetch;
    };

    CallId submit_queued(Entry& entry, const MethodId& method, const BodyWriter& body);
    CallId submit_lent(Entry& entry, const MethodId& method, const BodyWriter& body);
    CallId refuse(Entry* entry, Completion&& done);
    CallId refuse_size(Entry& entry, std::size_t bytes);
    CallId refuse_full(Entry& entry);
    Entry* answered_by(const core::Peer& peer, ByteView frame);
    void on_failure(core::Peer& peer, core::FrameHead head, ByteView frame);
    void complete(Entry& entry, const Status& status, ByteView reply);
    void finish(Entry& entry, const Status& status, ByteView reply);
    void fetch_reply(core::Peer& peer, ByteView frame);
    void on_fetched(CallId id, const Status& status, ByteView reply);
    void forget_fetch(CallId id);
    void finish_failed(Entry& entry, core::Peer& peer, core::FrameHead head, ByteView frame);
    void finish_early(Entry& entry, Status status);
    void forget_frame(Call& call);
    void send_cancel(Call& call);
    static void on_deadline(base::Timer& timer, TimePoint now);
    void expire(Call& call);
    Entry* entry_of(ByteView request_frame);

    core::Context& context_;
    bulk::Bulk& bulk_;
    base::SlotTable<Call> calls_;
    std::vector<Fetching> fetching_;
    Counters counters_;
    const Status ok_ = Status().with_effect(Effect::applied).with_stage(Stage::executing);
    bool closed_ = false;
};

// Here for Channel::call, whose larger part it is.
[[gnu::always_inline]] inline CallId Client::submit(core::PeerRef peer_ref, const MethodId& method,
                                                    BodyWriter body, TimePoint deadline,
                                                    Completion&& done) {
    Entry* entry = calls_.take();
    if (closed_ || !entry || !context_.is_current(peer_ref)) [[unlikely]] {
        return refuse(entry, std::move(done));
    }
    core::Peer* const peer = peer_ref.at;
    const std::size_t bytes = sizeof(RequestHeader) + body.bytes;
    Call& call = entry->value;
    call.client = this;
    call.peer = peer;
    std::construct_at(&call.done, std::move(done));  // It was empty.
    context_.add_interest(*peer);
    context_.timers().arm(call, deadline);
    std::byte* to = body.bytes < peer->direct_body_end ? context_.reserve(*peer, bytes) : nullptr;
    if (!to) [[unlikely]] {
        return submit_queued(*entry, method, BodyWriter(body));
    }
    store_request(to, bytes, {entry->slot, entry->generation},
                  to_remaining_us(context_.now(), deadline), method.hash);
    body(to + sizeof(RequestHeader));
    call.stage = Stage::sent;
    context_.commit(*peer, bytes);
    return entry->id();
}

}  // namespace weft::rpc
