// Sessions as their connections come and go: begun, lost, resumed, forgotten.
#include <vector>

#include "base/mutant.h"
#include "rpc/server.h"

namespace weft::rpc {

void Server::on_session(core::Peer& peer, ByteView frame) {
    if (!peer.incoming) return context_.broken(peer, "a session from whom we called");
    if (peer.server_session || peer.is_refused) {
        return context_.broken(peer, "a second session on one connection");
    }
    peer.is_unknown = false;
    const auto header = base::load<SessionFrame>(frame.data());
    const bool resumes = (header.head.flags & resume_flag) != 0;
    resumes ? resume_session(peer, header.id) : begin_session(peer, header.id);
}

// The tables of a session cost as much as a hundred small frames: of one connection so many are
// made in a turn.
static constexpr std::uint32_t begins_per_turn = 16;

bool Server::begins_too_many(const core::Peer& peer) {
    if (beginner_ != &peer || began_at_ != context_.now()) {
        beginner_ = &peer;
        began_at_ = context_.now();
        begun_ = 0;
    }
    return ++begun_ > begins_per_turn;
}

void Server::begin_session(core::Peer& peer, const SessionId& id) {
    if (sessions_.find(id)) return context_.broken(peer, "a session that is there already");
    ServerSession* session = nullptr;
    if (!begins_too_many(peer)) {
        session = sessions_.begin(*this, id, [this](ServerSession& it) { end_session(it); });
    }
    if (!session) {
        peer.is_refused = send_grant(peer, Verdict::full, nullptr);
        return;
    }
    context_.note("client begins", peer.uri);
    sessions_.widen(*session);
    session->fire = &Server::on_time;
    session->window = std::min(session->slots(), window_);
    if (is_ended_) session->awaited_end = context_.now();  // No call of it runs.
    attach(*session, peer);
    send_grant(peer, Verdict::granted, session);
}

// The former connection ends first, and what was unread there with it: nothing that is said about
// the session's calls afterwards can be overtaken by a request from there.
void Server::resume_session(core::Peer& peer, const SessionId& id) {
    ServerSession* const session = sessions_.find(id);
    if (!session) {
        peer.is_unknown = send_grant(peer, Verdict::expired, nullptr);
        return;
    }
    if (core::Peer* former = session->peer) {
        context_.drop_connection(*former, fail(Code::unavailable, "the client connected again"));
    }
    ++counters_.resumed;
    context_.note("client resumes", peer.uri);
    attach(*session, peer);
    await(*session, context_.now() + asks_within);
    // An orderly end waits until it has what it asks for.
    peer.has_all = context_.now() >= session->awaited_until;
    send_grant(peer, Verdict::resumed, session);
    // Before it sends again what never came.
    if (is_ended_) say_ended(*session);
}

void Server::attach(ServerSession& session, core::Peer& peer) {
    context_.timers().cancel(session);
    sessions_.connect(session, peer, context_.now());
    session.client = peer.uri;
    session.is_told = session.is_over = false;
    peer.server_session = &session;
    session.for_each_call([&](ServerCall&) { context_.add_interest(peer); });
}

// False: the client reads nothing.
bool Server::send_grant(core::Peer& peer, Verdict verdict, const ServerSession* session) {
    GrantFrame frame;
    frame.head.aux = static_cast<std::uint16_t>(verdict);
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

void Server::on_ask(core::Peer& peer, ByteView frame) {
    const WireCallId wire = base::load<AskFrame>(frame.data()).call;
    ServerSession& session = *peer.server_session;
    if (wire.slot >= session.slots()) {
        return context_.broken(peer, "a question about a slot that is not there");
    }
    Slot& slot = session.slot(wire.slot);
    const bool is_last = wire.sequence == slot.sequence;
    const bool is_next = wire.sequence == slot.sequence + 1;
    // It came when its session was over, or was asked for before.
    const bool is_denied = slot.keeps == ServerSession::Keeps::denied &&
                           !base::is_mutated(base::Mutant::denial_forgotten);
    // Of the number in front of a slot's first call. An outcome is never 0, whatever the call's.
    if (is_last && !slot.call && !is_denied && slot.outcome == 0) {
        return context_.broken(peer, "a question about a call that was never made");
    }
    if (!is_last && !is_next) {
        return context_.broken(peer, "a question about a call that was answered");
    }
    if (is_last && !slot.call) {
        const bool forgets = base::is_mutated(base::Mutant::cache_miss);
        const bool has_outcome = slot.keeps == ServerSession::Keeps::reply ||
                                 slot.keeps == ServerSession::Keeps::outcome;
        if (has_outcome && !forgets) return send_outcome(peer, slot, wire);
        // Or the next number comes, when the reply has crossed the question.
        slot.keeps = ServerSession::Keeps::denied;
    }
    ToldFrame told;
    const bool runs = (is_last && slot.call) || base::is_mutated(base::Mutant::stale_sequence);
    told.head.aux = static_cast<std::uint16_t>(runs ? Standing::executing : Standing::never_came);
    told.call = wire;
    const core::Context::Claim claim = context_.claim(peer, sizeof told);
    if (!claim.data) return drop_unread(peer);
    base::store(claim.data, told);
    context_.commit(peer, claim, sizeof told);
}

void Server::on_peer_down(core::Peer& peer, const Status&) {
    peer.is_refused = peer.is_unknown = false;
    ServerSession* const session = std::exchange(peer.server_session, nullptr);
    if (!session) return;
    sessions_.lose(*session, context_.now());
    // A client that read that its session is over, and has all, does not come back.
    const bool has_all = session->is_over && peer.has_all;
    if (!has_all) session->awaited_until = session->lost_at + search_time(peer.silence);
    await(*session, session->awaited_until);
    context_.timers().arm(*session, session->lost_at + told_after);
    forsake_riders(*session);
}

// An orderly end waits until a client that was lost is there again and has asked. The first wait of
// a session after the last handler has answered bounds those that follow: a client that is lost and
// resumes without end does not hold it up.
void Server::await(ServerSession& session, TimePoint until) {
    if (is_ended_ && session.awaited_end == never) {
        const bool is_awaited = context_.now() < session.awaited_until;
        session.awaited_end = is_awaited ? session.awaited_until + asks_within : context_.now();
    }
    session.awaited_until = std::min(until, session.awaited_end);
}

// What a handler has put to ride went with the connection: its reply alone must not say OK.
void Server::forsake_riders(ServerSession& session) {
    std::vector<base::SlotId> forsaken;
    session.for_each_call([&](ServerCall& call) {
        if (call.slot->keeps != ServerSession::Keeps::outcome) return;
        ServerSession::keep_nothing(*call.slot, pack(Code::ok, Effect::unknown, Stage::executing));
        session.parsed_bytes -= call.parsed_bytes;
        call.session = nullptr;
        sessions_.on_call_over(session);
        forsaken.push_back(base::SlotTable<ServerCall>::entry_of(call).id());
    });
    for (const base::SlotId id : forsaken) {
        if (Entry* entry = calls_.find(id)) cancel(entry->value);
    }
}

void Server::on_time(base::Timer& timer, TimePoint now) {
    auto& session = static_cast<ServerSession&>(timer);
    session.server.look_at_lost(session, now);
}

void Server::look_at_lost(ServerSession& session, TimePoint now) {
    if (!session.is_told) {
        context_.timers().arm(session, session.lost_at + forgotten_after);
        return tell_handlers(session);
    }
    // Its handlers' answers have to find it; then it may go.
    if (session.held != 0) {
        look_for_overstays(session);
        context_.timers().arm(session, now + told_after);
    } else {
        end_session(session);
    }
}

// First all of them, then the notices: one may answer another call of the same client.
void Server::tell_handlers(ServerSession& session) {
    session.is_told = true;
    context_.note("client lost", session.client);
    std::vector<base::SlotId> held;
    session.for_each_call([&](ServerCall& call) {
        held.push_back(base::SlotTable<ServerCall>::entry_of(call).id());
    });
    for (const base::SlotId id : held) {
        if (Entry* entry = calls_.find(id)) cancel(entry->value);
    }
}

// ---- load ---------------------------------------------------------------------------------------
// Requests that pile up lie before the handlers until their clients have given up. So clients are
// told to have fewer here at once: half, as long as there is a backlog, and twice as many when
// there was none for a while (CoDel's sign of a standing queue, Nichols and Jacobson 2012, with
// credits instead of drops).

void Server::on_backlog() {
    backlog_at_ = context_.now();
    if (window_ <= window_least || draining_) return;
    set_window(std::max(window_least, window_ / 2));
    widening_.server = this;
    widening_.fire = [](base::Timer& timer, TimePoint now) {
        static_cast<Widening&>(timer).server->widen(now);
    };
    if (!widening_.is_linked()) {
        context_.timers().arm(widening_, context_.now() + widen_after);
    }
}

void Server::widen(TimePoint now) {
    if (now - backlog_at_ >= widen_after) set_window(std::min(slots_max, window_ * 2));
    if (window_ < slots_max) context_.timers().arm(widening_, now + widen_after);
}

void Server::set_window(std::uint32_t window) {
    window_ = window;
    context_.note("window of clients", "", window);
    sessions_.for_each([&](ServerSession& session) {
        if (session.is_over) return;
        const std::uint32_t fits = std::min(session.slots(), window);
        if (std::exchange(session.window, fits) == fits || !session.peer) return;
        send_grant(*session.peer, Verdict::granted, &session);
    });
}

// Nobody will ask any more. Handlers that still run answer to nobody.
void Server::end_session(ServerSession& session) {
    std::vector<base::SlotId> held;
    session.for_each_call([&](ServerCall& call) {
        if (session.peer) context_.drop_interest(*session.peer);
        call.session = nullptr;
        held.push_back(base::SlotTable<ServerCall>::entry_of(call).id());
    });
    if (session.peer) session.peer->server_session = nullptr;
    context_.timers().cancel(session);
    sessions_.erase(session);
    for (const base::SlotId id : held) {
        if (Entry* entry = calls_.find(id)) cancel(entry->value);
    }
}

}  // namespace weft::rpc
