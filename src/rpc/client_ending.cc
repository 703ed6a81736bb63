// How calls end other than by a reply: by their deadline, a cancel or the shutdown.
#include <algorithm>

#include "base/assert.h"
#include "base/text.h"
#include "rpc/client.h"

namespace weft::rpc {

// `executing`: the server has replied, and the large reply is being fetched.
static Effect effect_of(const ClientCall& call) {
    if (call.stage == Stage::executing) return Effect::applied;
    return call.stage == Stage::sent || call.traits.may_have_run ? Effect::unknown : Effect::none;
}

// A call that waits for a resend had been sent before.
static Stage stage_of(const ClientCall& call) {
    return call.traits.may_have_run ? Stage::sent : call.stage;
}

// Removes the call from its session, with its interest in the peer. A slot that still waits for a
// reply keeps the interest.
void Client::leave_session(ClientCall& call) {
    ClientSession* const session = std::exchange(call.session, nullptr);
    if (!session) return;
    WEFT_ASSERT(!call.waiting && !call.is_backing_off);
    WEFT_ASSERT(!call.slot || call.slot->call == &call);
    if (ClientSlot* slot = std::exchange(call.slot, nullptr)) {
        slot->call = nullptr;
        slot->is_unusual = true;
    } else {
        static_cast<core::Deferred&>(call).undefer();  // Its large reply was being fetched.
        context_.drop_interest(session->peer);
    }
}

void Client::finish(ClientCall& call, const Status& status, ByteView reply) {
    leave_session(call);
    complete(call, status, reply);
}

// Completes in the next turn, with the effect and the stage known now.
void Client::finish_deferred(ClientCall& call, Status status) {
    context_.timers().cancel(call);
    call.deferred_status =
        std::move(status).with_effect(effect_of(call)).with_stage(stage_of(call));
    // By then the peer's slot may be reused.
    if (call.session)
        call.deferred_status = std::move(call.deferred_status).with_peer(call.session->peer.uri);
    leave_session(call);
    WEFT_ASSERT(!call.completion_pending);
    call.completion_pending = true;
    context_.defer(call);
}

void Client::on_due(ClientCall& call) {
    WEFT_ASSERT(call.completion_pending && !call.session);
    const Status why = std::exchange(call.deferred_status, Status());
    call.completion_pending = false;
    if (context_.after_end().is_dropping()) call.done = [](const Status&, ByteView) {};
    complete(call, why, {});
}

// A waiting request must not be sent once its call has ended.
void Client::drop_request(ClientCall& call) {
    if (!call.waiting) return;
    WEFT_ASSERT(call.session && !call.slot && !call.completion_pending);
    if (std::exchange(call.is_backing_off, false)) {
        static_cast<core::Deferred&>(call).unlink();
    } else {
        dequeue(call);
    }
    bodies_.withdraw(call.session->peer, *call.waiting);
    call.waiting = nullptr;
}

// Drops a waiting request, or cancels the call at the server.
void Client::cancel_at_peer(ClientCall& call) {
    WEFT_ASSERT(call.session && !call.completion_pending);
    drop_request(call);
    // Before the session is resumed the server has no slot to cancel; afterwards the call is
    // queried.
    if (call.slot && call.session->state == SessionState::open) {
        send_cancel(call.session->peer, *call.slot);
    }
    if (call.stage == Stage::executing) bodies_.cancel_fetch(entry_of(call).id());
}

void Client::on_deadline(ClientCall& call) {
    if (call.is_backing_off) return resume(call);
    // The timer has fired, so it is not in the wheel; a deferred completion has cancelled its
    // timer.
    WEFT_ASSERT(call.session && !call.completion_pending);
    Status status = fail(Code::deadline_exceeded,
                         "no reply before the deadline of the call (CallOptions::timeout, "
                         "timeout_ms in the .proto)");
    const ClientSession& session = *call.session;
    const bool is_connected = session.state == SessionState::open ||
                              session.state == SessionState::beginning ||
                              session.state == SessionState::ended;
    if (!is_connected && call.stage != Stage::executing) {
        if (call.stage == Stage::queued) call.stage.move_to(Stage::resolving);
        std::string text = "not connected before the deadline";
        std::string why = core::Context::why_waiting(session.peer);
        if (why.empty()) why = session.last_error;
        if (!why.empty()) text = why + "; " + text;
        status = fail(Code::unavailable, std::move(text));
    }
    context_.record_event("deadline", session.peer.uri);
    cancel_at_peer(call);
    status = std::move(status)
                 .with_effect(effect_of(call))
                 .with_stage(stage_of(call))
                 .with_peer(session.peer.uri);
    finish(call, status, {});
}

void Client::cancel(CallId id, const char* why) {
    CallEntry* entry = calls_.find(id);
    if (!entry || entry->value.completion_pending) return;
    cancel_at_peer(entry->value);
    // Without room for the cancel the connection is dropped, which may end the call.
    entry = calls_.find(id);
    if (!entry || entry->value.completion_pending) return;
    finish_deferred(entry->value, fail(Code::cancelled, why));
}

void Client::abandon(CallId id) {
    if (CallEntry* entry = calls_.find(id)) {
        entry->value.done = [](const Status&, ByteView) {};
        cancel(id);
    }
}

void Client::send_cancel(core::Peer& peer, const ClientSlot& slot) {
    if (peer.state != core::PeerState::up) return;
    const core::Context::Claim claim = context_.claim(peer, sizeof(CancelHeader));
    if (!claim.data) {
        // Over the next connection the call is queried, and cancelled.
        return context_.drop_connection(
            peer, fail(Code::unavailable, "the queue to the peer has no room for a cancel"));
    }
    CancelHeader header;
    header.call = slot.wire();
    base::store(claim.data, header);
    context_.commit(peer, claim, sizeof header);
}

void Client::end_sessions() {
    calls_.closed = true;
    for (const ClientSession& session : sessions_) end_session(session.peer);
}

void Client::shutdown(const Status& why) {
    calls_.closed = true;
    calls_.for_each([&](CallEntry& entry) {
        ClientCall& call = entry.value;
        if (call.completion_pending) {
            context_.undefer(call);
            call.completion_pending = false;
        } else {
            if (call.session) drop_request(call);
            call.deferred_status =
                Status(why).with_effect(effect_of(call)).with_stage(stage_of(call));
        }
        const Status status = std::exchange(call.deferred_status, Status());
        finish(call, status, {});
    });
    while (!sessions_.empty()) erase_session(sessions_.front());
}

}  // namespace weft::rpc
