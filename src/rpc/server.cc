#include "rpc/server.h"

#include <exception>

#include "base/assert.h"
#include "base/mutant.h"

namespace weft::rpc {

// Of all calls: beyond it what is offered is fetched after all.
static constexpr std::size_t riding_bytes_kept_max = std::size_t{16} << 20;

Server::Server(core::Context& context, bulk::Bulk& bulk)
    : context_(context), bulk_(bulk), held_(context.random().next()) {
    context_.set_sink(core::FrameKind::request, *this);
    context_.set_sink(core::FrameKind::cancel, *this);
}

Server::~Server() { WEFT_DCHECK(calls_.taken() == 0); }

inline void Server::run_handler(ServerCall& call) {
    Method* method = call.method;
    // What a handler throws ends here, as does the Call it did not answer.
    try {
        method->handler(Call(*this, call));
    } catch (...) {
        log_thrown(method->name, std::current_exception());
    }
}

void Server::on_frame(core::Peer& peer, core::FrameHead head, ByteView frame) {
    if (!is_request(head)) [[unlikely]] {
        return on_other_frame(peer, head, frame);
    }
    // Field by field: the whole header would go through the stack.
    const std::byte* from = frame.data();
    const auto hash = base::load<std::uint64_t>(from + offsetof(RequestHeader, method));
    const auto remaining_us =
        base::load<std::uint32_t>(from + offsetof(RequestHeader, remaining_us));
    Method* method = methods_.find(hash);
    // No method is found when draining.
    const bool in_time = remaining_us != 0 || base::is_mutated(base::Mutant::expired_runs);
    const bool welcome = method && in_time && peer.interest < calls_of_a_peer_max;
    Entry* entry = welcome ? calls_.take() : nullptr;
    if (!entry) [[unlikely]] {
        return refuse_request(peer, base::load<RequestHeader>(from), method);
    }
    ServerCall& call = entry->value;
    call.peer = &peer;
    call.wire = base::load<WireCallId>(from + offsetof(RequestHeader, call));
    call.deadline = to_deadline(context_.now(), remaining_us);
    call.method = method;
    call.request = frame.subspan(sizeof(RequestHeader));
    context_.add_interest(peer);
    run_handler(call);
    // The record has no peer any more once it was answered.
    if (call.peer) [[unlikely]] {
        hold(call);
    }
}

// The handler returned and answers later.
void Server::hold(ServerCall& call) {
    call.marked = true;
    if (call.held || held_.add(call)) return;
    context_.broken(*call.peer, "two calls under one number");
}

[[gnu::noinline]] void Server::on_other_frame(core::Peer& peer, core::FrameHead head,
                                              ByteView frame) {
    if (head.kind == core::FrameKind::request) {
        if (const auto why = why_no_request(head)) return context_.broken(peer, std::string(*why));
        return is_lent(head) ? fetch_request(peer, frame) : take_riding(peer, frame);
    }
    if (const auto why = why_no_cancel(head)) return context_.broken(peer, std::string(*why));
    on_cancel(peer, frame);
}

// nullptr: it was refused.
ServerCall* Server::admit(core::Peer& peer, const RequestHeader& header) {
    Method* method = methods_.find(header.method);
    const bool welcome = method && header.remaining_us != 0 && peer.interest < calls_of_a_peer_max;
    Entry* entry = welcome ? calls_.take() : nullptr;
    if (!entry) {
        refuse_request(peer, header, method);
        return nullptr;
    }
    ServerCall& call = entry->value;
    call.peer = &peer;
    call.wire = header.call;
    call.deadline = to_deadline(context_.now(), header.remaining_us);
    call.method = method;
    call.request = {};
    context_.add_interest(peer);
    return &call;
}

void Server::take_riding(core::Peer& peer, ByteView frame) {
    const auto request = decode_riding(frame);
    if (!request) return context_.broken(peer, "a request in which nonsense rides");
    ServerCall* call = admit(peer, base::load<RequestHeader>(frame.data()));
    if (!call) return;
    call->request = request->body;
    call->marked = true;
    if (riding_bytes_ + request->bytes.size() <= riding_bytes_kept_max) {
        riding_bytes_ += request->bytes.size();
        call->rider = std::make_unique<Rider>(*request);
    }
    run_handler(*call);
    if (call->peer) hold(*call);
}

// Held while its body is on its way, so that a cancel finds it.
void Server::fetch_request(core::Peer& peer, ByteView frame) {
    const auto header = base::load<RequestHeader>(frame.data());
    const auto where = base::load<bulk::LentBody>(frame.data() + sizeof header);
    ServerCall* admitted = admit(peer, header);
    if (!admitted) return bulk_.staging.decline(peer, where);
    ServerCall& call = *admitted;
    hold(call);
    const base::SlotId id = base::SlotTable<ServerCall>::entry_of(call).id();
    const bulk::FetchId fetch = bulk_.staging.fetch(
        peer, where, call.deadline,
        [this, id](const Status& status, ByteView body) { on_fetched(id, status, body); });
    if (calls_.find(id)) call.fetch = fetch;
}

void Server::on_fetched(base::SlotId id, const Status& status, ByteView request) {
    Entry* entry = calls_.find(id);
    WEFT_ASSERT(entry != nullptr);  // Nobody else ends a call without a handler.
    ServerCall& call = entry->value;
    call.fetch = {};
    core::Peer* const peer = call.peer;
    if (!peer || call.cancelled) return give_back(call);
    Status why = status;
    if (why.ok() && context_.now() >= call.deadline) {
        ++counters_.expired;
        why = fail(Code::deadline_exceeded, "expired while its body was on its way");
    } else if (!why.ok()) {
        why = std::move(why).in("the request can't be fetched");
    }
    if (!why.ok()) {
        const WireCallId wire = call.wire;
        give_back(call);
        return refuse(*peer, wire,
                      std::move(why).with_effect(Effect::none).with_stage(Stage::queued));
    }
    call.request = request;
    run_handler(call);
}

void Server::dispatch_local(std::uint64_t hash, ByteView body, TimePoint deadline,
                            LocalCompletion done) {
    if (draining_) return done(fail(Code::unavailable, "the server is shutting down"), {});
    Method* method = methods_.find(hash);
    if (!method) return done(fail(Code::unimplemented, "no such method here"), {});
    if (!method->traits.collective) {
        return done(fail(Code::unimplemented, method->name + " is not a collective method"), {});
    }
    Entry* entry = calls_.take();
    if (!entry) return done(fail(Code::resource_exhausted, "too many calls in handlers"), {});
    ServerCall& call = entry->value;
    call.peer = nullptr;
    call.wire = {};
    call.deadline = deadline;
    call.method = method;
    call.request = body;
    call.local = std::move(done);
    run_handler(call);
}

void Server::log_thrown(const std::string& method, std::exception_ptr thrown) {
    if (left_) return;
    try {
        std::rethrow_exception(std::move(thrown));
    } catch (const std::exception& error) {
        context_.log().error(method + ": the handler threw: " + error.what());
    } catch (...) {
        context_.log().error(method + ": the handler threw");
    }
}

void Server::on_cancel(core::Peer& peer, ByteView frame) {
    const auto header = base::load<CancelHeader>(frame.data());
    if (ServerCall* call = held_.find(peer, header.call)) cancel(*call);
}

void Server::cancel(ServerCall& call) {
    if (std::exchange(call.cancelled, true)) return;
    call.marked = true;
    if (call.fetch) return bulk_.staging.cancel(call.fetch);
    // Out of the record first: it may answer, and so end, the call.
    if (Function<void()> notice = std::move(call.on_cancel)) notice();
}

// First all of them, then the notices: one may answer another call of the same client.
void Server::on_peer_down(core::Peer& peer, const Status&) {
    std::vector<base::SlotId> ended;
    calls_.for_each([&](Entry& entry) {
        ServerCall& call = entry.value;
        if (call.peer != &peer) return;
        context_.drop_interest(peer);
        if (call.held) held_.remove(call);
        call.peer = nullptr;
        ended.push_back(entry.id());
    });
    for (const base::SlotId id : ended) {
        if (Entry* entry = calls_.find(id)) cancel(entry->value);
    }
}

void Server::shutdown(const Status& why) {
    drain();
    calls_.for_each([&](Entry& entry) {
        const base::SlotId id = entry.id();
        cancel(entry.value);
        if (!calls_.find(id)) return;
        if (LocalCompletion done = std::move(entry.value.local)) done(why, {});
    });
    // What handlers hold may hold this, Calls above all.
    methods_.drop_handlers();
}

void Server::leave() {
    left_ = true;
    calls_.for_each([](Entry& entry) { entry.value.marked = true; });
    if (calls_.taken() == 0) delete this;
}

inline void Server::give_back(ServerCall& call) {
    if (call.peer) context_.drop_interest(*call.peer);
    recycle(call);
}

inline void Server::recycle(ServerCall& call) {
    if (base::is_mutated(base::Mutant::record_leak) && !call.peer && !call.local) return;
    if (call.marked) [[unlikely]] {
        return recycle_marked(call);
    }
    call.peer = nullptr;
    calls_.give_back(base::SlotTable<ServerCall>::entry_of(call));
}

void Server::recycle_marked(ServerCall& call) {
    if (call.held) held_.remove(call);
    // Out of the record first: what it holds may answer other calls.
    const Function<void()> notice = std::move(call.on_cancel);
    if (call.rider) drop_rider(call);
    call.cancelled = false;
    call.marked = false;
    call.peer = nullptr;
    calls_.give_back(base::SlotTable<ServerCall>::entry_of(call));
    if (left_) {
        if (calls_.taken() == 0) delete this;
        return;
    }
    context_.rouse();  // Who held it may answer between turns.
}

[[gnu::always_inline]] inline void Server::answer(ServerCall& call, BodyWriter body) {
    core::Peer* peer = call.peer;
    const std::size_t bytes = sizeof(ReplyHeader) + body.bytes;
    std::byte* to =
        peer && body.bytes < peer->direct_body_end ? context_.reserve(*peer, bytes) : nullptr;
    if (!to) [[unlikely]] {
        return answer_indirectly(call, BodyWriter(body));
    }
    store_reply(to, bytes, plain_ok, call.wire);
    body(to + sizeof(ReplyHeader));
    context_.commit(*peer, bytes);
    context_.drop_interest(*peer);
    recycle(call);
}

// Replies wait or the transport is full; or it is none of the usual replies.
void Server::answer_indirectly(ServerCall& call, const BodyWriter& body) {
    core::Peer* peer = call.peer;
    if (!peer) return answer_elsewhere(call, body);
    if (body.bytes > peer->eager_bytes_max) return answer_lent(call, body);
    const std::size_t bytes = sizeof(ReplyHeader) + body.bytes;
    const core::Context::Claim claim = context_.claim(*peer, bytes);
    if (!claim.data) return drop_reply(call);
    store_reply(claim.data, bytes, plain_ok, call.wire);
    body(claim.data + sizeof(ReplyHeader));
    context_.commit(*peer, claim, bytes);
    if (base::is_mutated(base::Mutant::reply_lost) && claim.queued) {
        context_.drop(*peer, *claim.queued);
    }
    give_back(call);
}

void Server::answer_lent(ServerCall& call, const BodyWriter& body) {
    core::Peer& peer = *call.peer;
    const auto refuse_with = [&](Code code, std::string_view why) {
        answer(call, fail(code, "a reply of " + std::to_string(body.bytes) + " bytes" +
                                    std::string(why)));
    };
    const std::size_t most = bulk_.staging.body_bytes_max();
    if (body.bytes > most) {
        return refuse_with(
            Code::resource_exhausted,
            " exceeds the limit of " + std::to_string(most) + "; pass large data by weft.BulkRef");
    }
    Result<bulk::Loan> loan = bulk_.staging.lend(peer, body.bytes);
    if (!loan) return refuse_with(loan.status().code(), ": " + std::string(loan.status().text()));
    body(loan->memory.data());
    const core::Context::Claim claim = context_.claim(peer, lent_reply_bytes);
    if (!claim.data) return drop_reply(call);
    store_reply(claim.data, lent_reply_bytes, plain_ok, call.wire);
    mark_lent(claim.data);
    base::store(claim.data + sizeof(ReplyHeader), loan->where);
    context_.commit(peer, claim, lent_reply_bytes);
    give_back(call);
}

// A call of this process, or a client that is gone.
void Server::answer_elsewhere(ServerCall& call, const BodyWriter& body) {
    if (!call.local) return give_back(call);
    std::vector<std::byte> reply(body.bytes);
    body(reply.data());
    answer_local(call, Status().with_effect(Effect::applied), reply);
}

// The client does not read its replies: memory must not grow for it.
void Server::drop_reply(ServerCall& call) {
    core::Peer& peer = *call.peer;
    give_back(call);
    context_.log().warning("dropping " + peer.uri + ": it does not read its replies");
    context_.remove_peer(peer, fail(Code::unavailable, "the peer does not read its replies"));
}

// See Call::fail: silence means applied, and only a status that was made here can say none.
static Effect effect_to_tell(const Status& status) {
    if (status.effect() == Effect::unknown) return Effect::unknown;
    const bool is_rejected = status.effect() == Effect::none &&
                             status.stage() == Stage::executing && status.peer().empty();
    return is_rejected ? Effect::none : Effect::applied;
}

void Server::answer(ServerCall& call, const Status& status) {
    const Status told =
        Status(status).with_effect(effect_to_tell(status)).with_stage(Stage::executing);
    if (call.local) return answer_local(call, told, {});
    core::Peer* peer = call.peer;
    const WireCallId wire = call.wire;
    give_back(call);
    if (peer) refuse(*peer, wire, told);
}

void Server::answer_local(ServerCall& call, const Status& status, ByteView reply) {
    LocalCompletion done = std::move(call.local);
    give_back(call);
    done(status, reply);
}

}  // namespace weft::rpc

namespace weft {

using rpc::ServerCall;

Call& Call::operator=(Call&& other) noexcept {
    if (this != &other) {
        Call ends(std::move(*this));
        server_ = other.server_;
        call_ = std::exchange(other.call_, nullptr);
    }
    return *this;
}

Call::~Call() {
    if (!call_) return;
    ++server_->counters_.unanswered;
    fail(Status(Code::internal, "the handler ended without a reply").with_effect(Effect::unknown));
}

ByteView Call::request() const { return call_ ? call_->request : ByteView(); }
TimePoint Call::deadline() const { return call_ ? call_->deadline : never; }
Duration Call::time_left() const {
    if (!call_ || server_->left_) return Duration::zero();
    if (call_->deadline == never) return no_timeout;
    return std::max(call_->deadline - server_->context_.current_time(), Duration::zero());
}
bool Call::cancelled() const { return call_ && call_->cancelled; }
std::string Call::peer() const {
    if (!call_ || !call_->peer) return {};
    return call_->peer->uri;
}
std::string_view Call::method() const {
    if (!call_) return {};
    return call_->method->name;
}

void Call::on_cancel(Function<void()> notice) {
    if (!call_) return;
    call_->marked = true;
    call_->on_cancel = std::move(notice);
    if (call_->cancelled) {
        if (Function<void()> now = std::move(call_->on_cancel)) now();
    }
}

OperationId Call::get(const RegionRef& from, std::uint64_t offset, Buffer local,
                      TransferCompletion done) const {
    return transfer(false, from, offset, std::move(local), std::move(done));
}

OperationId Call::put(const RegionRef& to, std::uint64_t offset, Buffer local,
                      TransferCompletion done) const {
    return transfer(true, to, offset, std::move(local), std::move(done));
}

OperationId Call::transfer(bool put, const RegionRef& remote, std::uint64_t offset, Buffer local,
                           TransferCompletion done) const {
    if (!call_ || server_->left_) {
        Status why =
            weft::fail(Code::cancelled, call_ ? "the runtime is gone" : "the call was answered");
        if (!server_ || server_->left_) {
            done(why);  // Nobody turns for it.
            return {};
        }
        const bulk::TransferId id =
            server_->bulk_.transfers.conclude(std::move(done), std::move(why));
        return {id.slot, id.generation};
    }
    server_->context_.rouse();
    if (call_->rider) {
        if (auto outcome = server_->ride(*call_, put, remote, offset, local)) {
            const bulk::TransferId id =
                server_->bulk_.transfers.conclude(std::move(done), *std::move(outcome));
            return {id.slot, id.generation};
        }
    }
    const bulk::TransferId id =
        server_->bulk_.transfers.start(call_->peer ? call_->peer->ref : core::PeerRef(),
                                       {put ? na::RmaKind::put : na::RmaKind::get, remote, offset,
                                        std::move(local), call_->deadline},
                                       std::move(done));
    return {id.slot, id.generation};
}

std::size_t Call::reply_bytes_max() const {
    return call_ && !server_->left_ ? server_->bulk_.staging.body_bytes_max() : 0;
}

void Call::reply(ByteView body) {
    if (!call_) return;
    server_->answer(*std::exchange(call_, nullptr), BodyWriter::of(body));
}

void Call::reply_with(const BodyWriter& body) {
    if (!call_) return;
    server_->answer(*std::exchange(call_, nullptr), body);
}

void Call::fail(const Status& status) {
    if (!call_) return;
    server_->answer(*std::exchange(call_, nullptr), status);
}

void Call::fail(std::exception_ptr thrown) {
    if (!server_) return;
    server_->log_thrown(call_ ? call_->method->name : "a call that was answered", thrown);
    fail(weft::fail(Code::internal, "the handler threw an exception").with_effect(Effect::unknown));
}

void Call::abandon_transfer(OperationId id) const {
    if (server_ && !server_->left_) server_->bulk_.transfers.abandon({id.slot, id.generation});
}

}  // namespace weft
