#include "rpc/client.h"

#include "base/assert.h"

namespace weft::rpc {

// The limit of every transport; used while the transport to the peer is not known.
static constexpr std::size_t eager_bytes_assumed = 16u << 10;
// About the time from a request to its reply at a busy server.
static constexpr Duration busy_reply_time = 30ms;

Client::Client(core::Context& context, bulk::Bulk& bulk, const ClientLimits& limits)
    : context_(context), regions_(*bulk.regions), bodies_(bulk.rendezvous), capacity_(limits) {
    context_.set_sink(core::FrameKind::reply, *this);
    context_.set_sink(core::FrameKind::session_grant, *this);
    context_.set_sink(core::FrameKind::call_status, *this);
    context_.set_sink(core::FrameKind::bulk_data, *this);
}

// A remaining call was retried without end after shutdown, until its pending completion was
// dropped.
Client::~Client() {
    WEFT_DCHECK(is_balanced() && capacity_.waiting_bytes() == 0);
    calls_.for_each([&](CallEntry& entry) {
        WEFT_DCHECK(calls_.closed && entry.value.completion_pending);
        context_.undefer(entry.value);
        calls_.release(entry);
    });
}

std::size_t Client::eager_bytes_max(const core::Peer& peer) const {
    return peer.state == core::PeerState::up ? peer.eager_bytes_max : eager_bytes_assumed;
}

CallId Client::submit_nested(core::CallScope& scope, core::PeerRef peer, const MethodId& method,
                             const BodyWriter& body, TimePoint deadline, CallTraits traits,
                             Completion&& done) {
    if (!done) detail::refuse_empty(empty_completion);
    if (scope.cancelled) {
        return submit_refused(&scope, std::move(done),
                              fail(Code::cancelled, core::scope_cancelled_text));
    }
    if (scope.is_expired(context_.clock())) {
        return submit_refused(&scope, std::move(done), core::scope_expired_status());
    }
    CallId id;
    traits.is_nested = true;
    const bool is_started = nested_.start(scope, done, [&](Completion inner) {
        return id = submit_to(peer, method, BodyWriter(body), std::min(deadline, scope.deadline),
                              traits, std::move(inner));
    });
    if (!is_started) {
        ++calls_.counters.submitted;
        return refuse(nullptr, std::move(done), why_refused());
    }
    return id;
}

CallId Client::submit_to(core::PeerRef peer, const MethodId& method, BodyWriter body,
                         TimePoint deadline, CallTraits traits, Completion&& done) {
    if (peer.generation == 0 && !calls_.closed)
        return submit_refused(nullptr, std::move(done), context_.why_no_peer());
    return submit(peer, method, body, deadline, traits, std::move(done));
}

CallId Client::submit_refused(core::CallScope* scope, Completion&& done, const Status& why) {
    ++calls_.counters.submitted;
    CallId id;
    const bool is_nested = scope && nested_.start(*scope, done, [&](Completion inner) {
        return id = refuse(calls_.take(), std::move(inner), why);
    });
    return is_nested ? id : refuse(calls_.take(), std::move(done), why);
}

// ---- requests that wait ------------------------------------------------------------------------

// For calls that can't be sent at once: not connected yet, other calls wait, no slot is free, the
// transport is full, or the body is too large.
CallId Client::submit_queued(CallEntry& entry, const MethodId& method, const BodyWriter& body) {
    ClientCall& call = entry.value;
    WEFT_DCHECK(call.done && !call.slot && !call.waiting);
    call.stage.restart(Stage::queued);
    if (!call.session) return refuse_full(entry, body.bytes);
    ClientSession& session = *call.session;
    core::Peer& peer = session.peer;
    const bool by_rendezvous = body.bytes > eager_bytes_max(peer);
    const std::size_t bytes = by_rendezvous ? sizeof(bulk::RendezvousBody) : body.bytes;
    if (by_rendezvous && body.bytes > bodies_.rendezvous().body_bytes_max()) {
        return refuse_size(entry, body.bytes);
    }
    if (calls_.counters.submitted % calls_per_sample == 0) sample(call, method);
    if (!capacity_.has_room(session.waiting, bytes)) return refuse_full(entry, bytes);
    if (is_too_late(session, call)) return refuse_late(entry);
    call.waiting = by_rendezvous ? bodies_.take_request(method.hash, call.traits.flags)
                                 : WaitingRequest::make(method.hash, call.traits.flags, bytes);
    if (!call.waiting) return refuse_full(entry, bytes);
    if (by_rendezvous) {
        if (!prepare_rendezvous(call, body)) return entry.id();
    } else {
        body(call.waiting->body());
    }
    enqueue(call, false);
    if (session.state == SessionState::open) {
        pump(session);
    } else if (peer.state == core::PeerState::idle && session.state == SessionState::none) {
        context_.connect(peer);
    }
    return entry.id();
}

// False: the call has ended.
bool Client::prepare_rendezvous(ClientCall& call, const BodyWriter& body) {
    WEFT_ASSERT(call.session && call.waiting->bytes == sizeof(bulk::RendezvousBody));
    Result<bulk::RendezvousBuffer> rendezvous = bodies_.rendezvous().prepare(
        call.session->peer, body.bytes, bulk::Rendezvous::SendTime::later);
    if (!rendezvous) {
        call.waiting = nullptr;
        finish_deferred(call, std::move(rendezvous)
                                  .status()
                                  .in("a request of " + std::to_string(body.bytes) + " bytes"));
        return false;
    }
    write_out(context_, call.session->peer, body, rendezvous->memory.data());
    call.waiting->flags |= rendezvous_flag;
    base::store(call.waiting->body(), rendezvous->where);
    return true;
}

// False: the call has ended.
bool Client::bind_rendezvous(ClientCall& call) {
    core::Peer& peer = call.session->peer;
    auto where = base::load<bulk::RendezvousBody>(call.waiting->body());
    if (Status why = bodies_.rendezvous().bind_to_connection(peer, where); !why.ok()) {
        drop_request(call);
        finish_deferred(call, std::move(why));
        return false;
    }
    base::store(call.waiting->body(), where);
    return true;
}

void Client::enqueue(ClientCall& call, bool first) {
    WEFT_ASSERT(call.session && call.waiting && !call.slot);
    WEFT_DCHECK(!call.completion_pending && !call.is_backing_off);
    WaitQueue& queue = call.session->waiting;
    first ? queue.push_front(call) : queue.push_back(call);
    capacity_.on_queued(call.waiting->size());
    call.stage.move_on_hot_path(Stage::queued);
    call.waiting->at = context_.now();
    base::Timer& session_timer = *call.session;
    if (call.session->state == SessionState::ended && !session_timer.is_linked()) {
        context_.timers().arm(session_timer, context_.now() + reconnect_max);
    }
}

// The request stays with the call.
void Client::dequeue(ClientCall& call) {
    WEFT_ASSERT(call.session && call.waiting);
    call.session->waiting.remove(call);
    capacity_.on_dequeued(call.waiting->size());
    if (call.session->waiting.size() == 0) call.session->wait_estimator.on_idle();
}

// Sends the waiting calls that have a slot, credits and room in the transport.
void Client::pump(ClientSession& session) {
    while (ClientCall* call = session.waiting.front()) {
        if (!session.may_take(*call) || !session.has_free()) return;
        if (!capacity_.may_send_after_reach(session, call->waiting->bytes)) {
            // Its own byte credits return with its own replies, which pump() again.
            const bool is_own = call->waiting->bytes > session.byte_credits;
            if (!is_own) capacity_.wait_for_credits(session);
            return;
        }
        if (!transmit(session, *call)) return;
    }
    session.wait_estimator.on_idle();
}

// Credits are free again: the waiting sessions take turns.
void Client::serve_credit_waiters() {
    while (ClientSession* session = capacity_.next_waiter()) {
        pump(*session);
        if (static_cast<CreditWaiter&>(*session).is_linked()) return;  // The credits are used up.
    }
}

// Other contexts do not report credits that they return: sessions that wait look for them here.
bool Client::trim_shares() {
    serve_credit_waiters();
    const bool has_extra = capacity_.trim_shares();
    return has_extra || capacity_.has_waiters();
}

// False: the transport has no room now.
bool Client::transmit(ClientSession& session, ClientCall& call) {
    WEFT_ASSERT(call.session == &session && call.waiting && !call.slot);
    WEFT_DCHECK(session.state == SessionState::open);
    core::Peer& peer = session.peer;
    WaitingRequest& request = *call.waiting;
    const bool is_rendezvous = (request.flags & rendezvous_flag) != 0;
    if (peer.direct_body_end == 0) return false;
    if (!is_rendezvous && request.bytes > peer.eager_bytes_max) {
        // The call waited for a connection, and its body is too large for the transport found.
        dequeue(call);
        refuse_size(entry_of(call), std::exchange(call.waiting, nullptr)->bytes);
        return true;
    }
    const std::size_t bytes = request.size();
    if (is_rendezvous && !bind_rendezvous(call)) return true;
    std::byte* to = context_.reserve(peer, bytes);
    if (!to) return false;
    if (is_rendezvous) {
        bodies_.rendezvous().mark_sent(peer, base::load<bulk::RendezvousBody>(request.body()));
    }
    dequeue(call);
    const bool is_extra = !session.has_plain_room();
    ClientSlot& slot = session.take();
    if (is_extra) session.take_extra(slot);
    slot.call = &call;
    call.slot = &slot;
    capacity_.take(session, request.bytes);
    store_request(to, bytes, request.flags, slot.wire(),
                  to_remaining_us(context_.now(), call.deadline), request.method);
    const BodyWriter body = BodyWriter::of({request.body(), request.bytes});
    write_out(context_, peer, body, to + sizeof(RequestHeader));
    if (slot.describe(request.method, request.flags, request.bytes)) slot.keep(request.body());
    if (is_rendezvous) slot.is_kept = false;  // A rendezvous buffer is valid for one connection.
    if (!slot.is_kept && !is_rendezvous && call.traits.is_idempotent()) {
        slot.is_kept = true;
        slot.is_unusual = true;
        slot.large = std::move(call.waiting);
    }
    if (is_rendezvous) bodies_.give_back(std::move(call.waiting));
    call.waiting = nullptr;
    call.stage.move_on_hot_path(Stage::sent);
    context_.commit(peer, bytes);
    return true;
}

// True: with the calls ahead of it, too little of its time would be left when it is sent, even at
// the server's recent rate. The rate is known to about a fifth, and replies take a while. Calls
// sent later would expire shortly after, and would cost the server as much as useful calls.
bool Client::is_too_late(const ClientSession& session, const ClientCall& call) const {
    const WaitQueue& queue = session.waiting;
    if (queue.ahead_of(call) == 0) return false;
    const TimePoint now = context_.now();
    const Duration left = call.deadline - now;
    const TimePoint latest = call.deadline - std::min(left / 2, left / 5 + busy_reply_time);
    return session.wait_estimator.expected(
               now, [&](std::uint64_t method) { return queue.ahead_of(call, method); }) > latest;
}

void Client::on_room(core::Peer& peer) {
    if (ClientSession* const session = client_session(peer)) pump(*session);
}

// ---- refusals ----------------------------------------------------------------------------------

Status Client::why_refused() const {
    return calls_.closed
               ? fail(Code::cancelled, "the runtime is shutting down")
               : fail(Code::unavailable,
                      "the last copy of the channel was dropped before the call began: keep one "
                      "as long as calls are made by it");
}

CallId Client::refuse(CallEntry* entry, Completion&& done, Status why) {
    if (!done) detail::refuse_empty(empty_completion);
    if (!entry) {
        // Without a record the completion can't be deferred: this is the only case in which it runs
        // inside the call.
        ++calls_.counters.completed[static_cast<std::size_t>(Code::resource_exhausted)];
        done(fail(Code::resource_exhausted,
                  std::to_string(calls_.taken()) +
                      " calls are in flight, and there is no room for one more"),
             {});
        return {};
    }
    WEFT_ASSERT(!entry->value.slot && !entry->value.waiting);
    entry->value.owner = this;
    entry->value.session = nullptr;
    entry->value.done = std::move(done);
    entry->value.stage.restart(Stage::none);
    finish_deferred(entry->value, std::move(why));
    return entry->id();
}

CallId Client::refuse_size(CallEntry& entry, std::size_t bytes) {
    WEFT_ASSERT(entry.value.session && !entry.value.waiting);
    const core::Peer& peer = entry.value.session->peer;
    // A call that waited for a connection may be too large for the transport found.
    const std::size_t most = bytes > bodies_.rendezvous().body_bytes_max()
                                 ? bodies_.rendezvous().body_bytes_max()
                                 : peer.eager_bytes_max;
    finish_deferred(entry.value,
                    fail(Code::invalid_argument,
                         "a request of " + std::to_string(bytes) + " bytes exceeds the limit of " +
                             std::to_string(most) + " bytes; pass large data by weft.BulkRef"));
    return entry.id();
}

CallId Client::refuse_full(CallEntry& entry, std::size_t bytes) {
    ClientCall& call = entry.value;
    if (!call.session) {
        finish_deferred(call,
                        fail(Code::resource_exhausted, "this process has no memory for a session"));
        return entry.id();
    }
    const core::Peer& peer = call.session->peer;
    const WaitQueue& queue = call.session->waiting;
    if (bytes + sizeof(RequestHeader) > capacity_.limits().waiting_bytes_max) {
        finish_deferred(call, fail(Code::invalid_argument,
                                   "the request is larger than anything that " + peer.uri +
                                       " could take; pass large data by weft.BulkRef"));
        return entry.id();
    }
    context_.record_event("refused: queue full", peer.uri, queue.size());
    finish_deferred(call,
                    fail(Code::resource_exhausted, "the queue to " + peer.uri + " is full (" +
                                                       std::to_string(queue.size()) + " calls, " +
                                                       std::to_string(queue.bytes()) + " bytes)"));
    return entry.id();
}

CallId Client::refuse_late(CallEntry& entry) {
    ClientCall& call = entry.value;
    WEFT_ASSERT(call.session && !call.waiting);
    const WaitQueue& queue = call.session->waiting;
    context_.record_event("refused: too late", call.session->peer.uri, queue.size());
    finish_deferred(call, fail(Code::resource_exhausted,
                               "the " + std::to_string(queue.size()) + " calls that wait for " +
                                   call.session->peer.uri + " leave this call too little time"));
    return entry.id();
}

}  // namespace weft::rpc
