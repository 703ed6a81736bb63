// How calls end: completed by a reply, failed, cancelled or retried.
#include <algorithm>

#include "base/assert.h"
#include "base/mutant.h"
#include "base/text.h"
#include "rpc/client.h"

namespace weft::rpc {

// `executing`: the server has replied, and the large reply is being fetched.
static Effect effect_of(const ClientCall& call) {
    if (call.stage == Stage::executing) return Effect::applied;
    if (base::is_mutated(base::Mutant::effect_misreported)) return Effect::none;
    return call.stage == Stage::sent || call.traits.may_have_run ? Effect::unknown : Effect::none;
}

// A call that waits for a resend had been sent before.
static Stage stage_of(const ClientCall& call) {
    return call.traits.may_have_run ? Stage::sent : call.stage;
}

bool Client::is_balanced() const {
    std::uint64_t completed = 0;
    for (const std::uint64_t count : counters_.completed) completed += count;
    return counters_.submitted == completed + calls_.taken();
}

inline void Client::complete(ClientCall& call, const Status& status, ByteView reply) {
    context_.timers().cancel(call);
    CallEntry& entry = entry_of(call);
    // From here on the id is stale; the completion runs in place.
    calls_.retire(entry);
    ++counters_.completed[static_cast<std::size_t>(status.code())];
    if (base::is_mutated(base::Mutant::double_completion) &&
        status.code() == Code::deadline_exceeded) {
        call.done(status, reply);
    }
    call.done.consume(status, reply);
    calls_.recycle(entry);
}

// Removes the call from its session, with its interest in the peer. A slot that still waits for a
// reply keeps the interest.
void Client::leave_session(ClientCall& call) {
    ClientSession* const session = std::exchange(call.session, nullptr);
    if (!session) return;
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
    call.completion_pending = true;
    call.run = [](core::Deferred& work) {
        auto& due = static_cast<ClientCall&>(work);
        const Status why = std::exchange(due.deferred_status, Status());
        due.completion_pending = false;
        if (due.client->context_.after_end().is_dropping()) due.done = [](const Status&, ByteView) {};
        due.client->complete(due, why, {});
    };
    context_.defer(call);
}

// Drops the interest that a cancelled call left with its slot; a live call keeps its own.
void Client::release_unusual(ClientSession& session, ClientSlot& slot) {
    slot.is_unusual = slot.inline_put_failed = false;
    slot.large = nullptr;
    if (std::exchange(slot.is_extra, false)) --session.extra;
    if (slot.call) {
        slot.call->slot = nullptr;
    } else {
        context_.drop_interest(session.peer);
    }
}

// Calls wait in this or another session.
void Client::on_credits_released(ClientSession& session, std::uint64_t method) {
    serve_credit_waiters();
    if (session.waiting.size() == 0) return;
    session.wait_estimator.on_reply(context_.now(), method);
    pump(session);
}

// The call of a reply; its slot is free again. A reply counts only from the peer that the call was
// sent to, and only once.
[[gnu::always_inline]] inline ClientCall* Client::match_reply(core::Peer& peer, ByteView frame) {
    const auto wire = base::load<WireCallId>(frame.data() + offsetof(ReplyHeader, call));
    ClientSession* const session = client_session(peer);
    ClientSlot* slot = session ? session->find(wire) : nullptr;
    if (!slot) [[unlikely]] {
        ++counters_.late_replies;
        return nullptr;
    }
    peer.pulse.has_answered = true;
    if (slot->is_unusual) [[unlikely]] {
        finish_failed_put(*slot);
    }
    ClientCall* const call = slot->call;
    release(*session, *slot);
    if (waiting_bytes_ != 0) [[unlikely]] {
        on_credits_released(*session, slot->method);
    }
    if (!call) [[unlikely]] {
        ++counters_.late_replies;
    }
    return call;
}

void Client::on_frame(core::Peer& peer, core::FrameHead head, ByteView frame) {
    if (!is_plain_reply(head)) [[unlikely]] {
        return on_failure(peer, head, frame);
    }
    if (ClientCall* call = match_reply(peer, frame)) [[likely]] {
        context_.drop_interest(peer);
        std::exchange(call->session, nullptr)->budget.earn();
        complete(*call, ok_, frame.subspan(sizeof(ReplyHeader)));
    }
}

// Handles failures and all frames that are not replies.
void Client::on_failure(core::Peer& peer, core::FrameHead head, ByteView frame) {
    using core::FrameKind;
    if (head.kind == FrameKind::bulk_data) return on_data(peer, head, frame);
    const auto why = head.kind == FrameKind::reply           ? why_no_reply(head)
                     : head.kind == FrameKind::session_grant ? why_no_session_grant(head)
                                                             : why_no_call_status(head);
    if (why) return context_.close_malformed(peer, std::string(*why));
    if (head.kind == FrameKind::session_grant) return on_session_grant(peer, frame);
    if (head.kind == FrameKind::call_status) return on_call_status(peer, frame);
    if (is_rendezvous(head)) return fetch_reply(peer, frame);
    WaitingRequest::Ptr again = request_to_retry(peer, head, frame);
    ClientCall* const call = match_reply(peer, frame);
    if (!call || (again && back_off(*call, std::move(again), frame))) return;
    finish_failed(*call, peer, head, frame);
}

// The request of a call that the server pushed back and the client retries; else nullptr.
WaitingRequest::Ptr Client::request_to_retry(core::Peer& peer, core::FrameHead head,
                                             ByteView frame) {
    if (head.flags != pushback_flag || unpack(head.aux)->effect != Effect::none) return nullptr;
    const auto wire = base::load<WireCallId>(frame.data() + offsetof(ReplyHeader, call));
    ClientSession* const session = client_session(peer);
    ClientSlot* const slot = session ? session->find(wire) : nullptr;
    // Only the outermost caller in a chain retries.
    if (!slot || !slot->call || slot->call->traits.is_nested) return nullptr;
    return take_request(*slot);
}

// False: no time is left for another attempt, or the peer's retry budget is used up.
bool Client::back_off(ClientCall& call, WaitingRequest::Ptr request, ByteView frame) {
    const auto pushback_us = base::load<std::uint32_t>(frame.data() + sizeof(ReplyHeader));
    const std::uint32_t attempt = call.traits.attempts + 1u;
    const Duration backoff =
        retry_backoff(attempt, std::chrono::microseconds(pushback_us), context_.random());
    const TimePoint then = context_.now() + backoff;
    ClientSession& session = *call.session;
    if (then >= call.deadline || attempt > 100) return false;
    if (!base::is_mutated(base::Mutant::budget_ignored) && !session.budget.spend()) return false;
    ++counters_.retried;
    context_.record_event("retries", session.peer.uri, attempt);
    call.traits.attempts = static_cast<std::uint8_t>(attempt);
    request->at = call.deadline;
    call.waiting = std::move(request);
    call.is_backing_off = true;
    session.backing_off.push_back(call);
    call.stage = Stage::queued;
    context_.timers().cancel(call);
    context_.timers().arm(call, then);
    return true;
}

// The backoff has ended.
void Client::resume(ClientCall& call) {
    call.is_backing_off = false;
    static_cast<core::Deferred&>(call).unlink();
    context_.timers().arm(call, call.waiting->at);
    ClientSession& session = *call.session;
    enqueue(call, true);
    if (session.state == SessionState::open) return pump(session);
    core::Peer& peer = session.peer;
    if (peer.state == core::PeerState::idle && session.state == SessionState::none) {
        context_.connect(peer);
    }
}

// Bytes of a handler's inline put, sent ahead of its reply. If they can't be written, the call
// fails when its reply arrives: until then its handler goes on.
void Client::on_data(core::Peer& peer, core::FrameHead head, ByteView frame) {
    using bulk::DataFrame;
    const bool is_whole = head.flags == 0 && frame.size() > sizeof(DataFrame);
    if (!is_whole)
        return context_.close_malformed(peer, "a bulk_data that is short or of a later version");
    const ByteView data = frame.subspan(sizeof(DataFrame));
    const Result<RegionRef> to =
        RegionRef::decode(frame.subspan(offsetof(DataFrame, ref), RegionRef::wire_bytes));
    if (!to || to->access != Access::write || to->length != data.size()) {
        return context_.close_malformed(peer, "a bulk_data with an invalid reference");
    }
    Status why = bulk_.regions->write(*to, data);
    ClientSession* const session = client_session(peer);
    if (why.ok() || !session) return;
    ClientSlot* const slot =
        session->find(base::load<WireCallId>(frame.data() + offsetof(DataFrame, call)));
    if (!slot || !slot->call || slot->inline_put_failed) return;
    slot->is_unusual = slot->inline_put_failed = true;
    slot->call->deferred_status = std::move(why).in(
        "the handler's inline put (CallOptions::inline_bulk) failed; keep its memory "
        "exposed and writable until the call has completed");
}

// The reply of a call with a failed inline put: whatever the reply, the handler ran.
void Client::finish_failed_put(ClientSlot& slot) {
    if (!slot.inline_put_failed || !slot.call) return;
    slot.call->stage = Stage::executing;
    finish_deferred(*slot.call, std::exchange(slot.call->deferred_status, Status()));
}

void Client::fetch_reply(core::Peer& peer, ByteView frame) {
    const auto where = base::load<bulk::RendezvousBody>(frame.data() + sizeof(ReplyHeader));
    ClientCall* const call = match_reply(peer, frame);
    if (!call) return bulk_.staging.decline(peer, where);  // The server may wait for it.
    call->stage = Stage::executing;
    const CallId id = entry_of(*call).id();
    const TimePoint deadline = call->deadline;
    if (fetches_.size() <= id.slot) fetches_.resize(id.slot + 1);
    call->session->fetching.push_back(*call);
    fetches_[id.slot] = bulk_.staging.fetch(
        peer, where, deadline,
        [this, id](const Status& status, ByteView reply) { on_fetched(id, status, reply); });
}

// The call may have ended earlier.
void Client::on_fetched(CallId id, const Status& status, ByteView reply) {
    CallEntry* entry = calls_.find(id);
    if (!entry || entry->value.completion_pending) return;
    ClientCall& call = entry->value;
    if (status.ok()) return finish(call, ok_, reply);
    const std::string uri = call.session ? call.session->peer.uri : std::string();
    finish(call,
           Status(status)
               .in("the reply can't be fetched")
               .with_effect(Effect::applied)
               .with_stage(Stage::executing)
               .with_peer(uri),
           {});
}

void Client::finish_failed(ClientCall& call, core::Peer& peer, core::FrameHead head,
                           ByteView frame) {
    const ReplyOutcome outcome = *unpack(head.aux);
    ByteView text = frame.subspan(sizeof(ReplyHeader));
    if (head.flags == pushback_flag) text = text.subspan(pushback_bytes);
    // This refusal does not cover the earlier attempts.
    const bool is_known = outcome.effect != Effect::none || !call.traits.may_have_run;
    const std::string_view why = base::truncate_utf8(as_text(text), error_text_bytes_max);
    Status status = fail(outcome.code, std::string(why))
                        .with_effect(is_known ? outcome.effect : Effect::unknown)
                        .with_stage(is_known ? outcome.stage : Stage::sent)
                        .with_peer(peer.uri);
    if (outcome.code == Code::ok) {
        // weft never sends this: ok with another effect or stage. The call may have run.
        status = fail(Code::data_loss, "a reply that contradicts itself")
                     .with_effect(Effect::unknown)
                     .with_stage(Stage::sent)
                     .with_peer(peer.uri);
    }
    finish(call, status, {});
}

void Client::on_deadline(base::Timer& timer, TimePoint) {
    auto& call = static_cast<ClientCall&>(timer);
    call.client->expire(call);
}

// A waiting request must not be sent once its call has ended.
void Client::drop_request(ClientCall& call) {
    if (!call.waiting) return;
    if (std::exchange(call.is_backing_off, false)) {
        static_cast<core::Deferred&>(call).unlink();
    } else {
        dequeue(call);
    }
    if ((call.waiting->flags & rendezvous_flag) != 0) {
        bulk_.staging.withdraw(call.session->peer,
                               base::load<bulk::RendezvousBody>(call.waiting->body()));
    }
    call.waiting = nullptr;
}

// Drops a waiting request, or cancels the call at the server.
void Client::cancel_at_peer(ClientCall& call) {
    drop_request(call);
    // Before the session is resumed the server has no slot to cancel; afterwards the call is
    // queried.
    if (call.slot && call.session->state == SessionState::open) {
        send_cancel(call.session->peer, *call.slot);
    }
    const std::uint32_t at = entry_of(call).id().slot;
    if (call.stage == Stage::executing && at < fetches_.size()) {
        bulk_.staging.cancel(fetches_[at]);
    }
}

void Client::expire(ClientCall& call) {
    if (call.is_backing_off) return resume(call);
    // The timer has fired, so it is not in the wheel; a deferred completion has cancelled its
    // timer.
    Status status = fail(Code::deadline_exceeded,
                         "no reply before the deadline of the call (CallOptions::timeout, "
                         "timeout_ms in the .proto)");
    const ClientSession& session = *call.session;
    const bool is_connected = session.state == SessionState::open ||
                              session.state == SessionState::beginning ||
                              session.state == SessionState::ended;
    if (!is_connected && call.stage != Stage::executing) {
        if (call.stage == Stage::queued) call.stage = Stage::resolving;
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
    if (base::is_mutated(base::Mutant::stale_generation)) {
        calls_.for_each([&](CallEntry& one) { entry = one.slot == id.slot ? &one : entry; });
    }
    if (!entry || entry->value.completion_pending) return;
    if (base::is_mutated(base::Mutant::cancel_lost)) return;
    cancel_at_peer(entry->value);
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
        return context_.drop_connection(peer,
                                        fail(Code::unavailable, "no room to send to the peer"));
    }
    CancelHeader header;
    header.call = slot.wire();
    base::store(claim.data, header);
    context_.commit(peer, claim, sizeof header);
}

void Client::end_sessions() {
    closed_ = true;
    if (base::is_mutated(base::Mutant::sessions_unclosed)) return;
    for (const ClientSession& session : sessions_) end_session(session.peer);
}

void Client::shutdown(const Status& why) {
    closed_ = true;
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
