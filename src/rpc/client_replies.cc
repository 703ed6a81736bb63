// The frames of the server at its client. A reply completes the call of its slot, or is dropped
// because it is late.
#include "base/assert.h"
#include "base/text.h"
#include "rpc/client.h"

namespace weft::rpc {

// Drops the interest that a cancelled call left with its slot; a live call keeps its own.
void Client::release_unusual(ClientSession& session, ClientSlot& slot) {
    slot.is_unusual = slot.inline_put_failed = false;
    slot.large = nullptr;
    WEFT_DCHECK(!slot.is_extra || session.extra != 0);
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
        ++calls_.counters.late_replies;
        return nullptr;
    }
    peer.pulse.has_answered = true;
    if (slot->is_unusual) [[unlikely]] {
        finish_failed_put(*slot);
    }
    ClientCall* const call = slot->call;
    release(*session, *slot);
    if (capacity_.waiting_bytes() != 0) [[unlikely]] {
        on_credits_released(*session, slot->method);
    }
    if (!call) [[unlikely]] {
        ++calls_.counters.late_replies;
    }
    return call;
}

void Client::on_frame(core::Peer& peer, core::FrameHead head, ByteView frame) {
    if (!is_plain_reply(head)) [[unlikely]] {
        return on_other_frame(peer, head, frame);
    }
    if (ClientCall* call = match_reply(peer, frame)) [[likely]] {
        WEFT_DCHECK(call->session == client_session(peer) && !call->waiting);
        context_.drop_interest(peer);
        std::exchange(call->session, nullptr)->budget.earn();
        complete(*call, calls_.ok, frame.subspan(sizeof(ReplyHeader)));
    }
}

// Handles failures and all frames that are not replies.
void Client::on_other_frame(core::Peer& peer, core::FrameHead head, ByteView frame) {
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
    Status why = regions_.write(*to, data);
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
    slot.call->stage.move_to(Stage::executing);
    finish_deferred(*slot.call, std::exchange(slot.call->deferred_status, Status()));
}

void Client::fetch_reply(core::Peer& peer, ByteView frame) {
    const auto where = base::load<bulk::RendezvousBody>(frame.data() + sizeof(ReplyHeader));
    ClientCall* const call = match_reply(peer, frame);
    if (!call) return bodies_.rendezvous().decline(peer, where);  // The server may wait for it.
    WEFT_ASSERT(call->session && !call->slot && !call->waiting);
    call->stage.move_to(Stage::executing);
    const CallId id = entry_of(*call).id();
    const TimePoint deadline = call->deadline;
    call->session->fetching.push_back(*call);
    bodies_.on_fetch(id,
                     bodies_.rendezvous().fetch(peer, where, deadline,
                                                [this, id](const Status& status, ByteView reply) {
                                                    on_fetched(id, status, reply);
                                                }));
}

// The call may have ended earlier.
void Client::on_fetched(CallId id, const Status& status, ByteView reply) {
    CallEntry* entry = calls_.find(id);
    if (!entry || entry->value.completion_pending) return;
    ClientCall& call = entry->value;
    if (status.ok()) return finish(call, calls_.ok, reply);
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

}  // namespace weft::rpc
