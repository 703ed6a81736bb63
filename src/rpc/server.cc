#include "rpc/server.h"

#include <exception>

#include "base/assert.h"
#include "rpc/body.h"

namespace weft::rpc {

Server::Server(core::Context& context, bulk::Bulk& bulk, const ServerLimits& limits)
    : context_(context),
      bulk_(bulk),
      memory_(limits),
      sessions_(context.random().next(), context.member(), limits.budgets) {
    context_.set_sink(core::FrameKind::request, *this);
    context_.set_sink(core::FrameKind::cancel, *this);
    context_.set_sink(core::FrameKind::session, *this);
    context_.set_sink(core::FrameKind::session_end, *this);
    context_.set_sink(core::FrameKind::call_query, *this);
    register_live();
}

Server::~Server() { WEFT_DCHECK(calls_.taken() == 0 && memory_.is_unused()); }

// The slot of a request, which the request occupies from here on. nullptr: the connection was
// closed, or the session was refused.
inline Server::Slot* Server::accept_in_slot(core::Peer& peer, core::FrameHead head,
                                            const std::byte* frame) {
    const auto wire = base::load<WireCallId>(frame + offsetof(RequestHeader, call));
    ServerSession* const session = server_session(peer);
    if (!session || wire.slot >= session->slots()) [[unlikely]] {
        return reject_slot(peer, wire);
    }
    Slot& slot = session->slot(wire.slot);
    if (slot.call || wire.sequence != slot.sequence + 1) [[unlikely]] {
        const bool is_again = !slot.call &&
                              slot.retention == ServerSession::Retention::not_received &&
                              wire.sequence == slot.sequence;
        if (!is_again) return reject_slot(peer, wire);
    }
    slot.sequence = wire.sequence;
    slot.retention.restart((head.flags & idempotent_flag) != 0 ? ServerSession::Retention::nothing
                                                               : ServerSession::Retention::reply);
    return &slot;
}

[[gnu::cold]] Server::Slot* Server::reject_slot(core::Peer& peer, WireCallId wire) {
    if (peer.session_request == core::SessionRequest::refused)
        return nullptr;  // Sent before the refusal arrived.
    const ServerSession* const session = server_session(peer);
    std::string reason = "a request outside of a session";
    if (session && wire.slot >= session->slots()) {
        reason = "a request in slot " + std::to_string(wire.slot) + " of " +
                 std::to_string(session->slots());
    } else if (session) {
        reason = "a request that is not the next one in slot " + std::to_string(wire.slot);
    }
    context_.close_malformed(peer, std::move(reason));
    return nullptr;
}

inline void Server::run_handler(ServerCall& call) {
    Method* method = call.method;
    WEFT_DCHECK(method && !call.cancelled && !call.fetch);
    WEFT_DCHECK(call.session ? call.slot->call == &call : bool(call.local));
    methods_.on_run(*method);
    if (call.wire.sequence % calls_per_sample == 0) [[unlikely]] {
        start_timing(call);
    }
    context_.enter_scope(call);
    // A handler's exception ends here, and so does the Call that it did not answer.
    try {
        method->handler(Call(*this, call));
    } catch (...) {
        log_thrown_by_handler(&context_, method->name, std::current_exception());
    }
    context_.leave_scope();
}

void Server::on_frame(core::Peer& peer, core::FrameHead head, ByteView frame) {
    if (!is_request(head)) [[unlikely]] {
        return on_other_frame(peer, head, frame);
    }
    Slot* const slot = accept_in_slot(peer, head, frame.data());
    if (!slot) [[unlikely]] {
        return;
    }
    if (frame.size() > small_request_bytes) [[unlikely]] {
        return receive_large(peer, *slot, frame);
    }
    // Field by field: the whole header would go through the stack.
    const std::byte* from = frame.data();
    const auto hash = base::load<std::uint64_t>(from + offsetof(RequestHeader, method));
    const auto remaining_us =
        base::load<std::uint32_t>(from + offsetof(RequestHeader, remaining_us));
    Method* method = methods_.find(hash);
    // While draining no method is found.
    const bool in_time = remaining_us != 0;
    const bool has_room = calls_.taken() < handlers_.limit();
    Entry* entry = method && in_time && has_room ? calls_.take() : nullptr;
    if (!entry) [[unlikely]] {
        if (method && in_time) entry = take_beyond_share();
    }
    if (!entry) [[unlikely]] {
        return refuse_request(peer, *slot, base::load<RequestHeader>(from), method);
    }
    ServerCall& call = entry->value;
    WEFT_DCHECK(!call.session && !call.local && !call.needs_cleanup && !call.cancelled);
    WEFT_DCHECK(!slot->call && call.operations.empty());
    call.session = server_session(peer);
    call.slot = slot;
    slot->call = &call;
    call.wire = base::load<WireCallId>(from + offsetof(RequestHeader, call));
    call.deadline = to_deadline(context_.now(), remaining_us);
    call.method = method;
    call.request = frame.subspan(sizeof(RequestHeader));
    context_.add_interest(peer);
    run_handler(call);
    // An answered record has no session.
    if (call.session) [[unlikely]] {
        call.needs_cleanup = true;  // Its holder may answer between turns.
    }
}

[[gnu::noinline]] void Server::on_other_frame(core::Peer& peer, core::FrameHead head,
                                              ByteView frame) {
    using core::FrameKind;
    const auto why = head.kind == FrameKind::request       ? why_no_request(head)
                     : head.kind == FrameKind::cancel      ? why_no_cancel(head)
                     : head.kind == FrameKind::session     ? why_no_session(head)
                     : head.kind == FrameKind::session_end ? why_no_session_end(head)
                                                           : why_no_call_query(head);
    if (why) return context_.close_malformed(peer, std::string(*why));
    if (head.kind == FrameKind::session) return on_session(peer, frame);
    if (peer.session_request == core::SessionRequest::refused) return;
    if (!server_session(peer)) {
        const bool crossed = peer.session_request == core::SessionRequest::expired;
        if (crossed) peer.session_request.move_to(core::SessionRequest::none);
        if (crossed && head.kind == FrameKind::session_end) return;
        return context_.close_malformed(peer, "a frame outside of a session");
    }
    if (head.kind == FrameKind::cancel) return on_cancel(peer, frame);
    if (head.kind == FrameKind::call_query) return on_call_query(peer, frame);
    if (head.kind == FrameKind::session_end) return end_session(*server_session(peer));
    Slot* const slot = accept_in_slot(peer, head, frame.data());
    if (!slot) return;
    is_rendezvous(head) ? fetch_request(peer, *slot, frame)
                        : receive_inline_bulk(peer, *slot, frame);
}

// A record for a call, for which the share of the context may have to grow. nullptr: it can't.
[[gnu::cold, gnu::noinline]] Server::Entry* Server::take_beyond_share() {
    const bool has_room = calls_.taken() < handlers_.limit() || handlers_.reach(calls_.taken(), 1);
    return has_room ? calls_.take() : nullptr;
}

// Makes the record of a request of so many bytes. nullptr: the request was refused.
ServerCall* Server::admit(core::Peer& peer, Slot& slot, const RequestHeader& header,
                          std::size_t bytes) {
    Method* method = methods_.find(header.method);
    const bool in_time = header.remaining_us != 0;
    Entry* entry = method && in_time && memory_.has_room(bytes) ? take_beyond_share() : nullptr;
    if (!entry) {
        refuse_request(peer, slot, header, method);
        return nullptr;
    }
    ServerCall& call = entry->value;
    WEFT_ASSERT(!call.session && !call.local && !slot.call);
    call.session = server_session(peer);
    call.slot = &slot;
    slot.call = &call;
    call.wire = header.call;
    call.deadline = to_deadline(context_.now(), header.remaining_us);
    call.method = method;
    call.request = {};
    call.needs_cleanup = true;
    memory_.hold_large(call, bytes);
    context_.add_interest(peer);
    return &call;
}

void Server::receive_large(core::Peer& peer, Slot& slot, ByteView frame) {
    ServerCall* const call =
        admit(peer, slot, base::load<RequestHeader>(frame.data()), frame.size());
    if (!call) return;
    call->request = frame.subspan(sizeof(RequestHeader));
    run_handler(*call);
}

void Server::receive_inline_bulk(core::Peer& peer, Slot& slot, ByteView frame) {
    const auto request = decode_inline_bulk(frame);
    if (!request) return context_.close_malformed(peer, "a request with invalid inline bulk");
    ServerCall* call = admit(peer, slot, base::load<RequestHeader>(frame.data()), frame.size());
    if (!call) return;
    call->request = request->body;
    if (memory_.has_inline_room(request->bytes.size())) {
        try {
            call->inline_bulk = std::make_unique<InlineBulk>(*request);
            memory_.hold_inline(request->bytes.size());
        } catch (const std::bad_alloc&) {
            // The handler fetches the bytes as bulk.
        }
    }
    run_handler(*call);
}

void Server::fetch_request(core::Peer& peer, Slot& slot, ByteView frame) {
    const auto header = base::load<RequestHeader>(frame.data());
    const auto where = base::load<bulk::RendezvousBody>(frame.data() + sizeof header);
    // Its bytes count in the pool for large bodies.
    ServerCall* admitted = admit(peer, slot, header, 0);
    if (!admitted) return bulk_.rendezvous.decline(peer, where);
    ServerCall& call = *admitted;
    const base::SlotId id = base::SlotTable<ServerCall>::entry_of(call).id();
    const bulk::FetchId fetch = bulk_.rendezvous.fetch(
        peer, where, call.deadline,
        [this, id](const Status& status, ByteView body) { on_fetched(id, status, body); });
    if (calls_.find(id)) call.fetch = fetch;
}

void Server::on_fetched(base::SlotId id, const Status& status, ByteView request) {
    Entry* entry = calls_.find(id);
    WEFT_ASSERT(entry != nullptr);  // Only this function ends a call before its handler runs.
    ServerCall& call = entry->value;
    call.fetch = {};
    Status why = status;
    if (call.cancelled) {
        why = fail(Code::cancelled, "the call was cancelled while its body was being fetched");
    } else if (why.ok() && context_.now() >= call.deadline) {
        ++counters_.expired;
        why = fail(Code::deadline_exceeded,
                   "the deadline of the call passed while its body was being fetched: give it more "
                   "time (CallOptions::timeout)");
    } else if (why.ok() && !call.session) {
        return release_call(call);
    } else if (!why.ok()) {
        why = std::move(why).in("the request can't be fetched");
    }
    if (!why.ok()) {
        ServerSession* const session = call.session;
        Slot* const slot = call.slot;
        const WireCallId wire = call.wire;
        if (session) slot->call = nullptr;
        release_call(call);
        if (!session) return;
        return send_failure(session->peer, *slot, wire,
                            std::move(why).with_effect(Effect::none).with_stage(Stage::queued));
    }
    call.request = request;
    run_handler(call);
}

Result<base::SlotId> Server::dispatch_local(std::uint64_t hash, ByteView body, TimePoint deadline,
                                            LocalCompletion done) {
    if (is_draining()) return fail(Code::unavailable, "the server is shutting down");
    Method* const method = methods_.find(hash);
    if (!method) return unknown_method(hash);
    if (!method->traits.collective) {
        return fail(Code::unimplemented,
                    method->name +
                        " is not a collective method; `collective: true` in its .proto, or "
                        "MethodTraits::collective, makes it one");
    }
    Entry* const entry = calls_.take();
    if (!entry) return handlers_exhausted();
    ServerCall& call = entry->value;
    WEFT_ASSERT(done && !call.session && !call.local);
    call.session = nullptr;
    call.slot = nullptr;
    call.wire = {};
    call.deadline = deadline;
    call.method = method;
    call.request = body;
    call.local = std::move(done);
    const base::SlotId id = entry->id();
    const core::Context::ScopeGuard scope_guard(context_,
                                                nullptr);  // The caller may be another handler.
    run_handler(call);
    return id;
}

void Server::cancel_local(base::SlotId id, LocalCompletion done) {
    Entry* const entry = calls_.find(id);
    if (!entry) return;
    WEFT_ASSERT(!entry->value.session);
    entry->value.local = std::move(done);
    cancel(entry->value);
}

inline void Server::release_call(ServerCall& call) {
    if (core::Peer* peer = call.peer()) {
        context_.drop_interest(*peer);
    } else if (call.session) {
        sessions_.on_call_done(*call.session);
    }
    recycle(call);
}

inline void Server::recycle(ServerCall& call) {
    WEFT_DCHECK(!call.session || call.slot->call != &call);
    if (call.needs_cleanup) [[unlikely]] {
        return recycle_marked(call);
    }
    WEFT_DCHECK(call.operations.empty() && !call.on_cancel && !call.local);
    call.session = nullptr;
    calls_.release(base::SlotTable<ServerCall>::entry_of(call));
}

void Server::start_timing(ServerCall& call) {
    call.started = context_.clock().now();
    call.needs_cleanup = true;
}

void Server::recycle_marked(ServerCall& call) {
    if (const TimePoint started = std::exchange(call.started, {});
        started != TimePoint() && !is_runtime_gone()) {
        const Duration took = context_.clock().now() - started;
        call.method->latencies.record(static_cast<std::uint64_t>(took.count()));
    }
    // Moved out of the record first: their destructors may answer other calls.
    const Function<void()> notice = std::move(call.on_cancel);
    const Function<void()> drain_notice = std::move(call.on_drain);
    const std::stop_source stop = std::exchange(call.stop, std::stop_source(std::nostopstate));
    call.release_operations();
    memory_.release_all(call);
    call.cancelled = false;
    call.needs_cleanup = false;
    call.session = nullptr;
    calls_.release(base::SlotTable<ServerCall>::entry_of(call));
    if (is_runtime_gone()) {
        if (calls_.taken() == 0) delete this;
        return;
    }
    context_.request_turn();
}

[[gnu::always_inline]] inline void Server::reply(ServerCall& call, BodyWriter body) {
    core::Peer* const peer = call.peer();
    WEFT_DCHECK(!peer || call.slot->call == &call);
    const std::size_t bytes = sizeof(ReplyHeader) + body.bytes;
    std::byte* to =
        peer && body.bytes < peer->direct_body_end ? context_.reserve(*peer, bytes) : nullptr;
    if (!to) [[unlikely]] {
        return reply_slow_path(call, BodyWriter(body));
    }
    store_reply(to, bytes, plain_ok, call.wire);
    std::byte* const at = to + sizeof(ReplyHeader);
    if (ServerSession::is_kept(*call.slot, body.bytes)) [[likely]] {
        body(at);
        ServerSession::keep_small(*call.slot, plain_ok, at, body.bytes);
    } else {
        write_out(context_, *peer, BodyWriter(body), at);
        ServerSession::keep_nothing(*call.slot, plain_ok);
    }
    context_.commit(*peer, bytes);
    context_.drop_interest(*peer);
    recycle(call);
}

// Sends replies that can't be written directly: other replies wait, the transport is full, the
// reply is large, or the client is not connected.
void Server::reply_slow_path(ServerCall& call, const BodyWriter& body) {
    core::Peer* const peer = call.peer();
    if (!peer) return reply_without_peer(call, body);
    const std::size_t bytes = sizeof(ReplyHeader) + body.bytes;
    const bool is_eager = body.bytes <= peer->eager_bytes_max;
    const core::Context::Claim claim =
        is_eager ? context_.claim(*peer, bytes) : core::Context::Claim();
    if (!claim.data) {
        // Too large, or the queue of replies is full: the client fetches the reply.
        if (!is_eager || bytes > core::SendQueues::short_frame_bytes)
            return reply_by_rendezvous(call, body);
        keep_reply(call, body);
        release_call(call);
        return drop_unread(*peer);
    }
    store_reply(claim.data, bytes, plain_ok, call.wire);
    body(claim.data + sizeof(ReplyHeader));
    ServerSession::keep(*call.slot, plain_ok, claim.data + sizeof(ReplyHeader), body.bytes);
    context_.commit(*peer, claim, bytes);
    release_call(call);
}

void Server::reply_by_rendezvous(ServerCall& call, const BodyWriter& body) {
    WEFT_ASSERT(call.peer());
    core::Peer& peer = *call.peer();
    if (Status why = why_too_large(body.bytes); !why.ok()) return reply(call, why);
    Result<bulk::RendezvousBuffer> rendezvous = bulk_.rendezvous.prepare(peer, body.bytes);
    if (!rendezvous) return reply(call, why_no_rendezvous(peer, body.bytes, rendezvous.status()));
    write_out(context_, peer, body, rendezvous->memory.data());
    ServerSession::keep_nothing(*call.slot, plain_ok);
    const core::Context::Claim claim = context_.claim(peer, rendezvous_reply_bytes);
    if (!claim.data) {
        release_call(call);
        return drop_unread(peer);
    }
    store_reply(claim.data, rendezvous_reply_bytes, plain_ok, call.wire);
    mark_rendezvous(claim.data);
    base::store(claim.data + sizeof(ReplyHeader), rendezvous->where);
    context_.commit(peer, claim, rendezvous_reply_bytes);
    release_call(call);
}

// Keeps the reply for a client that will query it.
void Server::keep_reply(ServerCall& call, const BodyWriter& body) {
    WEFT_ASSERT(call.session && call.slot->call == &call);
    std::array<std::byte, ServerSession::kept_bytes_max> small;
    if (body.bytes <= small.size()) body(small.data());
    ServerSession::keep(*call.slot, plain_ok, small.data(), body.bytes);
}

// A call of this process, or of a client that is lost: its session has ended, or it may reconnect
// and query.
void Server::reply_without_peer(ServerCall& call, const BodyWriter& body) {
    if (call.session) keep_reply(call, body);
    if (!call.local) return release_call(call);  // Also after the runtime is destroyed.
    if (Status why = why_too_large(body.bytes); !why.ok()) return reply(call, why);
    std::vector<std::byte> reply(body.bytes);
    body(reply.data());
    reply_local(call, Status().with_effect(Effect::applied), reply);
}

// The client does not read its replies: it is disconnected, so that memory does not grow for it.
void Server::drop_unread(core::Peer& peer) {
    if (peer.state != core::PeerState::up) return;  // Dropped for another reply already.
    context_.log().write_rate_limited(LogLevel::warning, context_.current_time(),
                                      "dropping " + peer.uri + ": it does not read its replies");
    context_.drop_connection(peer, fail(Code::unavailable, "the peer does not read its replies"));
}

// See Call::fail: the default is `applied`, and only rejected() can report `none`.
static Effect effect_for_client(const Status& status) {
    if (status.effect() == Effect::unknown) return Effect::unknown;
    return status.is_rejection() ? Effect::none : Effect::applied;
}

void Server::reply(ServerCall& call, const Status& status) {
    WEFT_DCHECK(!status.ok());
    const Status reported =
        Status(status).with_effect(effect_for_client(status)).with_stage(Stage::executing);
    if (call.local) return reply_local(call, reported, {});
    ServerSession* const session = call.session;
    Slot* const slot = call.slot;
    const WireCallId wire = call.wire;
    if (session) slot->call = nullptr;
    release_call(call);
    if (session) send_failure(session->peer, *slot, wire, reported);
}

void Server::reply_local(ServerCall& call, const Status& status, ByteView reply) {
    WEFT_ASSERT(call.local && !call.session);
    LocalCompletion done = std::move(call.local);
    release_call(call);
    done(status, reply);
}

}  // namespace weft::rpc

namespace weft {

Call::~Call() {
    if (!call_) return;
    require_thread("Call::~Call()");
    ++server_->counters_.unanswered;
    reply_with_status(
        Status(Code::internal, "the handler ended without a reply").with_effect(Effect::unknown));
}

ByteView Call::request() const { return call_ ? call_->request : ByteView(); }

void Call::reply(ByteView body) {
    if (!call_) return;
    require_thread("Call::reply()");
    server_->reply(*std::exchange(call_, nullptr), BodyWriter::of(body));
}

void Call::reply_with(const BodyWriter& body) {
    if (!call_) return;
    require_thread("Call::reply_with()");
    server_->reply(*std::exchange(call_, nullptr), body);
}

}  // namespace weft
