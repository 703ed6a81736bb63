// Recovery of a client's calls after their connection is lost: the client reconnects to the server,
// resumes the session and queries each call in doubt. docs/adr/0006-sessions.md has the table.
#include <algorithm>

#include "base/assert.h"
#include "rpc/client.h"

namespace weft::rpc {

static constexpr Duration initial_backoff = 20ms;
// An idempotent call fails after so many server restarts: the call itself may cause them.
static constexpr unsigned server_restarts_max = 5;
static constexpr Duration overdue_check_interval = 20ms;  // At a server that shuts down.

// nullptr: no memory.
ClientSession* Client::session_of(core::Peer& peer) {
    if (ClientSession* const session = client_session(peer)) return session;
    try {
        sessions_.emplace_back(static_cast<CallOwner&>(*this), peer);
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
    ClientSession& session = sessions_.back();
    session.self = std::prev(sessions_.end());
    session.byte_credits = capacity_.limits().sent_bytes_max;
    peer.client = &session;
    if (peer.state == core::PeerState::up) begin(session);
    return &session;
}

// Requests wait for the grant. Suppose one were sent earlier and the session frame were lost: the
// client could not distinguish it from one that ran in a session that has expired at the server.
void Client::begin(ClientSession& session) {
    WEFT_ASSERT(session.peer.state == core::PeerState::up);
    session.reset();
    session.id = {context_.random().next(), context_.random().next()};
    session.incarnation = session.peer.incarnation;
    session.is_granted = false;
    session.granted = session.granted_window = initial_slots;
    session.move_to(SessionState::beginning);
    session.last_error.clear();
    context_.record_event("session begun", session.peer.uri);
    if (send_session(session, 0)) pump(session);
}

// The server found does not have the session. It has as long to reply as a reconnect may take.
void Client::begin_new_session(ClientSession& session) {
    context_.timers().cancel(session);
    session.reconnect_deadline = context_.now() + reconnect_max;
    session.was_extended = false;
    context_.timers().arm(session, session.reconnect_deadline);
    begin(session);
}

// False: the connection was dropped.
bool Client::send_session(ClientSession& session, std::uint8_t flags) {
    WEFT_DCHECK(session.peer.state == core::PeerState::up && session.id != SessionId());
    SessionFrame frame;
    frame.head.flags = flags;
    frame.id = session.id;
    const core::Context::Claim claim = context_.claim(session.peer, sizeof frame);
    if (!claim.data) {
        context_.drop_connection(
            session.peer,
            fail(Code::unavailable, "the queue to the peer has no room for a session frame"));
        return false;
    }
    base::store(claim.data, frame);
    context_.commit(session.peer, claim, sizeof frame);
    return true;
}

void Client::end_session(core::Peer& peer) {
    const ClientSession* const session = client_session(peer);
    const bool is_there = session && session->state != SessionState::none &&
                          session->state != SessionState::reconnecting;
    if (!is_there) return;
    const core::Context::Claim claim = context_.claim(peer, sizeof(SessionEndFrame));
    if (!claim.data) return;  // The server detects the lost connection itself.
    base::store(claim.data, SessionEndFrame());
    context_.commit(peer, claim, sizeof(SessionEndFrame));
}

void Client::on_peer_up(core::Peer& peer) {
    ClientSession* const session = client_session(peer);
    if (!session) return;
    if (session->state == SessionState::none) return begin(*session);
    WEFT_ASSERT(session->state == SessionState::reconnecting);
    context_.timers().cancel(*session);
    if (!session->is_granted) {  // No call of it can have run.
        context_.timers().arm(*session, session->reconnect_deadline);
        return begin(*session);
    }
    if (peer.incarnation != session->incarnation) {
        count_server_restarts(*session);
        resolve_unknown(*session, Code::unavailable, "the server restarted");
        return begin_new_session(*session);
    }
    session->move_to(SessionState::resuming);
    context_.timers().arm(*session, session->reconnect_deadline);
    send_session(*session, resume_flag);
}

// ---- session frames of the server --------------------------------------------------------------

static bool is_possible(const SessionGrantFrame& grant, const ClientSession& session) {
    return grant.slots >= session.granted && grant.slots <= slots_max &&
           grant.slots % ClientSession::block_slots == 0 && grant.window <= grant.slots;
}

void Client::on_session_grant(core::Peer& peer, ByteView frame) {
    const auto grant = base::load<SessionGrantFrame>(frame.data());
    const auto session_reply = static_cast<SessionReply>(grant.head.aux);
    ClientSession* const session = client_session(peer);
    const bool resumes = session && session->state == SessionState::resuming;
    const bool begins = session && session->state == SessionState::beginning;
    const bool is_open = session && session->state == SessionState::open;
    const bool answers = session_reply == SessionReply::granted ? is_open || begins
                         : session_reply == SessionReply::ended ? is_open
                         : session_reply == SessionReply::full  ? begins || resumes
                                                                : resumes;
    if (!answers) return context_.close_malformed(peer, "a session_grant that was not requested");
    if (session_reply == SessionReply::full) {
        peer.attempt.failed_at = context_.now();
        fail_all(*session, fail(Code::resource_exhausted,
                                "the server has reached its limit of client sessions "
                                "(docs/limits.md): try again later"));
        return context_.drop_connection(
            peer, fail(Code::unavailable, "the server has no room for a session"));
    }
    if (session_reply == SessionReply::expired) {
        resolve_unknown(
            *session, Code::aborted,
            "the session expired at the server, because its connection was lost for too "
            "long: check the call's outcome there before repeating it");
        return begin_new_session(*session);
    }
    if (session_reply == SessionReply::ended) return on_session_ended(*session);
    if (!is_possible(grant, *session))
        return context_.close_malformed(peer, "an impossible grant of slots");
    session->granted = grant.slots;
    session->granted_window = grant.window;
    context_.timers().cancel(*session);
    session->was_lost = false;
    if (begins) {
        session->is_granted = true;
        // The session is there only.
        peer.remote.wanted = {.number = static_cast<std::uint16_t>(peer.remote.context + 1)};
        session->move_to(SessionState::open);
    }
    if (resumes) {
        session->last_error.clear();
        session->move_to(SessionState::open);
        ++calls_.counters.resumed;
        context_.record_event("session resumed", peer.uri, session->busy);
    }
    session->update_window();
    if (resumes) query_calls(*session);
    // The connection may be lost again.
    if (session->state == SessionState::open) pump(*session);
}

void Client::query_calls(ClientSession& session) {
    WEFT_ASSERT(session.state == SessionState::open);
    bool has_room = true;
    session.for_each_busy([&](ClientSlot& slot) {
        if (!has_room) return;
        const core::Context::Claim claim = context_.claim(session.peer, sizeof(CallQueryFrame));
        has_room = claim.data != nullptr;
        if (!has_room) return;
        CallQueryFrame query;
        query.call = slot.wire();
        base::store(claim.data, query);
        context_.commit(session.peer, claim, sizeof query);
        slot.is_queried = true;
        slot.queried_sequence = slot.sequence;
    });
    if (has_room) return;
    context_.drop_connection(
        session.peer,
        fail(Code::unavailable, "the queue to the peer has no room for the queries of its calls"));
}

void Client::on_call_status(core::Peer& peer, ByteView frame) {
    const auto call_status = base::load<CallStatusFrame>(frame.data());
    ClientSession* const session = client_session(peer);
    const bool is_there = session && call_status.call.slot < session->allocated;
    ClientSlot* const slot = is_there ? &session->at(call_status.call.slot) : nullptr;
    if (!slot || !std::exchange(slot->is_queried, false)) {
        return context_.close_malformed(peer, "a call_status without a call_query");
    }
    peer.pulse.has_answered = true;
    if (session->find(call_status.call) != slot)
        return;  // The reply arrived while the query was in flight.
    if (static_cast<CallStatus>(call_status.head.aux) == CallStatus::executing) {
        if (!slot->call) send_cancel(peer, *slot);
        return;
    }
    // The server keeps no outcome of an idempotent call.
    if (slot->call && slot->call->traits.is_idempotent()) slot->call->traits.may_have_run = true;
    if (session->state == SessionState::ended) return requeue_or_fail(*session, *slot);
    if (slot->call && slot->is_kept && slot->bytes <= peer.eager_bytes_max) {
        if (resend(*session, *slot)) return;
        --slot->sequence;  // The server waits for this number still.
        requeue(*session, *slot);
        return pump(*session);
    }
    --slot->sequence;  // The server waits for this number still.
    ClientCall* const call = slot->call;
    release(*session, *slot);
    if (call) {
        call->stage.move_to(Stage::queued);
        finish_deferred(*call, fail(Code::unavailable,
                                    call->traits.may_have_run
                                        ? "the connection was lost"
                                        : "the connection was lost before the request arrived"));
    }
    serve_credit_waiters();
    pump(*session);
}

// Sends the same call in the same slot. False: too much waits for the peer already.
bool Client::resend(ClientSession& session, ClientSlot& slot) {
    WEFT_ASSERT(slot.call && slot.is_busy && slot.is_kept);
    const std::size_t bytes = sizeof(RequestHeader) + slot.bytes;
    const core::Context::Claim claim = context_.claim(session.peer, bytes);
    if (!claim.data) return false;
    ++calls_.counters.resent;
    slot.inline_put_failed = false;
    store_request(claim.data, bytes, slot.flags, slot.wire(),
                  to_remaining_us(context_.now(), slot.call->deadline), slot.method);
    std::memcpy(claim.data + sizeof(RequestHeader), slot.body(), slot.bytes);
    context_.commit(session.peer, claim, bytes);
    return true;
}

// ---- calls of ended sessions --------------------------------------------------------------------

// The kept request. nullptr: none is kept, or there is no memory.
WaitingRequest::Ptr Client::take_request(ClientSlot& slot) {
    if (!slot.is_kept || slot.large) return std::move(slot.large);
    WaitingRequest::Ptr request = WaitingRequest::make(slot.method, slot.flags, slot.bytes);
    if (request) std::memcpy(request->body(), slot.small.data(), slot.bytes);
    return request;
}

// Moves the call back to the queue, to be sent again. Requires: the request is kept, and the call
// is idempotent or never ran.
void Client::requeue(ClientSession& session, ClientSlot& slot) {
    WEFT_ASSERT(slot.call && slot.is_busy && slot.is_kept);
    ClientCall& call = *slot.call;
    WaitingRequest::Ptr request = take_request(slot);
    release(session, slot);
    if (!request)
        return finish_deferred(
            call, fail(Code::unavailable, "this process has no memory to send the request again"));
    ++calls_.counters.resent;
    call.waiting = std::move(request);
    enqueue(call, true);
}

// Calls without a reply never ran, except the queried ones: the server still replies to these.
void Client::on_session_ended(ClientSession& session) {
    context_.record_event("session ended by the server", session.peer.uri, session.busy);
    session.move_to(SessionState::ended);
    session.ended_at = context_.now();
    session.is_granted = false;
    session.for_each_busy([&](ClientSlot& slot) {
        // The reply to a query may be that of the call.
        if (!slot.is_queried || slot.queried_sequence != slot.sequence)
            requeue_or_fail(session, slot);
    });
    base::Timer& session_timer = session;
    if (session.waiting.size() != 0 && !session_timer.is_linked()) {
        context_.timers().arm(session_timer, context_.now() + reconnect_max);
    }
    serve_credit_waiters();
}

// Other clients delay the server's shutdown. Each call waits at most `reconnect_max` for the next
// server, counted from when it was queued or the server announced its end. The connection stays
// open for large replies that are being fetched.
void Client::fail_overdue(ClientSession& session) {
    const TimePoint now = context_.now();
    TimePoint next = never;
    session.waiting.for_each([&](ClientCall& call) {
        const TimePoint overdue_at = std::max(call.waiting->at, session.ended_at) + reconnect_max;
        if (overdue_at > now) {
            next = std::min(next, overdue_at);
            return;
        }
        drop_request(call);
        call.stage.move_to(Stage::resolving);
        finish_deferred(call, fail(Code::unavailable, "the server is shutting down"));
    });
    if (next == never) return;
    // Each check visits all waiting calls.
    context_.timers().arm(session, std::max(next, now + overdue_check_interval));
}

// For a call that never ran in a session that ends.
void Client::requeue_or_fail(ClientSession& session, ClientSlot& slot) {
    ClientCall* const call = slot.call;
    WEFT_ASSERT(slot.is_busy);
    if (call) call->stage.move_to(Stage::queued);
    if (call && slot.is_kept) return requeue(session, slot);
    release(session, slot);
    if (call)
        finish_deferred(*call,
                        fail(Code::unavailable, "the server ended before the request arrived"));
}

// For calls that the server had received when it ended.
void Client::count_server_restarts(ClientSession& session) {
    session.for_each_busy([&](ClientSlot& slot) {
        ClientCall* const call = slot.call;
        if (!call || !call->traits.is_idempotent() ||
            ++call->traits.server_restarts < server_restarts_max)
            return;
        finish_deferred(*call, fail(Code::unavailable, "the server ended " +
                                                           std::to_string(server_restarts_max) +
                                                           " times while it had this call"));
        release(session, slot);
    });
}

// The server that had received the calls restarted, or its session expired.
void Client::resolve_unknown(ClientSession& session, Code code, std::string_view why) {
    context_.record_event("session over", session.peer.uri, session.busy);
    session.for_each_busy([&](ClientSlot& slot) {
        if (slot.call && slot.call->traits.is_idempotent() && slot.is_kept) {
            slot.call->traits.may_have_run = true;
            return requeue(session, slot);
        }
        if (slot.call) finish_deferred(*slot.call, fail(code, std::string(why)));
        release(session, slot);
    });
    serve_credit_waiters();
}

// Every call fails; the next one begins a new session.
void Client::fail_all(ClientSession& session, const Status& why) {
    context_.record_event("session given up", session.peer.uri,
                          session.busy + session.waiting.size());
    context_.timers().cancel(session);
    session.for_each_busy([&](ClientSlot& slot) {
        if (slot.call) finish_deferred(*slot.call, why);
        release(session, slot);
    });
    fail_waiting(session, why);
    session.reset();
    session.was_lost = false;
    serve_credit_waiters();
}

void Client::fail_waiting(ClientSession& session, const Status& why) {
    session.waiting.for_each([&](ClientCall& call) {
        drop_request(call);
        call.stage.move_to(Stage::resolving);
        finish_deferred(call, why);
    });
}

void Client::erase_session(ClientSession& session) {
    WEFT_ASSERT(session.peer.client == &session);
    WEFT_ASSERT(session.waiting.size() == 0 && session.fetching.empty());
    context_.timers().cancel(session);
    while (ClientCall* call = session.backing_off.front()) {
        drop_request(*call);
        finish_deferred(*call, fail(Code::cancelled, "the channel was closed"));
    }
    CreditWaiter& node = session;
    if (node.is_linked()) node.unlink();
    session.peer.client = nullptr;
    sessions_.erase(session.self);
}

// ---- reconnecting -------------------------------------------------------------------------------

void Client::on_peer_down(core::Peer& peer, const Status& why) {
    ClientSession* const session = client_session(peer);
    if (!session) return;
    // A large reply that is being fetched is lost with its connection.
    while (ClientCall* call = session->fetching.front()) finish_deferred(*call, why);
    if (peer.is_removed || calls_.closed) {
        fail_all(*session, why);
        return erase_session(*session);
    }
    switch (session->state) {
        case SessionState::none: return fail_all(*session, why);
        case SessionState::beginning:
        case SessionState::open:
        case SessionState::ended:
        case SessionState::resuming: return interrupt(*session, why);
        case SessionState::reconnecting: return continue_reconnect(*session, why);
    }
}

void Client::interrupt(ClientSession& session, const Status& why) {
    // Calls that were queried before the server ended, and not answered.
    if (session.state == SessionState::ended) {
        count_server_restarts(session);
        resolve_unknown(session, Code::unavailable, why.text());
    }
    context_.timers().cancel(session);  // The timer of a reply that did not arrive.
    if (!session.has_calls()) return fail_all(session, why);
    context_.record_event("session interrupted", session.peer.uri, session.busy);
    session.wait_estimator.on_idle();  // Time without a connection does not count.
    session.move_to(SessionState::reconnecting);
    session.last_error = why.text();
    // A connection that is lost before the session is granted belongs to the same reconnect: the
    // backoff doubles, as after a failed connect.
    if (std::exchange(session.was_lost, true)) {
        session.backoff = std::min(2 * session.backoff, reconnect_max);
    } else {
        session.backoff = initial_backoff;
        ++calls_.counters.lost_connections;
        session.reconnect_deadline = context_.now() + reconnect_time(session.peer.pulse.silent_for);
        session.was_extended = false;
    }
    const TimePoint next = context_.now() + with_jitter(session.backoff, context_.random());
    context_.timers().arm(session, std::min(next, session.reconnect_deadline));
}

// If the timer fires late, this process was suspended, and the server may have replied meanwhile.
// The time for the reconnect then starts anew, once.
bool Client::is_reconnect_over(ClientSession& session, TimePoint now) {
    constexpr Duration late = 100ms;
    if (now < session.reconnect_deadline) return false;
    if (now - session.reconnect_deadline < late || std::exchange(session.was_extended, true))
        return true;
    session.backoff = initial_backoff;
    session.reconnect_deadline = now + reconnect_max;
    return false;
}

// An attempt has failed.
void Client::continue_reconnect(ClientSession& session, const Status& why) {
    context_.timers().cancel(session);
    session.last_error = why.text();
    if (why.code() == Code::out_of_range) return fail_all(session, why);
    if (is_reconnect_over(session, context_.now())) {
        return fail_all(session, fail(Code::unavailable, session.last_error));
    }
    session.backoff = std::min(2 * session.backoff, reconnect_max);
    const TimePoint next = context_.now() + with_jitter(session.backoff, context_.random());
    context_.timers().arm(session, std::min(next, session.reconnect_deadline));
}

void Client::on_session_timer(ClientSession& session, TimePoint now) {
    WEFT_ASSERT(session.state != SessionState::none && session.state != SessionState::open);
    core::Peer& peer = session.peer;
    if (session.state == SessionState::ended) {
        return fail_overdue(session);
    }
    const bool is_over = is_reconnect_over(session, now);
    if (is_over && peer.state != core::PeerState::idle) {
        // The disconnect fails all calls of the session.
        return context_.drop_connection(peer, fail(Code::unavailable, "the peer does not answer"));
    }
    // A session that was announced to the server stays until the server has replied.
    const bool is_announced = session.state != SessionState::reconnecting;
    if (!is_announced && (is_over || !session.has_calls())) {
        return fail_all(session, fail(Code::unavailable, session.last_error));
    }
    if (peer.state == core::PeerState::idle) context_.connect(peer);
    context_.timers().arm(session, session.reconnect_deadline);
}

}  // namespace weft::rpc
