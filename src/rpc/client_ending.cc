// How calls end: answered, failed, given up, or tried again.
#include <algorithm>

#include "base/assert.h"
#include "base/mutant.h"
#include "base/text.h"
#include "rpc/client.h"

namespace weft::rpc {

// `executing`: the server has answered, and its large reply is on its way.
static Effect effect_of(const ClientCall& call) {
    if (call.stage == Stage::executing) return Effect::applied;
    if (base::is_mutated(base::Mutant::effect_denied)) return Effect::none;
    return call.stage == Stage::sent || call.traits.may_run ? Effect::unknown : Effect::none;
}

// One that waits once more got that far before.
static Stage stage_of(const ClientCall& call) {
    return call.traits.may_run ? Stage::sent : call.stage;
}

bool Client::is_balanced() const {
    std::uint64_t completed = 0;
    for (const std::uint64_t count : counters_.completed) completed += count;
    return counters_.submitted == completed + calls_.taken();
}

inline void Client::complete(ClientCall& call, const Status& status, ByteView reply) {
    context_.timers().cancel(call);
    CallEntry& entry = entry_of(call);
    // From here on the id is stale; the completion runs where it lies.
    calls_.retire(entry);
    ++counters_.completed[static_cast<std::size_t>(status.code())];
    if (base::is_mutated(base::Mutant::double_completion) &&
        status.code() == Code::deadline_exceeded) {
        call.done(status, reply);
    }
    call.done.consume(status, reply);
    calls_.recycle(entry);
}

// Out of its session, with the interest that it has in the peer; a slot that still waits for a
// reply keeps that.
void Client::leave_session(ClientCall& call) {
    ClientSession* const session = std::exchange(call.session, nullptr);
    if (!session) return;
    if (ClientSlot* slot = std::exchange(call.slot, nullptr)) {
        slot->call = nullptr;
        slot->is_unusual = true;
    } else {
        static_cast<core::Deferred&>(call).take_back();  // Its large reply was on its way.
        context_.drop_interest(session->peer);
    }
}

void Client::finish(ClientCall& call, const Status& status, ByteView reply) {
    leave_session(call);
    complete(call, status, reply);
}

// Completes in the next turn, with what is known now.
void Client::finish_early(ClientCall& call, Status status) {
    context_.timers().cancel(call);
    call.early = std::move(status).with_effect(effect_of(call)).with_stage(stage_of(call));
    // By then the peer's place may be another's.
    if (call.session) call.early = std::move(call.early).with_peer(call.session->peer.uri);
    leave_session(call);
    call.ends = true;
    call.run = [](core::Deferred& work) {
        auto& early = static_cast<ClientCall&>(work);
        const Status why = std::exchange(early.early, Status());
        early.ends = false;
        if (early.client->context_.is_dropping()) early.done = [](const Status&, ByteView) {};
        early.client->complete(early, why, {});
    };
    context_.defer(call);
}

// The interest that a given-up call left with its slot goes with it; a call's own stays its own.
void Client::release_unusual(ClientSession& session, ClientSlot& slot) {
    slot.is_unusual = slot.is_unwritten = false;
    slot.large = nullptr;
    if (std::exchange(slot.is_extra, false)) --session.extra;
    if (slot.call) {
        slot.call->slot = nullptr;
    } else {
        context_.drop_interest(session.peer);
    }
}

// Calls wait, somewhere.
void Client::use_room(ClientSession& session, std::uint64_t method) {
    feed();
    if (session.waiting.size() == 0) return;
    session.pace.on_reply(context_.now(), method);
    pump(session);
}

// The call that a reply answers, whose slot is free again. A reply counts only from the peer that
// was asked, and only once.
[[gnu::always_inline]] inline ClientCall* Client::answered_by(core::Peer& peer, ByteView frame) {
    const auto wire = base::load<WireCallId>(frame.data() + offsetof(ReplyHeader, call));
    ClientSession* const session = peer.client_session;
    ClientSlot* slot = session ? session->find(wire) : nullptr;
    if (!slot) [[unlikely]] {
        ++counters_.late_replies;
        return nullptr;
    }
    peer.answered = true;
    if (slot->is_unusual) [[unlikely]] {
        end_unwritten(*slot);
    }
    ClientCall* const call = slot->call;
    release(*session, *slot);
    if (waiting_bytes_ != 0) [[unlikely]] {
        use_room(*session, slot->method);
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
    if (ClientCall* call = answered_by(peer, frame)) [[likely]] {
        context_.drop_interest(peer);
        std::exchange(call->session, nullptr)->budget.earn();
        complete(*call, ok_, frame.subspan(sizeof(ReplyHeader)));
    }
}

// Or none of a reply at all.
void Client::on_failure(core::Peer& peer, core::FrameHead head, ByteView frame) {
    using core::FrameKind;
    if (head.kind == FrameKind::bulk_data) return on_data(peer, head, frame);
    const auto why = head.kind == FrameKind::reply   ? why_no_reply(head)
                     : head.kind == FrameKind::grant ? why_no_grant(head)
                                                     : why_no_told(head);
    if (why) return context_.broken(peer, std::string(*why));
    if (head.kind == FrameKind::grant) return on_grant(peer, frame);
    if (head.kind == FrameKind::told) return on_told(peer, frame);
    if (is_lent(head)) return fetch_reply(peer, frame);
    WaitingRequest::Ptr again = request_to_retry(peer, head, frame);
    ClientCall* const call = answered_by(peer, frame);
    if (!call || (again && rest(*call, std::move(again), frame))) return;
    finish_failed(*call, peer, head, frame);
}

// Of a call that the server pushed back, if it is to be tried again; else nullptr.
WaitingRequest::Ptr Client::request_to_retry(core::Peer& peer, core::FrameHead head,
                                             ByteView frame) {
    if (head.flags != pushback_flag || unpack(head.aux)->effect != Effect::none) return nullptr;
    const auto wire = base::load<WireCallId>(frame.data() + offsetof(ReplyHeader, call));
    ClientSession* const session = peer.client_session;
    ClientSlot* const slot = session ? session->find(wire) : nullptr;
    // Only the outermost of several callers tries again.
    if (!slot || !slot->call || slot->call->traits.is_nested) return nullptr;
    return take_request(*slot);
}

// False: it has no time left for another attempt, or its peer's budget is used up.
bool Client::rest(ClientCall& call, WaitingRequest::Ptr request, ByteView frame) {
    const auto asked_us = base::load<std::uint32_t>(frame.data() + sizeof(ReplyHeader));
    const std::uint32_t attempt = call.traits.attempts + 1u;
    const Duration pause =
        retry_pause(attempt, std::chrono::microseconds(asked_us), context_.random());
    const TimePoint then = context_.now() + pause;
    ClientSession& session = *call.session;
    if (then >= call.deadline || attempt > 100) return false;
    if (!base::is_mutated(base::Mutant::budget_ignored) && !session.budget.spend()) return false;
    ++counters_.retried;
    context_.note("retries", session.peer.uri, attempt);
    call.traits.attempts = static_cast<std::uint8_t>(attempt);
    request->at = call.deadline;
    call.waiting = std::move(request);
    call.rests = true;
    session.resting.push_back(call);
    call.stage = Stage::queued;
    context_.timers().cancel(call);
    context_.timers().arm(call, then);
    return true;
}

// Its pause is over.
void Client::wake(ClientCall& call) {
    call.rests = false;
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

// Bytes that a handler has put ahead of its reply. Where they can't be written, the call fails when
// it is answered: until then its handler goes on.
void Client::on_data(core::Peer& peer, core::FrameHead head, ByteView frame) {
    using bulk::DataFrame;
    const bool is_whole = head.flags == 0 && frame.size() > sizeof(DataFrame);
    if (!is_whole) return context_.broken(peer, "a bulk_data that is short or of a later version");
    const ByteView data = frame.subspan(sizeof(DataFrame));
    const Result<RegionRef> to =
        RegionRef::decode(frame.subspan(offsetof(DataFrame, ref), RegionRef::wire_bytes));
    if (!to || to->access != Access::write || to->length != data.size()) {
        return context_.broken(peer, "a bulk_data that makes no sense");
    }
    Status why = bulk_.regions->write(*to, data);
    ClientSession* const session = peer.client_session;
    if (why.ok() || !session) return;
    ClientSlot* const slot =
        session->find(base::load<WireCallId>(frame.data() + offsetof(DataFrame, call)));
    if (!slot || !slot->call || slot->is_unwritten) return;
    slot->is_unusual = slot->is_unwritten = true;
    slot->call->early = std::move(why).in(
        "what the handler put to ride with its reply (CallOptions::rides) is lost; keep its memory "
        "exposed and writable until the call is over");
}

// The reply of a call whose bulk is not all here: whatever it says, the handler ran.
void Client::end_unwritten(ClientSlot& slot) {
    if (!slot.is_unwritten || !slot.call) return;
    slot.call->stage = Stage::executing;
    finish_early(*slot.call, std::exchange(slot.call->early, Status()));
}

void Client::fetch_reply(core::Peer& peer, ByteView frame) {
    const auto where = base::load<bulk::LentBody>(frame.data() + sizeof(ReplyHeader));
    ClientCall* const call = answered_by(peer, frame);
    if (!call) return bulk_.staging.decline(peer, where);  // It may be waiting for its memory.
    call->stage = Stage::executing;
    const CallId id = entry_of(*call).id();
    const TimePoint deadline = call->deadline;
    if (fetches_.size() <= id.slot) fetches_.resize(id.slot + 1);
    call->session->fetching.push_back(*call);
    fetches_[id.slot] = bulk_.staging.fetch(
        peer, where, deadline,
        [this, id](const Status& status, ByteView reply) { on_fetched(id, status, reply); });
}

// The call may have ended before.
void Client::on_fetched(CallId id, const Status& status, ByteView reply) {
    CallEntry* entry = calls_.find(id);
    if (!entry || entry->value.ends) return;
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
    const Outcome outcome = *unpack(head.aux);
    ByteView text = frame.subspan(sizeof(ReplyHeader));
    if (head.flags == pushback_flag) text = text.subspan(pushback_bytes);
    // Who refuses it now knows nothing of the time before.
    const bool is_known = outcome.effect != Effect::none || !call.traits.may_run;
    const std::string_view why = base::cut_text(as_text(text), error_text_bytes_max);
    Status status = fail(outcome.code, std::string(why))
                        .with_effect(is_known ? outcome.effect : Effect::unknown)
                        .with_stage(is_known ? outcome.stage : Stage::sent)
                        .with_peer(peer.uri);
    if (outcome.code == Code::ok) {
        // Impossible from weft: ok with another effect or stage. It may have run.
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

// A request that still waits must not leave for a call that is over.
void Client::forget_request(ClientCall& call) {
    if (!call.waiting) return;
    if (std::exchange(call.rests, false)) {
        static_cast<core::Deferred&>(call).unlink();
    } else {
        dequeue(call);
    }
    if ((call.waiting->flags & lent_flag) != 0) {
        bulk_.staging.withdraw(call.session->peer,
                               base::load<bulk::LentBody>(call.waiting->body()));
    }
    call.waiting = nullptr;
}

// Nobody waits for its reply any more.
void Client::give_up(ClientCall& call) {
    forget_request(call);
    // Before the session is resumed the server does not know it here; afterwards it is asked.
    if (call.slot && call.session->state == SessionState::open) {
        send_cancel(call.session->peer, *call.slot);
    }
    const std::uint32_t at = entry_of(call).id().slot;
    if (call.stage == Stage::executing && at < fetches_.size()) {
        bulk_.staging.cancel(fetches_[at]);
    }
}

void Client::expire(ClientCall& call) {
    if (call.rests) return wake(call);
    // Fired, so no longer in the wheel; a deferred completion has cancelled its timer.
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
        if (why.empty()) why = session.last_why;
        if (!why.empty()) text = why + "; " + text;
        status = fail(Code::unavailable, std::move(text));
    }
    context_.note("deadline", session.peer.uri);
    give_up(call);
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
    if (!entry || entry->value.ends) return;
    if (base::is_mutated(base::Mutant::cancel_lost)) return;
    give_up(entry->value);
    finish_early(entry->value, fail(Code::cancelled, why));
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
        // Over the next connection it is asked for, and cancelled.
        return context_.drop_connection(peer,
                                        fail(Code::unavailable, "no room to speak to the peer"));
    }
    CancelHeader header;
    header.call = slot.wire();
    base::store(claim.data, header);
    context_.commit(peer, claim, sizeof header);
}

void Client::end_sessions() {
    closed_ = true;
    if (base::is_mutated(base::Mutant::sessions_left)) return;
    for (const ClientSession& session : sessions_) end_session(session.peer);
}

void Client::shutdown(const Status& why) {
    closed_ = true;
    calls_.for_each([&](CallEntry& entry) {
        ClientCall& call = entry.value;
        if (call.ends) {
            context_.undefer(call);
            call.ends = false;
        } else {
            if (call.session) forget_request(call);
            call.early = Status(why).with_effect(effect_of(call)).with_stage(stage_of(call));
        }
        const Status status = std::exchange(call.early, Status());
        finish(call, status, {});
    });
    while (!sessions_.empty()) forget(sessions_.front());
}

}  // namespace weft::rpc
