#include "rpc/client.h"

#include "base/assert.h"
#include "base/mutant.h"

namespace weft::rpc {

// What every transport takes: the limit while it is not known which one it will be.
static constexpr std::size_t eager_bytes_sure = 16u << 10;

Client::Client(core::Context& context, bulk::Bulk& bulk) : context_(context), bulk_(bulk) {
    context_.set_sink(core::FrameKind::reply, *this);
    context_.set_origin(core::FrameKind::request, *this);
}

// What is left was retried for ever after the end, until that was dropped.
Client::~Client() {
    calls_.for_each([&](Entry& entry) {
        WEFT_DCHECK(closed_ && entry.value.core::Deferred::is_linked());
        context_.undefer(entry.value);
        calls_.give_back(entry);
    });
}

// `executing`: the server has answered, and its large reply is on its way.
static Effect effect_at(Stage stage) {
    if (stage == Stage::executing) return Effect::applied;
    if (base::is_mutated(base::Mutant::effect_denied)) return Effect::none;
    return stage == Stage::sent ? Effect::unknown : Effect::none;
}

std::size_t Client::eager_bytes_max(const core::Peer& peer) const {
    return peer.state == core::PeerState::up ? peer.eager_bytes_max : eager_bytes_sure;
}

// Not connected yet, others wait, the transport is full, or it is too large.
CallId Client::submit_queued(Entry& entry, const MethodId& method, const BodyWriter& body) {
    core::Peer& peer = *entry.value.peer;
    entry.value.stage = Stage::queued;
    if (base::is_mutated(base::Mutant::deadline_ignored)) context_.timers().cancel(entry.value);
    if (body.bytes > eager_bytes_max(peer)) {
        return submit_lent(entry, method, body);
    }
    const std::size_t bytes = sizeof(RequestHeader) + body.bytes;
    const core::Context::Claim claim = context_.claim(peer, bytes);
    if (!claim.data) return refuse_full(entry);
    entry.value.queued = claim.queued;
    store_request(claim.data, bytes, {entry.slot, entry.generation},
                  to_remaining_us(context_.now(), entry.value.deadline), method.hash);
    body(claim.data + sizeof(RequestHeader));
    if (!claim.queued) entry.value.stage = Stage::sent;
    context_.commit(peer, claim, bytes);
    return entry.id();
}

CallId Client::submit_lent(Entry& entry, const MethodId& method, const BodyWriter& body) {
    core::Peer& peer = *entry.value.peer;
    bulk::Staging& staging = bulk_.staging;
    if (body.bytes > staging.body_bytes_max()) return refuse_size(entry, body.bytes);
    Result<bulk::Loan> loan = staging.lend(peer, body.bytes);
    if (!loan) {
        finish_early(entry, std::move(loan).status().in("a request of " +
                                                        std::to_string(body.bytes) + " bytes"));
        return entry.id();
    }
    const core::Context::Claim claim = context_.claim(peer, lent_request_bytes);
    if (!claim.data) {
        staging.withdraw(peer, loan->where);
        return refuse_full(entry);
    }
    body(loan->memory.data());
    entry.value.queued = claim.queued;
    store_request(claim.data, lent_request_bytes, {entry.slot, entry.generation},
                  to_remaining_us(context_.now(), entry.value.deadline), method.hash);
    mark_lent(claim.data);
    base::store(claim.data + sizeof(RequestHeader), loan->where);
    if (!claim.queued) entry.value.stage = Stage::sent;
    context_.commit(peer, claim, lent_request_bytes);
    return entry.id();
}

CallId Client::refuse(Entry* entry, Completion&& done) {
    if (!entry) {
        // No record to wait with: the only case in which a completion runs inside the call.
        done(fail(Code::resource_exhausted, "too many calls in flight"), {});
        return {};
    }
    entry->value.client = this;
    entry->value.peer = nullptr;
    entry->value.done = std::move(done);
    entry->value.stage = Stage::none;
    finish_early(*entry, closed_ ? fail(Code::cancelled, "the runtime is shutting down")
                                 : fail(Code::unavailable, "the channel is closed"));
    return entry->id();
}

CallId Client::refuse_size(Entry& entry, std::size_t bytes) {
    const core::Peer& peer = *entry.value.peer;
    // One that waited for its connection may be too large for what was found.
    const std::size_t most = bytes > bulk_.staging.body_bytes_max() ? bulk_.staging.body_bytes_max()
                                                                    : peer.eager_bytes_max;
    finish_early(entry,
                 fail(Code::invalid_argument,
                      "a request of " + std::to_string(bytes) + " bytes exceeds the limit of " +
                          std::to_string(most) + " bytes; pass large data by weft.BulkRef"));
    return entry.id();
}

CallId Client::refuse_full(Entry& entry) {
    const core::Peer& peer = *entry.value.peer;
    if (peer.waiting_frames == 0 && peer.state != core::PeerState::up) {
        finish_early(entry, fail(Code::invalid_argument,
                                 "the request is larger than anything that " + peer.uri +
                                     " could take; pass large data by weft.BulkRef"));
        return entry.id();
    }
    finish_early(entry, fail(Code::resource_exhausted,
                             "the queue to " + peer.uri + " is full (" +
                                 std::to_string(peer.waiting_frames) + " frames, " +
                                 std::to_string(peer.waiting_bytes) + " bytes)"));
    return entry.id();
}

inline void Client::complete(Entry& entry, const Status& status, ByteView reply) {
    Call& call = entry.value;
    context_.timers().cancel(call);
    // From here on the id is stale; the completion runs where it lies.
    calls_.retire(entry);
    if (base::is_mutated(base::Mutant::double_completion) &&
        status.code() == Code::deadline_exceeded) {
        call.done(status, reply);
    }
    call.done.consume(status, reply);
    calls_.recycle(entry);
}

void Client::finish(Entry& entry, const Status& status, ByteView reply) {
    if (entry.value.peer) context_.drop_interest(*entry.value.peer);
    complete(entry, status, reply);
}

// Completes in the next turn, with what is known now.
void Client::finish_early(Entry& entry, Status status) {
    Call& call = entry.value;
    context_.timers().cancel(call);
    call.early = std::move(status).with_effect(effect_at(call.stage)).with_stage(call.stage);
    if (call.peer) {
        call.early = std::move(call.early).with_peer(call.peer->uri);
        // By then the peer's place may be another's.
        context_.drop_interest(*std::exchange(call.peer, nullptr));
    }
    call.run = [](core::Deferred& work) {
        auto& early = static_cast<Call&>(work);
        const Status why = std::exchange(early.early, Status());
        early.client->finish(base::SlotTable<Call>::entry_of(early), why, {});
    };
    context_.defer(call);
}

// The call that a reply answers. A reply counts only from the peer that was asked, and only once.
inline Client::Entry* Client::answered_by(const core::Peer& peer, ByteView frame) {
    const auto id = base::load<WireCallId>(frame.data() + offsetof(ReplyHeader, call));
    Entry* entry = calls_.find({id.slot, id.generation});
    if (base::is_mutated(base::Mutant::stale_generation)) {
        calls_.for_each([&](Entry& one) { entry = one.slot == id.slot ? &one : entry; });
    }
    if (!entry || entry->value.peer != &peer || entry->value.core::Deferred::is_linked())
        [[unlikely]] {
        ++counters_.late_replies;
        return nullptr;
    }
    return entry;
}

void Client::on_frame(core::Peer& peer, core::FrameHead head, ByteView frame) {
    if (!is_plain_reply(head)) [[unlikely]] {
        return on_failure(peer, head, frame);
    }
    if (Entry* entry = answered_by(peer, frame)) [[likely]] {
        context_.drop_interest(peer);
        complete(*entry, ok_, frame.subspan(sizeof(ReplyHeader)));
    }
}

void Client::on_failure(core::Peer& peer, core::FrameHead head, ByteView frame) {
    if (const auto why = why_no_reply(head)) return context_.broken(peer, std::string(*why));
    if (is_lent(head)) return fetch_reply(peer, frame);
    if (Entry* entry = answered_by(peer, frame)) finish_failed(*entry, peer, head, frame);
}

void Client::fetch_reply(core::Peer& peer, ByteView frame) {
    const auto where = base::load<bulk::LentBody>(frame.data() + sizeof(ReplyHeader));
    Entry* entry = answered_by(peer, frame);
    if (!entry) return bulk_.staging.decline(peer, where);  // It may be waiting for its memory.
    if (std::exchange(entry->value.stage, Stage::executing) == Stage::executing) {
        return context_.broken(peer, "two replies to one call");
    }
    const CallId id = entry->id();
    const TimePoint deadline = entry->value.deadline;
    const bulk::FetchId fetch = bulk_.staging.fetch(
        peer, where, deadline,
        [this, id](const Status& status, ByteView reply) { on_fetched(id, status, reply); });
    if (fetch) fetching_.push_back({id, fetch});
}

// The call may have ended before.
void Client::on_fetched(CallId id, const Status& status, ByteView reply) {
    std::erase_if(fetching_, [&](const Fetching& one) { return one.call == id; });
    Entry* entry = calls_.find(id);
    if (!entry || entry->value.core::Deferred::is_linked()) return;
    if (status.ok()) return finish(*entry, ok_, reply);
    finish(*entry,
           Status(status)
               .in("the reply can't be fetched")
               .with_effect(Effect::applied)
               .with_stage(Stage::executing),
           {});
}

void Client::forget_fetch(CallId id) {
    for (const Fetching& one : fetching_) {
        if (one.call == id) return bulk_.staging.cancel(one.fetch);
    }
}

void Client::finish_failed(Entry& entry, core::Peer& peer, core::FrameHead head, ByteView frame) {
    const Outcome outcome = *unpack(head.aux);
    ByteView text = frame.subspan(sizeof(ReplyHeader));
    text = text.first(std::min(text.size(), error_text_bytes_max));
    Status status = fail(outcome.code, std::string(as_text(text)))
                        .with_effect(outcome.effect)
                        .with_stage(outcome.stage)
                        .with_peer(peer.uri);
    if (outcome.code == Code::ok) {
        // Impossible from weft: ok with another effect or stage.
        status = fail(Code::data_loss, "a reply that contradicts itself").with_peer(peer.uri);
    }
    finish(entry, status, {});
}

void Client::on_deadline(base::Timer& timer, TimePoint) {
    auto& call = static_cast<Call&>(timer);
    call.client->expire(call);
}

void Client::expire(Call& call) {
    // Fired, so no longer in the wheel; a deferred completion has cancelled its timer.
    Status status = fail(Code::deadline_exceeded, "no reply in time");
    forget_frame(call);
    if (call.peer->state != core::PeerState::up) {
        call.stage = Stage::resolving;
        status = fail(Code::unavailable, "not connected before the deadline");
    }
    if (call.stage == Stage::sent) send_cancel(call);
    finish(base::SlotTable<Call>::entry_of(call),
           std::move(status)
               .with_effect(effect_at(call.stage))
               .with_stage(call.stage)
               .with_peer(call.peer->uri),
           {});
}

void Client::cancel(CallId id) {
    Entry* entry = calls_.find(id);
    if (!entry || entry->value.core::Deferred::is_linked()) return;
    if (base::is_mutated(base::Mutant::cancel_lost)) return;
    Call& call = entry->value;
    forget_frame(call);
    if (call.stage == Stage::sent) send_cancel(call);
    if (call.stage == Stage::executing) forget_fetch(id);
    finish_early(*entry, fail(Code::cancelled, "cancelled by the caller"));
}

void Client::abandon(CallId id) {
    if (Entry* entry = calls_.find(id)) {
        entry->value.done = [](const Status&, ByteView) {};
        cancel(id);
    }
}

// A frame that still waits must not leave for a call that is over.
void Client::forget_frame(Call& call) {
    if (call.stage != Stage::queued) return;
    const ByteView frame = call.queued->frame();
    if (is_lent(base::load<core::FrameHead>(frame.data()))) {
        bulk_.staging.withdraw(*call.peer,
                               base::load<bulk::LentBody>(frame.data() + sizeof(RequestHeader)));
    }
    context_.drop(*call.peer, *call.queued);
}

void Client::send_cancel(Call& call) {
    if (call.peer->state != core::PeerState::up) return;
    const core::Context::Claim claim = context_.claim(*call.peer, sizeof(CancelHeader));
    if (!claim.data) return;  // Best effort; the server's deadline ends it too.
    CancelHeader header;
    const CallId id = base::SlotTable<Call>::entry_of(call).id();
    header.call = {id.slot, id.generation};
    base::store(claim.data, header);
    context_.commit(*call.peer, claim, sizeof header);
}

Client::Entry* Client::entry_of(ByteView request_frame) {
    if (base::load<core::FrameHead>(request_frame.data()).kind != core::FrameKind::request) {
        return nullptr;
    }
    const auto header = base::load<RequestHeader>(request_frame.data());
    return calls_.find({header.call.slot, header.call.generation});
}

void Client::on_leaving(core::Peer& peer, Bytes frame) {
    Entry* entry = entry_of(frame);
    if (!entry) return;
    auto header = base::load<RequestHeader>(frame.data());
    header.remaining_us = to_remaining_us(context_.now(), entry->value.deadline);
    base::store(frame.data(), header);
    if (is_lent(header.head)) {
        std::byte* const at = frame.data() + sizeof header;
        auto where = base::load<bulk::LentBody>(at);
        bulk_.staging.address(peer, where);  // If it can't, the server says so.
        base::store(at, where);
    }
    entry->value.stage = Stage::sent;
}

void Client::on_refused(core::Peer&, ByteView frame) {
    if (Entry* entry = entry_of(frame)) refuse_size(*entry, frame.size() - sizeof(RequestHeader));
}

void Client::on_peer_down(core::Peer& peer, const Status& why) {
    // Deferred ones complete by themselves with what they know.
    calls_.for_each([&](Entry& entry) {
        Call& call = entry.value;
        if (call.peer != &peer || call.core::Deferred::is_linked()) return;
        if (call.stage == Stage::queued) call.stage = Stage::resolving;
        finish_early(entry, why);
    });
}

void Client::shutdown(const Status& why) {
    closed_ = true;
    calls_.for_each([&](Entry& entry) {
        Call& call = entry.value;
        if (call.core::Deferred::is_linked()) {
            context_.undefer(call);
        } else {
            if (call.peer) forget_frame(call);
            call.early = Status(why).with_effect(effect_at(call.stage)).with_stage(call.stage);
        }
        const Status status = std::exchange(call.early, Status());
        finish(entry, status, {});
    });
}

}  // namespace weft::rpc
