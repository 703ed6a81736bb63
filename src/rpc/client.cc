#include "rpc/client.h"

#include "base/assert.h"
#include "base/mutant.h"

namespace weft::rpc {

// What every transport takes: the limit while it is not known which one it will be.
static constexpr std::size_t eager_bytes_sure = 16u << 10;

// What each peer may have waiting, whatever the others have.
static constexpr std::size_t waiting_bytes_modest = 64u << 10;

ClientCall::ClientCall() { fire = &Client::on_deadline; }

static CallEntry& entry_of(ClientCall& call) { return base::SlotTable<ClientCall>::entry_of(call); }

Client::Client(core::Context& context, bulk::Bulk& bulk, ClientLimits limits)
    : context_(context), bulk_(bulk), limits_(limits) {
    context_.set_sink(core::FrameKind::reply, *this);
    context_.set_sink(core::FrameKind::grant, *this);
    context_.set_sink(core::FrameKind::told, *this);
}

// What is left was retried for ever after the end, until that was dropped.
Client::~Client() {
    calls_.for_each([&](CallEntry& entry) {
        WEFT_DCHECK(closed_ && entry.value.ends);
        context_.undefer(entry.value);
        calls_.give_back(entry);
    });
}

// `executing`: the server has answered, and its large reply is on its way.
static Effect effect_of(const ClientCall& call) {
    if (call.stage == Stage::executing) return Effect::applied;
    if (base::is_mutated(base::Mutant::effect_denied)) return Effect::none;
    return call.stage == Stage::sent || call.may_run ? Effect::unknown : Effect::none;
}

std::size_t Client::eager_bytes_max(const core::Peer& peer) const {
    return peer.state == core::PeerState::up ? peer.eager_bytes_max : eager_bytes_sure;
}

// ---- requests that wait ------------------------------------------------------------------------

// Not connected yet, others wait, no slot is free, the transport is full, or it is too large.
CallId Client::submit_queued(CallEntry& entry, const MethodId& method, const BodyWriter& body) {
    ClientCall& call = entry.value;
    call.stage = Stage::queued;
    if (!call.session) return refuse_full(entry, body.bytes);
    ClientSession& session = *call.session;
    core::Peer& peer = session.peer;
    if (base::is_mutated(base::Mutant::deadline_ignored)) context_.timers().cancel(call);
    const bool lends = body.bytes > eager_bytes_max(peer);
    const std::size_t bytes = lends ? sizeof(bulk::LentBody) : body.bytes;
    if (lends && body.bytes > bulk_.staging.body_bytes_max()) {
        return refuse_size(entry, body.bytes);
    }
    if (!has_room(session, bytes)) return refuse_full(entry, bytes);
    if (is_too_late(session, call)) return refuse_late(entry);
    call.waiting = WaitingRequest::make(method.hash, call.traits.flags, bytes);
    if (!call.waiting) return refuse_full(entry, bytes);
    if (lends) {
        if (!lend(call, body)) return entry.id();
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
bool Client::lend(ClientCall& call, const BodyWriter& body) {
    Result<bulk::Loan> loan = bulk_.staging.lend(call.session->peer, body.bytes);
    if (!loan) {
        call.waiting = nullptr;
        finish_early(call, std::move(loan).status().in("a request of " +
                                                       std::to_string(body.bytes) + " bytes"));
        return false;
    }
    body(loan->memory.data());
    call.waiting->flags |= lent_flag;
    base::store(call.waiting->body(), loan->where);
    return true;
}

bool Client::has_room(const ClientSession& session, std::size_t bytes) const {
    const std::size_t all = sizeof(RequestHeader) + bytes;
    const std::size_t there = session.waiting.bytes();
    if (session.waiting.size() >= limits_.waiting_calls_max) return false;
    if (there + all > limits_.waiting_bytes_max) return false;
    // Who has little is not refused for what others have.
    return waiting_bytes_ + all <= limits_.waiting_bytes_all_max || there <= waiting_bytes_modest;
}

void Client::enqueue(ClientCall& call, bool first) {
    WaitQueue& queue = call.session->waiting;
    first ? queue.push_front(call) : queue.push_back(call);
    waiting_bytes_ += call.waiting->size();
    call.stage = Stage::queued;
}

// The request stays with the call.
void Client::dequeue(ClientCall& call) {
    call.session->waiting.remove(call);
    waiting_bytes_ -= call.waiting->size();
}

// Sends what may be sent.
void Client::pump(ClientSession& session) {
    while (ClientCall* call = session.waiting.front()) {
        if (session.busy >= session.window || !session.has_free()) return;
        if (!may_send(session, call->waiting->bytes)) {
            // Of its own it hears by its own replies.
            Hungry& node = session;
            if (session.busy == 0 && !node.is_linked()) hungry_.push_back(session);
            return;
        }
        if (!transmit(session, *call)) return;
    }
    session.pace.on_idle();
}

// Room for another call of somebody: those who have nothing under way take turns.
void Client::feed() {
    while (ClientSession* session = hungry_.pop_front()) {
        pump(*session);
        if (static_cast<Hungry&>(*session).is_linked()) return;  // Nothing is left.
    }
}

// False: the transport has no room now.
bool Client::transmit(ClientSession& session, ClientCall& call) {
    core::Peer& peer = session.peer;
    WaitingRequest& request = *call.waiting;
    const bool is_lent = (request.flags & lent_flag) != 0;
    if (peer.direct_body_end == 0) return false;
    if (!is_lent && request.bytes > peer.eager_bytes_max) {
        // It waited for its connection, and is too large for what was found.
        dequeue(call);
        refuse_size(entry_of(call), std::exchange(call.waiting, nullptr)->bytes);
        return true;
    }
    const std::size_t bytes = request.size();
    std::byte* to = context_.reserve(peer, bytes);
    if (!to) return false;
    if (is_lent) {
        auto where = base::load<bulk::LentBody>(request.body());
        bulk_.staging.address(peer, where);  // If it can't, the server says so.
        base::store(request.body(), where);
    }
    dequeue(call);
    ClientSlot& slot = session.take();
    slot.call = &call;
    call.slot = &slot;
    account(session, request.bytes);
    store_request(to, bytes, request.flags, slot.wire(),
                  to_remaining_us(context_.now(), call.deadline), request.method);
    std::memcpy(to + sizeof(RequestHeader), request.body(), request.bytes);
    slot.keep_small(request.method, request.flags, request.body(), request.bytes);
    if (is_lent) slot.is_kept = false;  // What is lent is lent for one connection.
    call.attempts = request.attempts;
    if (!slot.is_kept && !is_lent && call.traits.is_idempotent()) {
        slot.is_kept = true;
        slot.large = std::move(call.waiting);
    }
    call.waiting = nullptr;
    call.may_run = false;
    call.stage = Stage::sent;
    context_.commit(peer, bytes);
    return true;
}

// So many are before it that it could not be answered in time.
bool Client::is_too_late(const ClientSession& session, const ClientCall& call) const {
    if (session.waiting.size() == 0) return false;
    const std::uint32_t before = session.busy + session.waiting.size();
    return session.pace.expected(context_.now(), before) > call.deadline;
}

void Client::on_room(core::Peer& peer) {
    if (peer.client_session) pump(*peer.client_session);
}

// ---- refusals ----------------------------------------------------------------------------------

CallId Client::refuse(CallEntry* entry, Completion&& done) {
    if (!entry) {
        // No record to wait with: the only case in which a completion runs inside the call.
        ++counters_.completed[static_cast<std::size_t>(Code::resource_exhausted)];
        done(fail(Code::resource_exhausted, "too many calls in flight"), {});
        return {};
    }
    entry->value.client = this;
    entry->value.session = nullptr;
    entry->value.done = std::move(done);
    entry->value.stage = Stage::none;
    finish_early(entry->value, closed_ ? fail(Code::cancelled, "the runtime is shutting down")
                                       : fail(Code::unavailable, "the channel is closed"));
    return entry->id();
}

CallId Client::refuse_size(CallEntry& entry, std::size_t bytes) {
    const core::Peer& peer = entry.value.session->peer;
    // One that waited for its connection may be too large for what was found.
    const std::size_t most = bytes > bulk_.staging.body_bytes_max() ? bulk_.staging.body_bytes_max()
                                                                    : peer.eager_bytes_max;
    finish_early(entry.value,
                 fail(Code::invalid_argument,
                      "a request of " + std::to_string(bytes) + " bytes exceeds the limit of " +
                          std::to_string(most) + " bytes; pass large data by weft.BulkRef"));
    return entry.id();
}

CallId Client::refuse_full(CallEntry& entry, std::size_t bytes) {
    ClientCall& call = entry.value;
    if (!call.session) {
        finish_early(call, fail(Code::resource_exhausted, "no memory for a session"));
        return entry.id();
    }
    const core::Peer& peer = call.session->peer;
    const WaitQueue& queue = call.session->waiting;
    if (bytes + sizeof(RequestHeader) > limits_.waiting_bytes_max) {
        finish_early(call, fail(Code::invalid_argument,
                                "the request is larger than anything that " + peer.uri +
                                    " could take; pass large data by weft.BulkRef"));
        return entry.id();
    }
    finish_early(call, fail(Code::resource_exhausted,
                            "the queue to " + peer.uri + " is full (" +
                                std::to_string(queue.size()) + " calls, " +
                                std::to_string(queue.bytes()) + " bytes)"));
    return entry.id();
}

CallId Client::refuse_late(CallEntry& entry) {
    ClientCall& call = entry.value;
    const WaitQueue& queue = call.session->waiting;
    finish_early(call, fail(Code::resource_exhausted,
                            "the " + std::to_string(queue.size()) + " calls that wait for " +
                                call.session->peer.uri + " take longer than this one has"));
    return entry.id();
}

// ---- ends --------------------------------------------------------------------------------------

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
    } else {
        context_.drop_interest(session->peer);
    }
}

void Client::finish(ClientCall& call, const Status& status, ByteView reply) {
    call.may_run = false;
    leave_session(call);
    complete(call, status, reply);
}

// Completes in the next turn, with what is known now.
void Client::finish_early(ClientCall& call, Status status) {
    context_.timers().cancel(call);
    call.early = std::move(status).with_effect(effect_of(call)).with_stage(call.stage);
    // By then the peer's place may be another's.
    if (call.session) call.early = std::move(call.early).with_peer(call.session->peer.uri);
    leave_session(call);
    call.ends = true;
    call.may_run = false;
    call.run = [](core::Deferred& work) {
        auto& early = static_cast<ClientCall&>(work);
        const Status why = std::exchange(early.early, Status());
        early.ends = false;
        early.client->complete(early, why, {});
    };
    context_.defer(call);
}

// The call that a reply answers, whose slot is free again. A reply counts only from the peer that
// was asked, and only once.
inline ClientCall* Client::answered_by(core::Peer& peer, ByteView frame) {
    const auto wire = base::load<WireCallId>(frame.data() + offsetof(ReplyHeader, call));
    ClientSession* const session = peer.client_session;
    ClientSlot* slot = session ? session->find(wire) : nullptr;
    if (base::is_mutated(base::Mutant::stale_generation) && session && wire.slot < session->made &&
        session->at(wire.slot).is_busy) {
        slot = &session->at(wire.slot);
    }
    if (!slot) [[unlikely]] {
        ++counters_.late_replies;
        return nullptr;
    }
    ClientCall* const call = slot->call;
    release(*session, *slot);
    if (!hungry_.empty()) [[unlikely]] {
        feed();
    }
    if (session->waiting.size() != 0) [[unlikely]] {
        session->pace.on_reply(context_.now());
        pump(*session);
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
    const std::uint32_t attempt = call.attempts + 1u;
    const Duration pause =
        retry_pause(attempt, std::chrono::microseconds(asked_us), context_.random());
    const TimePoint then = context_.now() + pause;
    ClientSession& session = *call.session;
    if (then >= call.deadline || attempt > 100) return false;
    if (!base::is_mutated(base::Mutant::budget_ignored) && !session.budget.spend()) return false;
    ++counters_.retried;
    request->attempts = static_cast<std::uint8_t>(attempt);
    request->deadline = call.deadline;
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
    context_.timers().arm(call, call.waiting->deadline);
    ClientSession& session = *call.session;
    enqueue(call, true);
    if (session.state == SessionState::open) return pump(session);
    core::Peer& peer = session.peer;
    if (peer.state == core::PeerState::idle && session.state == SessionState::none) {
        context_.connect(peer);
    }
}

void Client::fetch_reply(core::Peer& peer, ByteView frame) {
    const auto where = base::load<bulk::LentBody>(frame.data() + sizeof(ReplyHeader));
    ClientCall* const call = answered_by(peer, frame);
    if (!call) return bulk_.staging.decline(peer, where);  // It may be waiting for its memory.
    call->stage = Stage::executing;
    const CallId id = entry_of(*call).id();
    const TimePoint deadline = call->deadline;
    const bulk::FetchId fetch = bulk_.staging.fetch(
        peer, where, deadline,
        [this, id](const Status& status, ByteView reply) { on_fetched(id, status, reply); });
    if (fetch) fetching_.push_back({id, fetch});
}

// The call may have ended before.
void Client::on_fetched(CallId id, const Status& status, ByteView reply) {
    std::erase_if(fetching_, [&](const Fetching& one) { return one.call == id; });
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

void Client::forget_fetch(CallId id) {
    for (const Fetching& one : fetching_) {
        if (one.call == id) return bulk_.staging.cancel(one.fetch);
    }
}

void Client::finish_failed(ClientCall& call, core::Peer& peer, core::FrameHead head,
                           ByteView frame) {
    const Outcome outcome = *unpack(head.aux);
    ByteView text = frame.subspan(sizeof(ReplyHeader));
    if (head.flags == pushback_flag) text = text.subspan(pushback_bytes);
    text = text.first(std::min(text.size(), error_text_bytes_max));
    Status status = fail(outcome.code, std::string(as_text(text)))
                        .with_effect(outcome.effect)
                        .with_stage(outcome.stage)
                        .with_peer(peer.uri);
    if (outcome.code == Code::ok) {
        // Impossible from weft: ok with another effect or stage.
        status = fail(Code::data_loss, "a reply that contradicts itself").with_peer(peer.uri);
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
    if (call.slot) send_cancel(call.session->peer, *call.slot);
    if (call.stage == Stage::executing) forget_fetch(entry_of(call).id());
}

void Client::expire(ClientCall& call) {
    if (call.rests) return wake(call);
    // Fired, so no longer in the wheel; a deferred completion has cancelled its timer.
    Status status = fail(Code::deadline_exceeded, "no reply in time");
    const ClientSession& session = *call.session;
    if (session.state != SessionState::open && call.stage != Stage::executing) {
        if (call.stage == Stage::queued) call.stage = Stage::resolving;
        std::string text = "not connected before the deadline";
        if (!session.last_why.empty()) text = session.last_why + "; " + text;
        status = fail(Code::unavailable, std::move(text));
    }
    give_up(call);
    status = std::move(status)
                 .with_effect(effect_of(call))
                 .with_stage(call.stage)
                 .with_peer(session.peer.uri);
    finish(call, status, {});
}

void Client::cancel(CallId id) {
    CallEntry* entry = calls_.find(id);
    if (!entry || entry->value.ends) return;
    if (base::is_mutated(base::Mutant::cancel_lost)) return;
    give_up(entry->value);
    finish_early(entry->value, fail(Code::cancelled, "cancelled by the caller"));
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
    if (!claim.data) return;  // Best effort; the server's deadline ends it too.
    CancelHeader header;
    header.call = slot.wire();
    base::store(claim.data, header);
    context_.commit(peer, claim, sizeof header);
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
            call.early = Status(why).with_effect(effect_of(call)).with_stage(call.stage);
        }
        const Status status = std::exchange(call.early, Status());
        finish(call, status, {});
    });
    while (!sessions_.empty()) forget(sessions_.front());
}

}  // namespace weft::rpc
