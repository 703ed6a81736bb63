// The life of sessions and their connections: begun, lost, resumed, expired.
#include <vector>

#include "base/assert.h"
#include "rpc/server.h"

namespace weft::rpc {

void Server::on_session(core::Peer& peer, ByteView frame) {
    if (!peer.incoming)
        return context_.close_malformed(peer,
                                        "a session frame on a connection that this process opened");
    // With a second session a client would get the shares of two clients.
    if (peer.session_request == core::SessionRequest::accepted ||
        peer.session_request == core::SessionRequest::refused) {
        return context_.close_malformed(peer, "a second session on one connection");
    }
    peer.session_request.move_to(core::SessionRequest::none);
    const auto header = base::load<SessionFrame>(frame.data());
    if (header.id == SessionId()) return context_.close_malformed(peer, "a session with the id 0");
    const bool resumes = (header.head.flags & resume_flag) != 0;
    resumes ? resume_session(peer, header.id) : begin_session(peer, header.id);
}

void Server::begin_session(core::Peer& peer, const SessionId& id) {
    if (sessions_.find(id)) return context_.close_malformed(peer, "a session id that is in use");
    ServerSession* const session =
        sessions_.begin(*this, id, [this](ServerSession& it) { end_session(it); });
    if (!session) {
        refuse_session(peer, SessionReply::full, core::SessionRequest::refused);
        return;
    }
    context_.record_event("client begins", peer.uri);
    sessions_.widen(*session);
    session->window = std::min(session->slots(), window());
    if (phase_ == ServerPhase::ended)
        session->awaited_end = context_.now();  // None of its calls will run.
    attach(*session, peer);
    send_session_grant(peer, SessionReply::granted, session);
}

// The former connection ends first, and its unread frames are dropped. So no request from there can
// arrive after a status of the session's calls.
void Server::resume_session(core::Peer& peer, const SessionId& id) {
    ServerSession* const session = sessions_.find(id);
    if (!session) {
        refuse_session(peer, SessionReply::expired, core::SessionRequest::expired);
        return;
    }
    if (core::Peer* former = session->peer) {
        context_.drop_connection(*former, fail(Code::unavailable, "the client connected again"));
    }
    ++counters_.resumed;
    context_.record_event("client resumes", peer.uri);
    attach(*session, peer);
    await_client(*session, context_.now() + query_grace);
    // An orderly end waits for the replies to the client's queries.
    peer.pulse.all_delivered = context_.now() >= session->awaited_until;
    send_session_grant(peer, SessionReply::resumed, session);
    // Before the client resends calls that were not received.
    if (phase_ == ServerPhase::ended) send_session_ended(*session);
}

void Server::attach(ServerSession& session, core::Peer& peer) {
    WEFT_ASSERT(!peer.server && peer.incoming && peer.state == core::PeerState::up);
    context_.timers().cancel(session);
    sessions_.connect(session, peer, context_.now());
    session.client = peer.uri;
    session.handlers_cancelled = session.is_ended = false;
    peer.server = &session;
    peer.session_request.move_to(core::SessionRequest::accepted);
    session.for_each_call([&](ServerCall&) { context_.add_interest(peer); });
}

void Server::refuse_session(core::Peer& peer, SessionReply why, core::SessionRequest then) {
    if (send_session_grant(peer, why, nullptr)) peer.session_request.move_to(then);
}

// False: the client does not read; its connection was dropped.
bool Server::send_session_grant(core::Peer& peer, SessionReply session_reply,
                                const ServerSession* session) {
    SessionGrantFrame frame;
    frame.head.aux = static_cast<std::uint16_t>(session_reply);
    if (session) {
        frame.slots = session->slots();
        frame.window = session->window;
    }
    const core::Context::Claim claim = context_.claim(peer, sizeof frame);
    if (!claim.data) {
        drop_unread(peer);
        return false;
    }
    base::store(claim.data, frame);
    context_.commit(peer, claim, sizeof frame);
    return true;
}

void Server::on_call_query(core::Peer& peer, ByteView frame) {
    const WireCallId wire = base::load<CallQueryFrame>(frame.data()).call;
    ServerSession& session = *server_session(peer);
    if (wire.slot >= session.slots()) {
        return context_.close_malformed(peer, "a call_query for a slot that does not exist");
    }
    Slot& slot = session.slot(wire.slot);
    const bool is_last = wire.sequence == slot.sequence;
    const bool is_next = wire.sequence == slot.sequence + 1;
    // The request arrived after the session ended, or was reported as not received before.
    const bool is_not_received = slot.retention == ServerSession::Retention::not_received;
    // The query names the number before a slot's first call. A stored outcome is never 0.
    if (is_last && !slot.call && !is_not_received && slot.outcome == 0) {
        return context_.close_malformed(peer, "a call_query for a call that was never sent");
    }
    if (!is_last && !is_next) {
        return context_.close_malformed(peer, "a call_query for a call with an acknowledged reply");
    }
    if (is_last && !slot.call) {
        const bool has_outcome = slot.retention == ServerSession::Retention::reply ||
                                 slot.retention == ServerSession::Retention::outcome;
        if (has_outcome) return resend_outcome(peer, slot, wire);
        // The client may also continue with the next number, if the reply has crossed the query.
        slot.retention.move_to(ServerSession::Retention::not_received);
    }
    CallStatusFrame call_status;
    const bool runs = is_last && slot.call;
    call_status.head.aux =
        static_cast<std::uint16_t>(runs ? CallStatus::executing : CallStatus::not_received);
    call_status.call = wire;
    const core::Context::Claim claim = context_.claim(peer, sizeof call_status);
    if (!claim.data) return drop_unread(peer);
    base::store(claim.data, call_status);
    context_.commit(peer, claim, sizeof call_status);
}

void Server::on_peer_down(core::Peer& peer, const Status&) {
    peer.session_request.move_to(core::SessionRequest::none);
    ServerSession* const session = static_cast<ServerSession*>(std::exchange(peer.server, nullptr));
    if (!session) return;
    sessions_.disconnect(*session, context_.now());
    // A client that has read the end of its session and has all replies does not return.
    const bool has_all = session->is_ended && peer.pulse.all_delivered;
    if (!has_all) session->awaited_until = session->lost_at + reconnect_time(peer.pulse.silent_for);
    await_client(*session, session->awaited_until);
    context_.timers().arm(*session, session->lost_at + cancel_handlers_after);
    fail_inline_puts(*session);
}

// An orderly end waits for a lost client to reconnect and query its calls. The first wait after the
// last handler has answered bounds all later waits of the session: a client that is lost and
// resumes repeatedly does not delay the end.
void Server::await_client(ServerSession& session, TimePoint until) {
    if (phase_ == ServerPhase::ended && session.awaited_end == never) {
        const bool is_awaited = context_.now() < session.awaited_until;
        session.awaited_end = is_awaited ? session.awaited_until + query_grace : context_.now();
    }
    session.awaited_until = std::min(until, session.awaited_end);
}

// The bytes of inline puts were lost with the connection: the reply alone must not report OK.
void Server::fail_inline_puts(ServerSession& session) {
    WEFT_ASSERT(!session.peer);
    std::vector<base::SlotId> failed;
    session.for_each_call([&](ServerCall& call) {
        if (call.slot->retention != ServerSession::Retention::outcome) return;
        ServerSession::keep_nothing(*call.slot, pack(Code::ok, Effect::unknown, Stage::executing));
        WEFT_ASSERT(session.parsed_bytes >= call.parsed_bytes);
        session.parsed_bytes -= call.parsed_bytes;
        call.session = nullptr;
        sessions_.on_call_done(session);
        failed.push_back(base::SlotTable<ServerCall>::entry_of(call).id());
    });
    for (const base::SlotId id : failed) {
        if (Entry* entry = calls_.find(id)) cancel(entry->value);
    }
}

void Server::on_time(ServerSession& session, TimePoint now) {
    WEFT_ASSERT(!session.peer);
    if (!session.handlers_cancelled) {
        context_.timers().arm(session, session.lost_at + session_expires_after);
        return cancel_handlers(session);
    }
    // The session stays until its handlers have answered.
    if (session.held != 0) {
        report_overdue_handlers(session);
        context_.timers().arm(session, now + cancel_handlers_after);
    } else {
        end_session(session);
    }
}

// Collects all ids first: a cancel callback may answer another call of the same client.
void Server::cancel_handlers(ServerSession& session) {
    session.handlers_cancelled = true;
    context_.record_event("client lost", session.client);
    std::vector<base::SlotId> held;
    session.for_each_call([&](ServerCall& call) {
        held.push_back(base::SlotTable<ServerCall>::entry_of(call).id());
    });
    for (const base::SlotId id : held) {
        if (Entry* entry = calls_.find(id)) cancel(entry->value);
    }
}

void Server::on_backlog() { window_.on_backlog(context_.now(), !is_draining()); }

void Server::on_window(std::uint32_t window) {
    context_.record_event("window of clients", "", window);
    sessions_.for_each([&](ServerSession& session) {
        if (session.is_ended) return;
        const std::uint32_t fits = std::min(session.slots(), window);
        if (std::exchange(session.window, fits) == fits || !session.peer) return;
        send_session_grant(*session.peer, SessionReply::granted, &session);
    });
}

// No query will arrive any more. Replies of handlers that still run are dropped.
void Server::end_session(ServerSession& session) {
    std::vector<base::SlotId> held;
    session.for_each_call([&](ServerCall& call) {
        if (session.peer) context_.drop_interest(*session.peer);
        call.session = nullptr;
        held.push_back(base::SlotTable<ServerCall>::entry_of(call).id());
    });
    WEFT_ASSERT(!session.peer || session.peer->server == &session);
    if (session.peer) session.peer->server = nullptr;
    context_.timers().cancel(session);
    sessions_.erase(session);
    for (const base::SlotId id : held) {
        if (Entry* entry = calls_.find(id)) cancel(entry->value);
    }
}

}  // namespace weft::rpc
