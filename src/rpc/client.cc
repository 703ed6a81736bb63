#include "rpc/client.h"

#include "base/assert.h"
#include "base/mutant.h"

namespace weft::rpc {

// What every transport takes: the limit while it is not known which one it will be.
static constexpr std::size_t eager_bytes_sure = 16u << 10;

// What each peer may have waiting, whatever the others have.
static constexpr std::size_t waiting_bytes_modest = 64u << 10;
// From a request to its answer at a busy server, about.
static constexpr Duration answer_time = 30ms;

ClientCall::ClientCall() { fire = &Client::on_deadline; }

Client::Client(core::Context& context, bulk::Bulk& bulk, ClientLimits limits)
    : context_(context),
      bulk_(bulk),
      limits_(limits),
      bytes_room_(limits.sent_bytes_all_max),
      calls_room_(limits.sent_calls_max) {
    context_.set_sink(core::FrameKind::reply, *this);
    context_.set_sink(core::FrameKind::grant, *this);
    context_.set_sink(core::FrameKind::told, *this);
    context_.set_sink(core::FrameKind::bulk_data, *this);
}

// What is left was retried for ever after the end, until that was dropped.
Client::~Client() {
    calls_.for_each([&](CallEntry& entry) {
        WEFT_DCHECK(closed_ && entry.value.ends);
        context_.undefer(entry.value);
        calls_.give_back(entry);
    });
}

std::size_t Client::eager_bytes_max(const core::Peer& peer) const {
    return peer.state == core::PeerState::up ? peer.eager_bytes_max : eager_bytes_sure;
}

CallId Client::submit_nested(core::Scope& scope, core::PeerRef peer, const MethodId& method,
                             const BodyWriter& body, TimePoint deadline, CallTraits traits,
                             Completion&& done) {
    if (!done) detail::refuse_empty(empty_completion);
    if (scope.cancelled) {
        return submit_refused(&scope, std::move(done),
                              fail(Code::cancelled, core::scope_cancelled_text));
    }
    if (scope.has_passed(context_.clock())) {
        return submit_refused(&scope, std::move(done), core::scope_is_late());
    }
    CallId id;
    traits.is_nested = true;
    const bool is_started = nested_.start(scope, done, [&](Completion inner) {
        return id = submit(peer, method, BodyWriter(body), std::min(deadline, scope.deadline),
                           traits, std::move(inner));
    });
    if (!is_started) {
        ++counters_.submitted;
        return refuse(nullptr, std::move(done), why_refused());
    }
    return id;
}

CallId Client::submit_refused(core::Scope* scope, Completion&& done, const Status& why) {
    ++counters_.submitted;
    CallId id;
    const bool is_nested = scope && nested_.start(*scope, done, [&](Completion inner) {
        return id = refuse(calls_.take(), std::move(inner), why);
    });
    return is_nested ? id : refuse(calls_.take(), std::move(done), why);
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
    if (counters_.submitted % timed_every == 0) sample(call, method);
    if (!has_room(session, bytes)) return refuse_full(entry, bytes);
    if (is_too_late(session, call)) return refuse_late(entry);
    if (lends && spare_lent_) {
        call.waiting = std::move(spare_lent_);
        call.waiting->reset(method.hash, call.traits.flags);
    } else {
        call.waiting = WaitingRequest::make(method.hash, call.traits.flags, bytes);
    }
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
    Result<bulk::Loan> loan =
        bulk_.staging.lend(call.session->peer, body.bytes, bulk::Staging::Leaves::later);
    if (!loan) {
        call.waiting = nullptr;
        finish_early(call, std::move(loan).status().in("a request of " +
                                                       std::to_string(body.bytes) + " bytes"));
        return false;
    }
    write_out(context_, call.session->peer, body, loan->memory.data());
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
    call.waiting->at = context_.now();
    base::Timer& patience = *call.session;
    if (call.session->state == SessionState::ended && !patience.is_linked()) {
        context_.timers().arm(patience, context_.now() + search_max);
    }
}

// The request stays with the call.
void Client::dequeue(ClientCall& call) {
    call.session->waiting.remove(call);
    waiting_bytes_ -= call.waiting->size();
    if (call.session->waiting.size() == 0) call.session->pace.on_idle();
}

// Sends what may be sent.
void Client::pump(ClientSession& session) {
    while (ClientCall* call = session.waiting.front()) {
        if (!session.may_take(*call) || !session.has_free()) return;
        if (!may_send(session, call->waiting->bytes)) {
            // Of its own room it hears by its own replies.
            Hungry& node = session;
            const bool is_own = call->waiting->bytes > session.bytes_room;
            if (!is_own && !node.is_linked()) hungry_.push_back(session);
            return;
        }
        if (!transmit(session, *call)) return;
    }
    session.pace.on_idle();
}

// Room for another call of somebody: those who wait for it take turns.
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
    const bool is_extra = session.busy >= session.plain_window;
    ClientSlot& slot = session.take();
    if (is_extra) session.take_extra(slot);
    slot.call = &call;
    call.slot = &slot;
    account(session, request.bytes);
    store_request(to, bytes, request.flags, slot.wire(),
                  to_remaining_us(context_.now(), call.deadline), request.method);
    const BodyWriter body = BodyWriter::of({request.body(), request.bytes});
    write_out(context_, peer, body, to + sizeof(RequestHeader));
    if (slot.describe(request.method, request.flags, request.bytes)) slot.keep(request.body());
    if (is_lent) slot.is_kept = false;  // What has left is lent for one connection.
    if (!slot.is_kept && !is_lent && call.traits.is_idempotent()) {
        slot.is_kept = true;
        slot.is_unusual = true;
        slot.large = std::move(call.waiting);
    }
    if (is_lent) spare_lent_ = std::move(call.waiting);
    call.waiting = nullptr;
    call.stage = Stage::sent;
    context_.commit(peer, bytes);
    return true;
}

// So many are before it that too little of its time would be left when it leaves, even if the
// server goes on as fast as it was. A pace is known to a fifth of it, no better, and answers take a
// while; calls that leave later end just after their time, and cost the server as much as those of
// use.
bool Client::is_too_late(const ClientSession& session, const ClientCall& call) const {
    const WaitQueue& queue = session.waiting;
    if (queue.ahead_of(call) == 0) return false;
    const TimePoint now = context_.now();
    const Duration left = call.deadline - now;
    const TimePoint latest = call.deadline - std::min(left / 2, left / 5 + answer_time);
    return session.pace.expected(
               now, [&](std::uint64_t method) { return queue.ahead_of(call, method); }) > latest;
}

void Client::on_room(core::Peer& peer) {
    if (peer.client_session) pump(*peer.client_session);
}

// ---- refusals ----------------------------------------------------------------------------------

Status Client::why_refused() const {
    return closed_
               ? fail(Code::cancelled, "the runtime is shutting down")
               : fail(Code::unavailable,
                      "the last copy of the channel was dropped before the call began: keep one "
                      "as long as calls are made by it");
}

CallId Client::refuse(CallEntry* entry, Completion&& done, Status why) {
    if (!done) detail::refuse_empty(empty_completion);
    if (!entry) {
        // No record to wait with: the only case in which a completion runs inside the call.
        ++counters_.completed[static_cast<std::size_t>(Code::resource_exhausted)];
        done(fail(Code::resource_exhausted,
                  std::to_string(calls_.taken()) +
                      " calls are in flight, and there is no room for one more"),
             {});
        return {};
    }
    entry->value.client = this;
    entry->value.session = nullptr;
    entry->value.done = std::move(done);
    entry->value.stage = Stage::none;
    finish_early(entry->value, std::move(why));
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
    context_.note("refused: queue full", peer.uri, queue.size());
    finish_early(call,
                 fail(Code::resource_exhausted, "the queue to " + peer.uri + " is full (" +
                                                    std::to_string(queue.size()) + " calls, " +
                                                    std::to_string(queue.bytes()) + " bytes)"));
    return entry.id();
}

CallId Client::refuse_late(CallEntry& entry) {
    ClientCall& call = entry.value;
    const WaitQueue& queue = call.session->waiting;
    context_.note("refused: too late", call.session->peer.uri, queue.size());
    finish_early(call, fail(Code::resource_exhausted,
                            "the " + std::to_string(queue.size()) + " calls that wait for " +
                                call.session->peer.uri + " leave this one too little time"));
    return entry.id();
}

}  // namespace weft::rpc
