// The calling half: calls in flight in a slot table, each completed exactly once.
//
// Life of a call: submit() takes a record and arms the deadline. With a slot of the peer's session
// free, and room in the transport, the request leaves at once; else it waits in the session's
// queue. A body that is too large for a message is lent to the server. Whatever comes first
// completes the call: the reply, once it was fetched if it is large, the deadline, cancel(), a peer
// that can't be reached any more, shutdown. The record is given back before the completion runs.
//
// A connection that is lost ends no call: the client connects again and asks what became of them
// (client_recovery.cc; docs/adr/0006-sessions.md).
#pragma once

#include <array>
#include <list>
#include <memory>
#include <vector>

#include <weft/channel.h>

#include "base/mutant.h"
#include "bulk/bulk.h"
#include "core/context.h"
#include "core/nested.h"
#include "rpc/body.h"
#include "rpc/client_session.h"
#include "rpc/header.h"
#include "rpc/sampler.h"

namespace weft::rpc {

using weft::BodyWriter;
using weft::Completion;

struct ClientLimits {
    std::uint32_t waiting_calls_max = 16384;         // Per peer.
    std::size_t waiting_bytes_max = 16u << 20;       // Per peer.
    std::size_t waiting_bytes_all_max = 512u << 20;  // Of all peers.
    std::uint32_t sent_calls_max = 65536;            // Of all peers; of one it is the grant.
    std::size_t sent_bytes_max = 64u << 20;          // Per peer.
    std::size_t sent_bytes_all_max = 256u << 20;     // Of all peers.
};

class Client final : public core::FrameSink {
  public:
    Client(core::Context& context, bulk::Bulk& bulk, ClientLimits limits = {});
    ~Client();

    // Thread: the context's. `done` runs once, in a later turn or at shutdown(), never in here
    // unless no record is left for the call. Requires: a peer that is or was.
    CallId submit(core::PeerRef peer, const MethodId& method, BodyWriter body, TimePoint deadline,
                  CallTraits traits, Completion&& done);
    // The same for a handler: ends with its call, and takes no longer. Requires: body valid inside.
    CallId submit_nested(core::Scope& scope, core::PeerRef peer, const MethodId& method,
                         const BodyWriter& body, TimePoint deadline, CallTraits traits,
                         Completion&& done);
    // Completes with `why` in a later turn, as a part of `scope` (nullptr: of none).
    CallId submit_refused(core::Scope* scope, Completion&& done, const Status& why);
    // The largest body that surely fits a message to the peer, as far as it is known now.
    std::size_t eager_bytes_max(const core::Peer& peer) const;
    // Completes the call with CANCELLED in the next turn and tells the peer. Stale ids are ignored.
    void cancel(CallId id, const char* why = "cancelled by the caller");
    // As cancel(), but the completion never runs: its owner is going away.
    void abandon(CallId id);
    // Tells the server that nothing of the session will be asked for. Its calls go on until the
    // peer goes.
    void end_session(core::Peer& peer);
    // The same for each session. What is submitted from here on completes at once: shutdown()
    // comes next.
    void end_sessions();
    // Completes every call with `why`, now; what is submitted from here on completes at once.
    void shutdown(const Status& why);

    std::uint32_t in_flight() const { return calls_.taken(); }
    std::size_t sessions() const { return sessions_.size(); }
    // Slots in use, of all sessions, and what of the context's room is not back.
    std::uint64_t in_use() const;
    // Calls to the peer that wait to be sent.
    static std::uint32_t waiting(const core::Peer& peer) {
        return peer.client_session ? peer.client_session->waiting.size() : 0;
    }
    struct Counters {
        std::uint64_t late_replies = 0;
        std::uint64_t lost_connections = 0;  // With calls that wait for another.
        std::uint64_t resumed = 0;           // Sessions.
        std::uint64_t sent_again = 0;        // Calls that had never come, or may run twice.
        std::uint64_t retried = 0;           // Calls that the server pushed back.
        std::uint64_t submitted = 0;
        std::array<std::uint64_t, code_max + 1> completed{};  // By code.
    };
    const Counters& counters() const { return counters_; }
    // Every call that was submitted has completed once or is in flight.
    bool is_balanced() const;

    // For people: counts, sessions, the calls that end first, latencies by method.
    std::string state(std::size_t lines_max);

    void on_frame(core::Peer& peer, core::FrameHead head, ByteView frame) override;
    void on_peer_up(core::Peer& peer) override;
    void on_room(core::Peer& peer) override;
    void on_peer_down(core::Peer& peer, const Status& why) override;

  private:
    friend struct ClientCall;

    // ---- submitting, client.cc
    CallId submit_queued(CallEntry& entry, const MethodId& method, const BodyWriter& body);
    bool lend(ClientCall& call, const BodyWriter& body);
    CallId refuse(CallEntry* entry, Completion&& done, Status why);
    Status why_refused() const;
    CallId refuse_size(CallEntry& entry, std::size_t bytes);
    CallId refuse_full(CallEntry& entry, std::size_t bytes);
    CallId refuse_late(CallEntry& entry);
    bool is_too_late(const ClientSession& session, const ClientCall& call) const;
    bool has_room(const ClientSession& session, std::size_t bytes) const;
    void enqueue(ClientCall& call, bool first);
    void dequeue(ClientCall& call);
    void pump(ClientSession& session);
    bool may_send(const ClientSession& session, std::size_t bytes) const {
        return calls_room_ != 0 && bytes <= session.bytes_room && bytes <= bytes_room_;
    }
    void account(ClientSession& session, std::size_t bytes) {
        --calls_room_;
        session.bytes_room -= bytes;
        bytes_room_ -= bytes;
    }
    void feed();
    void use_room(ClientSession& session, std::uint64_t method);
    bool transmit(ClientSession& session, ClientCall& call);

    // ---- ends
    ClientCall* answered_by(core::Peer& peer, ByteView frame);
    void release(ClientSession& session, ClientSlot& slot);
    [[gnu::noinline]] void release_unusual(ClientSession& session, ClientSlot& slot);
    void on_failure(core::Peer& peer, core::FrameHead head, ByteView frame);
    WaitingRequest::Ptr request_to_retry(core::Peer& peer, core::FrameHead head, ByteView frame);
    bool rest(ClientCall& call, WaitingRequest::Ptr request, ByteView frame);
    void wake(ClientCall& call);
    void complete(ClientCall& call, const Status& status, ByteView reply);
    void finish(ClientCall& call, const Status& status, ByteView reply);
    void on_data(core::Peer& peer, core::FrameHead head, ByteView frame);
    [[gnu::noinline]] void end_unwritten(ClientSlot& slot);
    void fetch_reply(core::Peer& peer, ByteView frame);
    void on_fetched(CallId id, const Status& status, ByteView reply);
    void finish_failed(ClientCall& call, core::Peer& peer, core::FrameHead head, ByteView frame);
    void finish_early(ClientCall& call, Status status);
    void leave_session(ClientCall& call);
    void forget_request(ClientCall& call);
    void give_up(ClientCall& call);
    void send_cancel(core::Peer& peer, const ClientSlot& slot);
    static void on_deadline(base::Timer& timer, TimePoint now);
    void expire(ClientCall& call);

    // ---- recovery, client_recovery.cc
    ClientSession* session_of(core::Peer& peer);
    void begin(ClientSession& session);
    void begin_anew(ClientSession& session);
    bool send_session(ClientSession& session, std::uint8_t flags);
    void on_grant(core::Peer& peer, ByteView frame);
    void on_told(core::Peer& peer, ByteView frame);
    void ask_all(ClientSession& session);
    bool send_again(ClientSession& session, ClientSlot& slot);
    static WaitingRequest::Ptr take_request(ClientSlot& slot);
    void retake(ClientSession& session, ClientSlot& slot);
    void on_ended(ClientSession& session);
    void take_back(ClientSession& session, ClientSlot& slot);
    void fail_waiting(ClientSession& session, const Status& why);
    void fail_overdue(ClientSession& session);
    void count_lives(ClientSession& session);
    void resolve_unknown(ClientSession& session, Code code, std::string_view why);
    void interrupt(ClientSession& session, const Status& why);
    void search_on(ClientSession& session, const Status& why);
    bool has_searched_enough(ClientSession& session, TimePoint now);
    static void on_search_time(base::Timer& timer, TimePoint now);
    void fail_all(ClientSession& session, const Status& why);
    void forget(ClientSession& session);

    [[gnu::noinline]] void sample(ClientCall& call, const MethodId& method) {
        call.done = sampler_.sample(method, std::move(call.done));
    }
    std::string text_of(const ClientCall& call, TimePoint now) const;

    core::Context& context_;
    bulk::Bulk& bulk_;
    const ClientLimits limits_;
    core::NestedOperations<Client, Completion> nested_{context_, *this};
    Sampler sampler_{context_.clock()};
    base::SlotTable<ClientCall> calls_;
    std::list<ClientSession> sessions_;
    std::vector<bulk::FetchId> fetches_;  // Of large replies, by the slots of their calls.
    WaitingRequest::Ptr spare_lent_;  // So that a steady flow of large requests allocates nothing.
    std::size_t waiting_bytes_ = 0;   // In all queues.
    std::size_t bytes_room_;          // For bodies of calls that are sent and not answered,
    std::uint32_t calls_room_;        // and for how many of those.
    base::IntrusiveList<ClientSession, Hungry> hungry_;  // They take turns.
    Counters counters_;
    const Status ok_ = Status().with_effect(Effect::applied).with_stage(Stage::executing);
    bool closed_ = false;
};

inline void Client::release(ClientSession& session, ClientSlot& slot) {
    if (base::is_mutated(base::Mutant::slot_leak) && !slot.call) return;
    if (base::is_mutated(base::Mutant::credit_double_grant) && !slot.call) --session.busy;
    if (slot.is_unusual) [[unlikely]] {
        release_unusual(session, slot);
    } else {
        slot.call->slot = nullptr;
    }
    ++calls_room_;
    session.bytes_room += slot.bytes;
    bytes_room_ += slot.bytes;
    session.release(slot);
}

// Looked for where a completion is taken, not once in Channel::call: six instructions less.
inline constexpr const char* empty_completion = "Channel::call(), as its completion";

// Here for Channel::call, whose larger part it is.
[[gnu::always_inline]] inline CallId Client::submit(core::PeerRef peer_ref, const MethodId& method,
                                                    BodyWriter body, TimePoint deadline,
                                                    CallTraits traits, Completion&& done) {
    ++counters_.submitted;
    CallEntry* entry = calls_.take();
    if (closed_ || !entry || !context_.is_current(peer_ref)) [[unlikely]] {
        return refuse(entry, std::move(done), why_refused());
    }
    core::Peer* const peer = peer_ref.at;
    ClientSession* const session = peer->client_session;
    const std::size_t bytes = sizeof(RequestHeader) + body.bytes;
    ClientCall& call = entry->value;
    call.client = this;
    call.session = session;
    call.traits = traits;
    std::construct_at(&call.done, std::move(done));  // It was empty.
    if (!call.done) [[unlikely]]
        detail::refuse_empty(empty_completion);
    context_.add_interest(*peer);
    context_.timers().arm(call, deadline);
    // What a slot can't keep, and must, takes the longer way.
    const bool is_direct = session && session->is_direct() && body.bytes < peer->direct_body_end &&
                           may_send(*session, body.bytes) &&
                           (traits.flags == 0 || body.bytes <= ClientSlot::small_bytes_max);
    std::byte* to = is_direct ? context_.reserve(*peer, bytes) : nullptr;
    if (!to) [[unlikely]] {
        call.session = session_of(*peer);
        return submit_queued(*entry, method, BodyWriter(body));
    }
    ClientSlot& slot = session->take();
    slot.call = &call;
    call.slot = &slot;
    account(*session, body.bytes);
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
    call.stage = Stage::sent;
    if (slot.sequence % timed_every == 0) [[unlikely]] {
        sample(call, method);
    }
    context_.commit(*peer, bytes);
    return entry->id();
}

}  // namespace weft::rpc
