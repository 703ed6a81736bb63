// The client side: calls in flight in a slot table, each completed exactly once.
//
// Life of a call: submit() takes a record and arms the deadline. The request is sent at once if the
// session has a free slot and the transport has room. Otherwise it waits in the session's queue. A
// body that is too large for a message is sent by rendezvous: the server fetches it. The first of
// these events completes the call: its reply (once fetched, if it is large), its deadline,
// cancel(), the loss of an unreachable peer, shutdown. The record is released before the completion
// runs.
//
// A lost connection ends no call: the client reconnects and queries the server for their status
// (client_recovery.cc; docs/adr/0006-sessions.md).
#pragma once

#include <list>

#include <weft/channel.h>

#include "base/assert.h"
#include "bulk/bulk.h"
#include "core/context.h"
#include "core/nested_operations.h"
#include "rpc/body.h"
#include "rpc/client_bodies.h"
#include "rpc/client_calls.h"
#include "rpc/client_capacity.h"
#include "rpc/header.h"
#include "rpc/sampler.h"

namespace weft::rpc {

using weft::BodyWriter;
using weft::Completion;

class Client final : public core::FrameSink, private CallOwner {
  public:
    Client(core::Context& context, bulk::Bulk& bulk, const ClientLimits& limits = {});
    ~Client();

    // Thread: the context's. `done` runs once, in a later turn or at shutdown(). It runs inside
    // submit() only when no record is left for the call. Requires: a peer reference that is or was
    // valid.
    CallId submit(core::PeerRef peer, const MethodId& method, BodyWriter body, TimePoint deadline,
                  CallTraits traits, Completion&& done);
    // The same, also for a peer that there was no room for (generation 0): the call fails.
    CallId submit_to(core::PeerRef peer, const MethodId& method, BodyWriter body,
                     TimePoint deadline, CallTraits traits, Completion&& done);
    // The same for a handler: the call ends with the handler's own call and has at most its
    // deadline. Requires: `body` is valid during this function.
    CallId submit_nested(core::CallScope& scope, core::PeerRef peer, const MethodId& method,
                         const BodyWriter& body, TimePoint deadline, CallTraits traits,
                         Completion&& done);
    // Completes with `why` in a later turn, as a nested operation of `scope` (nullptr: of none).
    CallId submit_refused(core::CallScope* scope, Completion&& done, const Status& why);
    // The largest body that is known to fit into one message to the peer at present.
    std::size_t eager_bytes_max(const core::Peer& peer) const;
    // Completes the call with CANCELLED in the next turn and sends a cancel to the peer. Stale ids
    // are ignored.
    void cancel(CallId id, const char* why = "the caller cancelled the call");
    // As cancel(), but the completion never runs: its owner is being destroyed.
    void abandon(CallId id);
    // Announces to the server that the client will query nothing of the session any more. Its calls
    // go on until the peer disconnects.
    void end_session(core::Peer& peer);
    // The same for each session. Calls submitted from here on complete at once, because shutdown()
    // follows.
    void end_sessions();
    // Completes every call with `why` at once, and so every call that is submitted from here on.
    void shutdown(const Status& why);

    std::uint32_t in_flight() const { return calls_.taken(); }
    std::size_t sessions() const { return sessions_.size(); }
    // Slots in use in all sessions, plus the credits of the context that are taken.
    std::uint64_t in_use() const;
    // Calls to the peer that wait to be sent.
    static std::uint32_t waiting(const core::Peer& peer) {
        const ClientSession* const session = client_session(peer);
        return session ? session->waiting.size() : 0;
    }
    using Counters = ClientCalls::Counters;
    const Counters& counters() const { return calls_.counters; }
    base::Figures figures() const;
    bool is_balanced() const { return calls_.is_balanced(); }

    // For users: counts, sessions, the calls with the earliest deadlines, latencies by method.
    std::string state(std::size_t lines_max);

    void on_frame(core::Peer& peer, core::FrameHead head, ByteView frame) override;
    bool trim_shares() override;
    void on_peer_up(core::Peer& peer) override;
    void on_room(core::Peer& peer) override;
    void on_peer_down(core::Peer& peer, const Status& why) override;

  private:
    // ---- submitting, client.cc
    CallId submit_queued(CallEntry& entry, const MethodId& method, const BodyWriter& body);
    bool prepare_rendezvous(ClientCall& call, const BodyWriter& body);
    bool bind_rendezvous(ClientCall& call);
    CallId refuse(CallEntry* entry, Completion&& done, Status why);
    Status why_refused() const;
    CallId refuse_size(CallEntry& entry, std::size_t bytes);
    CallId refuse_full(CallEntry& entry, std::size_t bytes);
    CallId refuse_late(CallEntry& entry);
    bool is_too_late(const ClientSession& session, const ClientCall& call) const;
    void enqueue(ClientCall& call, bool first);
    void dequeue(ClientCall& call);
    void pump(ClientSession& session);
    void serve_credit_waiters();
    void on_credits_released(ClientSession& session, std::uint64_t method);
    bool transmit(ClientSession& session, ClientCall& call);

    // ---- ends
    ClientCall* match_reply(core::Peer& peer, ByteView frame);
    void release(ClientSession& session, ClientSlot& slot);
    [[gnu::noinline]] void release_unusual(ClientSession& session, ClientSlot& slot);
    void on_other_frame(core::Peer& peer, core::FrameHead head, ByteView frame);
    WaitingRequest::Ptr request_to_retry(core::Peer& peer, core::FrameHead head, ByteView frame);
    bool back_off(ClientCall& call, WaitingRequest::Ptr request, ByteView frame);
    void resume(ClientCall& call);
    void complete(ClientCall& call, const Status& status, ByteView reply);
    void finish(ClientCall& call, const Status& status, ByteView reply);
    void on_data(core::Peer& peer, core::FrameHead head, ByteView frame);
    [[gnu::noinline]] void finish_failed_put(ClientSlot& slot);
    void fetch_reply(core::Peer& peer, ByteView frame);
    void on_fetched(CallId id, const Status& status, ByteView reply);
    void finish_failed(ClientCall& call, core::Peer& peer, core::FrameHead head, ByteView frame);
    void finish_deferred(ClientCall& call, Status status);
    void leave_session(ClientCall& call);
    void drop_request(ClientCall& call);
    void cancel_at_peer(ClientCall& call);
    void send_cancel(core::Peer& peer, const ClientSlot& slot);
    void on_deadline(ClientCall& call) override;
    void on_due(ClientCall& call) override;

    // ---- recovery, client_recovery.cc
    ClientSession* session_of(core::Peer& peer);
    void begin(ClientSession& session);
    void begin_new_session(ClientSession& session);
    bool send_session(ClientSession& session, std::uint8_t flags);
    void on_session_grant(core::Peer& peer, ByteView frame);
    void on_call_status(core::Peer& peer, ByteView frame);
    void query_calls(ClientSession& session);
    bool resend(ClientSession& session, ClientSlot& slot);
    static WaitingRequest::Ptr take_request(ClientSlot& slot);
    void requeue(ClientSession& session, ClientSlot& slot);
    void on_session_ended(ClientSession& session);
    void requeue_or_fail(ClientSession& session, ClientSlot& slot);
    void fail_waiting(ClientSession& session, const Status& why);
    void fail_overdue(ClientSession& session);
    void count_server_restarts(ClientSession& session);
    void resolve_unknown(ClientSession& session, Code code, std::string_view why);
    void interrupt(ClientSession& session, const Status& why);
    void continue_reconnect(ClientSession& session, const Status& why);
    bool is_reconnect_over(ClientSession& session, TimePoint now);
    void on_session_timer(ClientSession& session, TimePoint now) override;
    void fail_all(ClientSession& session, const Status& why);
    void erase_session(ClientSession& session);

    [[gnu::noinline]] void sample(ClientCall& call, const MethodId& method) {
        call.done = sampler_.sample(method, std::move(call.done));
    }
    std::string text_of(const ClientCall& call, TimePoint now) const;

    core::Context& context_;
    bulk::Regions& regions_;
    ClientBodies bodies_;
    ClientCapacity capacity_;
    core::NestedOperations<Client, Completion> nested_{context_, *this};
    Sampler sampler_{context_.clock()};
    ClientCalls calls_{context_.member()};
    std::list<ClientSession> sessions_;
};

inline void Client::release(ClientSession& session, ClientSlot& slot) {
    WEFT_DCHECK(!slot.call || slot.call->slot == &slot);
    if (slot.is_unusual) [[unlikely]] {
        release_unusual(session, slot);
    } else {
        slot.call->slot = nullptr;
    }
    capacity_.give_back(session, slot.bytes);
    session.release(slot);
}

inline void Client::complete(ClientCall& call, const Status& status, ByteView reply) {
    context_.timers().cancel(call);
    WEFT_DCHECK(!call.session && !call.slot && !call.waiting && call.done);
    WEFT_DCHECK(!call.completion_pending && !call.is_backing_off);
    WEFT_DCHECK(!static_cast<core::Deferred&>(call).is_linked());
    CallEntry& entry = entry_of(call);
    // From here on the id is stale; the completion runs in place.
    calls_.retire(entry);
    ++calls_.counters.completed[static_cast<std::size_t>(status.code())];
    call.done.consume(status, reply);
    calls_.recycle(entry);
}

// Checked where a completion is taken, not once in Channel::call: this saves six instructions.
inline constexpr const char* empty_completion = "Channel::call(), as its completion";

// Inline because it is the larger part of Channel::call.
[[gnu::always_inline]] inline CallId Client::submit(core::PeerRef peer_ref, const MethodId& method,
                                                    BodyWriter body, TimePoint deadline,
                                                    CallTraits traits, Completion&& done) {
    WEFT_DCHECK(peer_ref && !context_.is_on_other_thread());
    ++calls_.counters.submitted;
    CallEntry* entry = calls_.take();
    if (calls_.closed || !entry || !context_.is_current(peer_ref)) [[unlikely]] {
        return refuse(entry, std::move(done), why_refused());
    }
    core::Peer* const peer = peer_ref.at;
    ClientSession* const session = client_session(*peer);
    const std::size_t bytes = sizeof(RequestHeader) + body.bytes;
    ClientCall& call = entry->value;
    WEFT_DCHECK(!call.done && !call.slot && !call.waiting);
    WEFT_DCHECK(!call.completion_pending && !call.is_backing_off);
    call.owner = this;
    call.session = session;
    call.traits = traits;
    std::construct_at(&call.done, std::move(done));  // The member was empty.
    if (!call.done) [[unlikely]]
        detail::refuse_empty(empty_completion);
    context_.add_interest(*peer);
    context_.timers().arm(call, deadline);
    // A request that its slot must keep but cannot hold takes the slow path.
    const bool is_direct = session && session->is_direct() && body.bytes < peer->direct_body_end &&
                           capacity_.may_send(*session, body.bytes) &&
                           (traits.flags == 0 || body.bytes <= ClientSlot::small_bytes_max);
    std::byte* to = is_direct ? context_.reserve(*peer, bytes) : nullptr;
    if (!to) [[unlikely]] {
        call.session = session_of(*peer);
        if (!call.session) context_.drop_interest(*peer);
        return submit_queued(*entry, method, BodyWriter(body));
    }
    ClientSlot& slot = session->take();
    slot.call = &call;
    call.slot = &slot;
    capacity_.take(*session, body.bytes);
    const std::uint8_t flags = traits.flags;
    store_request(to, bytes, flags, slot.wire(), to_remaining_us(context_.now(), deadline),
                  method.hash);
    std::byte* const at = to + sizeof(RequestHeader);
    if (slot.describe(method.hash, flags, body.bytes)) [[likely]] {
        body(at);
        slot.keep(at);
    } else {
        write_out(context_, *peer, BodyWriter(body), at);
    }
    call.stage.restart(Stage::sent);
    if (slot.sequence % calls_per_sample == 0) [[unlikely]] {
        sample(call, method);
    }
    context_.commit(*peer, bytes);
    return entry->id();
}

}  // namespace weft::rpc
