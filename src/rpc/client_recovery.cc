// What becomes of a client's calls when their connection is lost: the server is searched for, its
// session resumed, and each call in doubt asked for. docs/adr/0006-sessions.md has the table.
#include <algorithm>

#include "base/assert.h"
#include "base/mutant.h"
#include "rpc/client.h"

namespace weft::rpc {

static constexpr Duration first_pause = 20ms;
// So often an idempotent call may meet the end of its server: it may be what ends it.
static constexpr unsigned lives_max = 5;
static constexpr Duration overdue_look = 20ms;  // Between two looks at calls to a server that ends.

// nullptr: no memory.
ClientSession* Client::session_of(core::Peer& peer) {
    if (peer.client_session) return peer.client_session;
    try {
        sessions_.emplace_back(*this, peer);
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
    ClientSession& session = sessions_.back();
    session.self = std::prev(sessions_.end());
    session.bytes_room = limits_.sent_bytes_max;
    session.fire = &Client::on_search_time;
    peer.client_session = &session;
    if (peer.state == core::PeerState::up) begin(session);
    return &session;
}

// Requests wait for the grant. One that had left before it, with a session frame that got lost,
// could not be told from one that ran in a session that the server has forgotten since.
void Client::begin(ClientSession& session) {
    session.reset();
    session.id = {context_.random().next(), context_.random().next()};
    session.incarnation = session.peer.incarnation;
    session.is_granted = base::is_mutated(base::Mutant::grant_presumed);
    session.state = session.is_granted ? SessionState::open : SessionState::beginning;
    session.granted = session.granted_window = slots_at_first;
    session.update_window();
    session.last_why.clear();
    context_.note("session begun", session.peer.uri);
    if (send_session(session, 0)) pump(session);
}

// A server is found that does not know the session: it has as long to answer as the search for it.
void Client::begin_anew(ClientSession& session) {
    context_.timers().cancel(session);
    session.until = context_.now() + search_max;
    session.was_late = false;
    context_.timers().arm(session, session.until);
    begin(session);
}

// False: the connection is gone.
bool Client::send_session(ClientSession& session, std::uint8_t flags) {
    SessionFrame frame;
    frame.head.flags = flags;
    frame.id = session.id;
    const core::Context::Claim claim = context_.claim(session.peer, sizeof frame);
    if (!claim.data) {
        context_.drop_connection(session.peer,
                                 fail(Code::unavailable, "no room to speak to the peer"));
        return false;
    }
    base::store(claim.data, frame);
    context_.commit(session.peer, claim, sizeof frame);
    return true;
}

void Client::end_session(core::Peer& peer) {
    const ClientSession* const session = peer.client_session;
    const bool is_there = session && session->state != SessionState::none &&
                          session->state != SessionState::searching;
    if (!is_there) return;
    const core::Context::Claim claim = context_.claim(peer, sizeof(SessionEndFrame));
    if (!claim.data) return;  // The server finds out by itself.
    base::store(claim.data, SessionEndFrame());
    context_.commit(peer, claim, sizeof(SessionEndFrame));
}

void Client::on_peer_up(core::Peer& peer) {
    ClientSession* const session = peer.client_session;
    if (!session) return;
    if (session->state == SessionState::none) return begin(*session);
    WEFT_DCHECK(session->state == SessionState::searching);
    context_.timers().cancel(*session);
    if (!session->is_granted) {  // Nothing of it can have run.
        if (base::is_mutated(base::Mutant::unheard_forgotten)) {
            session->waiting.for_each([](ClientCall& call) { call.traits.may_run = true; });
            fail_all(*session, fail(Code::aborted, "the server has forgotten the session"));
        }
        context_.timers().arm(*session, session->until);
        return begin(*session);
    }
    if (peer.incarnation != session->incarnation) {
        count_lives(*session);
        resolve_unknown(*session, Code::unavailable, "the server restarted");
        return begin_anew(*session);
    }
    session->state = SessionState::resuming;
    context_.timers().arm(*session, session->until);
    send_session(*session, resume_flag);
}

// ---- what the server says ----------------------------------------------------------------------

static bool is_possible(const GrantFrame& grant, const ClientSession& session) {
    return grant.slots >= session.granted && grant.slots <= slots_max &&
           grant.slots % ClientSession::block_slots == 0 && grant.window <= grant.slots;
}

void Client::on_grant(core::Peer& peer, ByteView frame) {
    const auto grant = base::load<GrantFrame>(frame.data());
    const auto verdict = static_cast<Verdict>(grant.head.aux);
    ClientSession* const session = peer.client_session;
    const bool resumes = session && session->state == SessionState::resuming;
    const bool begins = session && session->state == SessionState::beginning;
    const bool is_open = session && session->state == SessionState::open;
    const bool answers = verdict == Verdict::granted ? is_open || begins
                         : verdict == Verdict::ended ? is_open
                         : verdict == Verdict::full  ? begins || resumes
                                                     : resumes;
    if (!answers) return context_.broken(peer, "an answer about a session that was not asked for");
    if (verdict == Verdict::full) {
        fail_all(*session, fail(Code::resource_exhausted,
                                "the server has as many sessions of clients as it keeps "
                                "(docs/limits.md): try again later"));
        return context_.drop_connection(
            peer, fail(Code::unavailable, "the server has no place for a session"));
    }
    if (verdict == Verdict::expired) {
        resolve_unknown(*session, Code::aborted,
                        "the server has forgotten the session, whose connection was lost for too "
                        "long: ask it what became of the call before repeating it");
        return begin_anew(*session);
    }
    if (verdict == Verdict::ended) return on_ended(*session);
    if (!is_possible(grant, *session)) return context_.broken(peer, "an impossible grant of slots");
    session->granted = grant.slots;
    session->granted_window = grant.window;
    context_.timers().cancel(*session);
    session->was_lost = false;
    if (begins) {
        session->is_granted = true;
        session->state = SessionState::open;
    }
    if (resumes) {
        session->last_why.clear();
        session->state = SessionState::open;
        ++counters_.resumed;
        context_.note("session resumed", peer.uri, session->busy);
    }
    session->update_window();
    if (resumes) ask_all(*session);
    // The connection may be gone again.
    if (session->state == SessionState::open) pump(*session);
}

void Client::ask_all(ClientSession& session) {
    bool has_room = true;
    session.for_each_busy([&](ClientSlot& slot) {
        if (!has_room) return;
        const core::Context::Claim claim = context_.claim(session.peer, sizeof(AskFrame));
        has_room = claim.data != nullptr;
        if (!has_room) return;
        AskFrame ask;
        ask.call = slot.wire();
        base::store(claim.data, ask);
        context_.commit(session.peer, claim, sizeof ask);
        slot.is_asked = true;
        slot.asked = slot.sequence;
    });
    if (has_room) return;
    context_.drop_connection(session.peer, fail(Code::unavailable, "no room to speak to the peer"));
}

void Client::on_told(core::Peer& peer, ByteView frame) {
    const auto told = base::load<ToldFrame>(frame.data());
    ClientSession* const session = peer.client_session;
    const bool is_there = session && told.call.slot < session->made;
    ClientSlot* const slot = is_there ? &session->at(told.call.slot) : nullptr;
    if (!slot || !std::exchange(slot->is_asked, false)) {
        return context_.broken(peer, "an answer to a question that was not asked");
    }
    peer.answered = true;
    if (session->find(told.call) != slot) return;  // It was answered while the question was asked.
    if (static_cast<Standing>(told.head.aux) == Standing::executing) {
        if (!slot->call) send_cancel(peer, *slot);
        return;
    }
    // Of one that may run again the server keeps nothing.
    if (slot->call && slot->call->traits.is_idempotent()) slot->call->traits.may_run = true;
    if (session->state == SessionState::ended) return take_back(*session, *slot);
    if (slot->call && slot->is_kept && slot->bytes <= peer.eager_bytes_max) {
        if (send_again(*session, *slot)) return;
        --slot->sequence;  // The server waits for this number still.
        retake(*session, *slot);
        return pump(*session);
    }
    --slot->sequence;  // The server waits for this number still.
    ClientCall* const call = slot->call;
    release(*session, *slot);
    if (call) {
        call->stage = Stage::queued;
        finish_early(*call, fail(Code::unavailable,
                                 call->traits.may_run ? "its connection was lost"
                                                      : "the connection was lost before it came"));
    }
    feed();
    pump(*session);
}

// The same call in the same slot. False: as much waits for the peer as may.
bool Client::send_again(ClientSession& session, ClientSlot& slot) {
    const std::size_t bytes = sizeof(RequestHeader) + slot.bytes;
    const core::Context::Claim claim = context_.claim(session.peer, bytes);
    if (!claim.data) return false;
    ++counters_.sent_again;
    slot.is_unwritten = false;
    store_request(claim.data, bytes, slot.flags, slot.wire(),
                  to_remaining_us(context_.now(), slot.call->deadline), slot.method);
    if (!base::is_mutated(base::Mutant::body_unwritten)) {
        std::memcpy(claim.data + sizeof(RequestHeader), slot.body(), slot.bytes);
    }
    context_.commit(session.peer, claim, bytes);
    return true;
}

// ---- calls of which nobody will ever know -------------------------------------------------------

// What was kept of it. nullptr: nothing, or there is no memory now.
WaitingRequest::Ptr Client::take_request(ClientSlot& slot) {
    if (!slot.is_kept || slot.large) return std::move(slot.large);
    WaitingRequest::Ptr request = WaitingRequest::make(slot.method, slot.flags, slot.bytes);
    if (request) std::memcpy(request->body(), slot.small.data(), slot.bytes);
    return request;
}

// Back to the queue, from which it leaves once more. Requires: it is kept, and idempotent or never
// ran.
void Client::retake(ClientSession& session, ClientSlot& slot) {
    ClientCall& call = *slot.call;
    WaitingRequest::Ptr request = take_request(slot);
    release(session, slot);
    if (!request) return finish_early(call, fail(Code::unavailable, "no memory to send it again"));
    ++counters_.sent_again;
    call.waiting = std::move(request);
    enqueue(call, true);
}

// What was sent and is not answered never ran, except what is asked for: that is answered still.
void Client::on_ended(ClientSession& session) {
    context_.note("session ended by the server", session.peer.uri, session.busy);
    session.state = SessionState::ended;
    session.ended_at = context_.now();
    session.is_granted = false;
    session.update_window();
    session.for_each_busy([&](ClientSlot& slot) {
        // A question may have been answered by a reply.
        if (!slot.is_asked || slot.asked != slot.sequence) take_back(session, slot);
    });
    base::Timer& patience = session;
    if (session.waiting.size() != 0 && !patience.is_linked()) {
        context_.timers().arm(patience, context_.now() + search_max);
    }
    feed();
}

// Other clients hold up the end of the server. Each call waits `search_max` for the next server:
// since it was queued, or since this one said that it ends. The connection stays for large replies
// under way.
void Client::fail_overdue(ClientSession& session) {
    const TimePoint now = context_.now();
    TimePoint next = never;
    session.waiting.for_each([&](ClientCall& call) {
        const TimePoint until = std::max(call.waiting->at, session.ended_at) + search_max;
        if (until > now) {
            next = std::min(next, until);
            return;
        }
        forget_request(call);
        call.stage = Stage::resolving;
        finish_early(call, fail(Code::unavailable, "the server is shutting down"));
    });
    if (next == never) return;
    // A look walks over all calls that wait.
    context_.timers().arm(session, std::max(next, now + overdue_look));
}

// The call of a slot never ran, and its session ends.
void Client::take_back(ClientSession& session, ClientSlot& slot) {
    ClientCall* const call = slot.call;
    if (call) call->stage = Stage::queued;
    if (call && slot.is_kept) return retake(session, slot);
    release(session, slot);
    if (call) finish_early(*call, fail(Code::unavailable, "the server ended before it came"));
}

// The server ended while it had them.
void Client::count_lives(ClientSession& session) {
    session.for_each_busy([&](ClientSlot& slot) {
        ClientCall* const call = slot.call;
        if (!call || !call->traits.is_idempotent() || ++call->traits.lives < lives_max) return;
        finish_early(*call,
                     fail(Code::unavailable, "the server ended " + std::to_string(lives_max) +
                                                 " times while it had this call"));
        release(session, slot);
    });
}

// The server that had them is another now, or has forgotten them.
void Client::resolve_unknown(ClientSession& session, Code code, std::string_view why) {
    context_.note("session over", session.peer.uri, session.busy);
    session.for_each_busy([&](ClientSlot& slot) {
        if (slot.call && slot.call->traits.is_idempotent() && slot.is_kept) {
            slot.call->traits.may_run = true;
            return retake(session, slot);
        }
        if (slot.call) finish_early(*slot.call, fail(code, std::string(why)));
        release(session, slot);
    });
    feed();
}

// Every call ends; the next one begins another session.
void Client::fail_all(ClientSession& session, const Status& why) {
    context_.note("session given up", session.peer.uri, session.busy + session.waiting.size());
    context_.timers().cancel(session);
    session.for_each_busy([&](ClientSlot& slot) {
        if (slot.call) finish_early(*slot.call, why);
        release(session, slot);
    });
    fail_waiting(session, why);
    session.reset();
    session.was_lost = false;
    feed();
}

void Client::fail_waiting(ClientSession& session, const Status& why) {
    session.waiting.for_each([&](ClientCall& call) {
        forget_request(call);
        call.stage = Stage::resolving;
        finish_early(call, why);
    });
}

void Client::forget(ClientSession& session) {
    context_.timers().cancel(session);
    while (ClientCall* call = session.resting.front()) {
        forget_request(*call);
        finish_early(*call, fail(Code::cancelled, "the channel was closed"));
    }
    Hungry& node = session;
    if (node.is_linked()) node.unlink();
    session.peer.client_session = nullptr;
    sessions_.erase(session.self);
}

// ---- searching ----------------------------------------------------------------------------------

void Client::on_peer_down(core::Peer& peer, const Status& why) {
    ClientSession* const session = peer.client_session;
    if (!session) return;
    // A large reply that is on its way is lost with its connection.
    while (ClientCall* call = session->fetching.front()) finish_early(*call, why);
    if (peer.is_removed || closed_) {
        fail_all(*session, why);
        return forget(*session);
    }
    switch (session->state) {
        case SessionState::none: return fail_all(*session, why);
        case SessionState::beginning:
        case SessionState::open:
        case SessionState::ended:
        case SessionState::resuming: return interrupt(*session, why);
        case SessionState::searching: return search_on(*session, why);
    }
}

void Client::interrupt(ClientSession& session, const Status& why) {
    // What was asked for before the server ended, and not answered.
    if (session.state == SessionState::ended) {
        count_lives(session);
        resolve_unknown(session, Code::unavailable, why.text());
    }
    context_.timers().cancel(session);  // Of an answer that did not come.
    if (!session.has_calls()) return fail_all(session, why);
    context_.note("session interrupted", session.peer.uri, session.busy);
    session.pace.on_idle();  // The time without a connection is not the server's slowness.
    session.state = SessionState::searching;
    session.update_window();
    session.last_why = why.text();
    // A connection that is lost before it is of use belongs to the same search: the next pause is
    // longer, as after a connect that failed.
    if (std::exchange(session.was_lost, true)) {
        session.pause = std::min(2 * session.pause, search_max);
    } else {
        session.pause = first_pause;
        ++counters_.lost_connections;
        session.until = context_.now() + search_time(session.peer.silence);
        session.was_late = false;
    }
    const TimePoint next = context_.now() + with_jitter(session.pause, context_.random());
    context_.timers().arm(session, std::min(next, session.until));
}

// A search whose end is seen late had less time than it says: this process stood still, and the
// server may have answered meanwhile. It begins anew, once.
bool Client::has_searched_enough(ClientSession& session, TimePoint now) {
    constexpr Duration late = 100ms;
    if (now < session.until) return false;
    if (now - session.until < late || std::exchange(session.was_late, true)) return true;
    session.pause = first_pause;
    session.until = now + search_max;
    return false;
}

// An attempt has failed.
void Client::search_on(ClientSession& session, const Status& why) {
    context_.timers().cancel(session);
    session.last_why = why.text();
    if (has_searched_enough(session, context_.now())) {
        return fail_all(session, fail(Code::unavailable, session.last_why));
    }
    session.pause = std::min(2 * session.pause, search_max);
    const TimePoint next = context_.now() + with_jitter(session.pause, context_.random());
    context_.timers().arm(session, std::min(next, session.until));
}

void Client::on_search_time(base::Timer& timer, TimePoint now) {
    auto& session = static_cast<ClientSession&>(timer);
    Client& client = session.client;
    core::Peer& peer = session.peer;
    if (session.state == SessionState::ended) {
        return client.fail_overdue(session);
    }
    const bool is_over = client.has_searched_enough(session, now);
    if (is_over && peer.state != core::PeerState::idle) {
        // Down it goes, and with it the search.
        return client.context_.drop_connection(peer,
                                               fail(Code::unavailable, "the peer does not answer"));
    }
    if (is_over || !session.has_calls()) {
        return client.fail_all(session, fail(Code::unavailable, session.last_why));
    }
    if (peer.state == core::PeerState::idle) client.context_.connect(peer);
    client.context_.timers().arm(session, session.until);
}

}  // namespace weft::rpc
