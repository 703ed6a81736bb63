#include "bulk/transfers.h"

#include <algorithm>
#include <array>

#include "base/assert.h"
#include "bulk/regions.h"

namespace weft::bulk {

// Between two attempts to return grants while the queue to their owner is full.
static constexpr Duration closes_retry_interval = 1ms;

Transfers::Transfers(core::Context& context) : context_(context) {
    context_.set_sink(core::FrameKind::bulk_grant, *this);
    context_.set_sink(core::FrameKind::bulk_revoke, *this);
}

// A remaining transfer either was retried without end after shutdown until it was dropped, or its
// memory was still held by a transport when that ended.
Transfers::~Transfers() {
    transfers_.for_each([&](Entry& entry) {
        WEFT_ASSERT(closed_ && entry.value.state == State::ended);
        unlink_from_peer(entry.value);
        context_.undefer(entry.value);
        transfers_.release(entry);
    });
}

// For cookies made in chunk_scheduling.cc.
static base::SlotId id_of(std::uint64_t cookie) {
    return {static_cast<std::uint32_t>(cookie), static_cast<std::uint32_t>(cookie >> 32)};
}

Status Transfers::why_no_peer(core::PeerRef peer) const {
    if (closed_) return fail(Code::cancelled, "the runtime is shutting down");
    if (peer.generation == 0) return context_.why_no_peer();
    return fail(Code::unavailable,
                "the last copy of the channel was dropped before the transfer began: keep one as "
                "long as transfers are made by it");
}

TransferId Transfers::start(core::PeerRef peer, TransferSpec spec, TransferCompletion done) {
    Entry* entry = take(std::move(done));
    if (!entry) return {};
    Transfer& transfer = entry->value;
    transfer.peer = closed_ ? nullptr : context_.find(peer);
    transfer.peer_ref = peer;
    transfer.spec = std::move(spec);
    const base::SlotId id = transfer.id;
    if (!transfer.peer) {
        end(*entry, why_no_peer(peer));
        return id;
    }
    transfer.peer->traffic.transfers.push_back(transfer);
    context_.add_interest(*transfer.peer);
    context_.timers().arm(transfer, transfer.spec.deadline);
    if (transfer.peer->state == core::PeerState::up) {
        begin(*entry);
    } else if (transfer.peer->state == core::PeerState::idle) {
        context_.connect(*transfer.peer);
    }
    return id;
}

TransferId Transfers::start_nested(core::CallScope& scope, core::PeerRef peer, TransferSpec spec,
                                   TransferCompletion done) {
    if (scope.cancelled) {
        return conclude_nested(scope, std::move(done),
                               fail(Code::cancelled, core::scope_cancelled_text));
    }
    if (scope.is_expired(context_.clock())) {
        return conclude_nested(scope, std::move(done), core::scope_expired_status());
    }
    spec.deadline = std::min(spec.deadline, scope.deadline);
    TransferId id;
    const bool is_started = nested_.start(scope, done, [&](TransferCompletion inner) {
        return id = start(peer, std::move(spec), std::move(inner));
    });
    if (!is_started) {
        return conclude(std::move(done), why_none());
    }
    return id;
}

TransferId Transfers::conclude(TransferCompletion done, Status outcome) {
    Entry* entry = take(std::move(done));
    if (!entry) return {};
    const base::SlotId id = entry->value.id;
    end(*entry, std::move(outcome));
    return id;
}

// The completion belongs to the scope as any other, also when the scope was cancelled.
TransferId Transfers::conclude_nested(core::CallScope& scope, TransferCompletion done,
                                      Status outcome) {
    TransferId id;
    const bool is_started = nested_.start(scope, done, [&](TransferCompletion inner) {
        return id = conclude(std::move(inner), std::move(outcome));
    });
    return is_started ? id : conclude(std::move(done), std::move(outcome));
}

bool Transfers::send_data(core::Peer& peer, std::uint64_t call, const RegionRef& to,
                          std::uint64_t offset, ByteView from) {
    const std::size_t bytes = sizeof(DataFrame) + from.size();
    if (peer.state != core::PeerState::up || bytes > peer.message_bytes_max) return false;
    if (!context_.queues().has_room_for_data(peer)) return false;
    const core::Context::Claim claim = context_.claim(peer, bytes);
    if (!claim.data) return false;
    DataFrame data;
    data.head.bytes = static_cast<std::uint32_t>(bytes);
    data.call = call;
    RegionRef exact = to;
    exact.access = Access::write;
    exact.offset += offset;
    exact.length = from.size();
    exact.encode(std::span<std::byte, RegionRef::wire_bytes>(reinterpret_cast<std::byte*>(data.ref),
                                                             RegionRef::wire_bytes));
    base::store(claim.data, data);
    std::copy(from.begin(), from.end(), claim.data + sizeof data);
    context_.commit_later(peer, claim, bytes);
    return true;
}

Status Transfers::why_none() const {
    return fail(Code::resource_exhausted,
                std::to_string(transfers_.taken()) +
                    " transfers are in flight, and there is no room for one more");
}

// nullptr: `done` has run.
Transfers::Entry* Transfers::take(TransferCompletion done) {
    Entry* entry = transfers_.take();
    if (!entry) {
        // Without a record the completion can't be deferred: only this case runs it inside the
        // call.
        done(why_none());
        return nullptr;
    }
    Transfer& transfer = entry->value;
    transfer.owner = this;
    transfer.id = entry->id();
    transfer.peer = nullptr;
    transfer.peer_ref = {};
    transfer.state.restart(State::waiting);
    transfer.posted = 0;
    transfer.chunks = transfer.next = 0;
    transfer.spec = {};
    transfer.ended_at_check = 0;
    transfer.stalls = 0;
    WEFT_DCHECK(!transfer.done && !transfer.core::ChunkWaiter::is_linked());
    transfer.done = std::move(done);
    transfer.outcome = Status();
    transfer.run = [](core::Deferred& work) {
        auto& due = static_cast<Transfer&>(work);
        due.owner->complete(*due.owner->transfers_.find(due.id));
    };
    transfer.fire = [](base::Timer& timer, TimePoint) {
        auto& expired = static_cast<Transfer&>(timer);
        expired.owner->end(*expired.owner->transfers_.find(expired.id),
                           fail(Code::deadline_exceeded,
                                "the transfer of " + std::to_string(expired.spec.local.size()) +
                                    " bytes did not end before its deadline "
                                    "(CallOptions::timeout)"));
    };
    return entry;
}

// The checks that need no reply of the owner.
Status Transfers::validate(const core::Peer& peer, const TransferSpec& spec) const {
    auto denied = [](std::string why) { return fail(Code::permission_denied, std::move(why)); };
    if (!peer.endpoint->caps.rma) {
        return fail(Code::unimplemented, "put and get are not available on " + peer.uri);
    }
    if (spec.remote.owner != peer.incarnation.low) {
        return denied("the reference is to memory of another process than " + peer.uri +
                      ", or of an earlier incarnation of it");
    }
    const Access wanted = spec.kind == na::RmaKind::get ? Access::read : Access::write;
    if (!allows(spec.remote.access, wanted)) {
        return denied(spec.kind == na::RmaKind::get
                          ? "the reference does not grant reading (ExposeOptions::access)"
                          : "the reference does not grant writing (ExposeOptions::access)");
    }
    if (spec.remote.length > UINT64_MAX - spec.remote.offset) {
        return denied("the reference names an impossible range, of " +
                      std::to_string(spec.remote.length) + " bytes from offset " +
                      std::to_string(spec.remote.offset) +
                      " on; Region::ref() makes those of a part");
    }
    if (spec.offset > spec.remote.length || spec.local.size() > spec.remote.length - spec.offset) {
        return denied("range " + std::to_string(spec.offset) + "+" +
                      std::to_string(spec.local.size()) + " is outside the reference of " +
                      std::to_string(spec.remote.length) + " bytes");
    }
    return {};
}

void Transfers::begin(Entry& entry) {
    Transfer& transfer = entry.value;
    if (Status status = validate(*transfer.peer, transfer.spec); !status.ok()) {
        return end(entry, std::move(status));
    }
    WEFT_ASSERT(transfer.state == State::waiting);
    if (transfer.spec.local.size() == 0) return end(entry, Status());
    WEFT_ASSERT(transfer.peer->state == core::PeerState::up && transfer.chunks == 0);
    transfer.endpoint = transfer.peer->endpoint;
    const bool granted = transfer.peer->endpoint->caps.rma_checked || transfer.spec.grant != 0;
    if (!granted) return send_open(entry);
    transfer.state.move_to(State::running);
    pump(transfer);
}

void Transfers::send_open(Entry& entry) {
    Transfer& transfer = entry.value;
    transfer.state.move_to(State::opening);
    const auto opens = opens_.try_emplace(transfer.peer).first;  // May throw: before the claim.
    const core::Context::Claim claim = context_.claim(*transfer.peer, sizeof(OpenFrame));
    if (!claim.data) {
        if (opens->second == 0) opens_.erase(opens);
        return end(entry, fail(Code::resource_exhausted,
                               "the queue to " + transfer.peer->uri + " is full"));
    }
    OpenFrame open;
    open.transfer_slot = transfer.id.slot;
    open.transfer_generation = transfer.id.generation;
    RegionRef wanted = transfer.spec.remote;
    wanted.access = transfer.spec.kind == na::RmaKind::get ? Access::read : Access::write;
    wanted.offset += transfer.spec.offset;
    wanted.length = transfer.spec.local.size();
    wanted.encode(std::span<std::byte, RegionRef::wire_bytes>(
        reinterpret_cast<std::byte*>(open.ref), RegionRef::wire_bytes));
    base::store(claim.data, open);
    ++opens->second;
    context_.commit(*transfer.peer, claim, sizeof open);
}

void Transfers::on_frame(core::Peer& peer, core::FrameHead head, ByteView frame) {
    if (head.flags != 0) {
        return context_.close_malformed(peer, "a bulk frame with flags of a later version");
    }
    if (head.kind == core::FrameKind::bulk_revoke) {
        if (frame.size() != sizeof(RevokeFrame)) {
            return context_.close_malformed(peer, "a bulk_revoke of the wrong size");
        }
        const auto revoke = base::load<RevokeFrame>(frame.data());
        Entry* entry = transfers_.find({revoke.transfer_slot, revoke.transfer_generation});
        if (entry && entry->value.peer == &peer && entry->value.spec.grant == revoke.grant &&
            entry->value.state == State::running) {
            end(*entry, fail(Code::permission_denied, "the region was revoked by its owner"));
        }
        return;
    }
    if (frame.size() < sizeof(GrantFrame) || head.aux > code_max) {
        return context_.close_malformed(peer, "a malformed bulk_grant");
    }
    const auto sent_opens = opens_.find(&peer);
    if (sent_opens == opens_.end())
        return context_.close_malformed(peer, "a bulk_grant without a bulk_open");
    if (--sent_opens->second == 0) opens_.erase(sent_opens);
    const auto grant = base::load<GrantFrame>(frame.data());
    Entry* entry = transfers_.find({grant.transfer_slot, grant.transfer_generation});
    if (!entry || entry->value.peer != &peer || entry->value.state != State::opening) {
        // The transfer has ended meanwhile.
        if (head.aux == 0) send_close(peer, grant.grant);
        return;
    }
    if (head.aux != 0) {
        const ByteView text = frame.subspan(sizeof(GrantFrame));
        return end(
            *entry,
            fail(static_cast<Code>(head.aux),
                 std::string(as_text(text.first(std::min(text.size(), grant_text_bytes_max))))));
    }
    Transfer& transfer = entry->value;
    transfer.spec.grant = grant.grant;
    transfer.spec.fabric = grant.fabric;
    transfer.state.move_to(State::running);
    pump(transfer);
}

void Transfers::on_rma_done(std::uint64_t cookie, Code code, const std::string& error) {
    Entry* entry = transfers_.find(id_of(cookie));
    WEFT_ASSERT(entry != nullptr && entry->value.chunks > 0);
    Transfer& transfer = entry->value;
    core::EndpointSlot& endpoint = *transfer.endpoint;
    core::Peer* const peer = context_.find(transfer.peer_ref);
    if (peer) note_done(transfer, *peer, code == Code::ok);
    --transfer.chunks;
    if (peer) queue_peer(*peer);
    if (transfer.state == State::ended) {
        release_if_done(*entry);
    } else if (code != Code::ok) {
        end(*entry, fail(code, error));
    } else if (transfer.chunks == 0 && transfer.posted == transfer.spec.local.size()) {
        end(*entry, Status());
        context_.undefer(
            transfer);  // start() has returned, so the completion need not be deferred.
        complete(*entry);
    } else {
        pump(transfer);
    }
    post_waiting(endpoint);
}

// Sets the outcome. The completion runs in the next turn, because this may run inside start().
void Transfers::end(Entry& entry, Status status) {
    Transfer& transfer = entry.value;
    if (transfer.state == State::ended) return;
    context_.timers().cancel(transfer);
    unlink_from_queue(transfer);
    const bool touched = transfer.posted > 0 && transfer.spec.kind == na::RmaKind::put;
    if (status.ok()) {
        status = std::move(status).with_effect(Effect::applied);
    } else {
        const Stage stage = transfer.state == State::waiting ? Stage::resolving : Stage::sent;
        status = std::move(status)
                     .with_effect(touched ? Effect::unknown : Effect::none)
                     .with_stage(stage);
        if (transfer.peer) status = std::move(status).with_peer(transfer.peer->uri);
    }
    transfer.state.move_to(State::ended);
    transfer.outcome = std::move(status);
    if (transfer.peer) context_.drop_interest(*transfer.peer);
    context_.defer(transfer);
}

void Transfers::complete(Entry& entry) {
    Transfer& transfer = entry.value;
    WEFT_ASSERT(transfer.state == State::ended);
    TransferCompletion done = std::move(transfer.done);
    const Status outcome = std::exchange(transfer.outcome, Status());
    ++quarantined_;
    if (transfer.chunks == 0) {
        transfer.spec.local = Buffer();
        return_grant(transfer);  // It is sent together with a reply that done() makes, for example.
    } else {
        arm_stall_check();
    }
    if (!context_.after_end().is_dropping()) done(outcome);
    release_if_done(entry);
}

// Releases the record of an ended transfer once the transport holds none of its memory.
void Transfers::release_if_done(Entry& entry) {
    Transfer& transfer = entry.value;
    if (transfer.chunks > 0 || transfer.core::Deferred::is_linked()) return;
    WEFT_ASSERT(transfer.state == State::ended && quarantined_ != 0);
    return_grant(transfer);
    unlink_from_peer(transfer);
    transfer.spec.local = Buffer();
    transfers_.release(entry);
    --quarantined_;
}

void Transfers::unlink_from_peer(Transfer& transfer) {
    core::PeerTransfer& node = transfer;
    if (node.is_linked()) node.unlink();
}

void Transfers::return_grant(Transfer& transfer) {
    if (transfer.spec.grant == 0 || !transfer.peer) return;
    send_close(*transfer.peer, transfer.spec.grant);
    transfer.spec.grant = 0;
}

void Transfers::send_close(core::Peer& peer, std::uint64_t grant) {
    if (peer.state != core::PeerState::up) return;  // Its grants end with it.
    core::PendingCloses& pending_closes = peer.traffic.pending_closes;
    if (pending_closes.grants.empty() && try_send_close(peer, grant)) return;
    WEFT_ASSERT(!pending_closes.is_linked() || pending_closes.peer == &peer);
    pending_closes.grants.push_back(grant);
    if (pending_closes.is_linked()) return;
    pending_closes.peer = &peer;
    pending_closes_.push_back(pending_closes);
    if (!closes_timer_.is_linked()) send_closes_later();
}

bool Transfers::try_send_close(core::Peer& peer, std::uint64_t grant) {
    const core::Context::Claim claim = context_.claim(peer, sizeof(CloseFrame));
    if (!claim.data) return false;
    CloseFrame close;
    close.grant = grant;
    base::store(claim.data, close);
    context_.commit_later(peer, claim, sizeof close);
    return true;
}

void Transfers::send_closes_later() {
    closes_timer_.owner = this;
    closes_timer_.fire = [](base::Timer& timer, TimePoint) {
        static_cast<OwnedTimer&>(timer).owner->send_closes();
    };
    context_.timers().arm(closes_timer_,
                          saturating_add(context_.current_time(), closes_retry_interval));
}

void Transfers::send_closes() {
    pending_closes_.for_each([&](core::PendingCloses& pending_closes) {
        while (!pending_closes.grants.empty() &&
               try_send_close(*pending_closes.peer, pending_closes.grants.back())) {
            pending_closes.grants.pop_back();
        }
        if (pending_closes.grants.empty()) pending_closes.unlink();
    });
    if (!pending_closes_.empty()) send_closes_later();
}

void Transfers::cancel(TransferId id, const char* why) {
    if (Entry* entry = transfers_.find(id)) {
        end(*entry, fail(Code::cancelled, why));
    }
}

void Transfers::abandon(TransferId id) {
    Entry* entry = transfers_.find(id);
    if (!entry || !entry->value.done) return;
    entry->value.done = [](const Status&) {};
    cancel(id);
}

void Transfers::on_peer_up(core::Peer& peer) {
    peer.traffic.transfers.for_each([&](core::PeerTransfer& one) {
        auto& transfer = static_cast<Transfer&>(one);
        if (transfer.state == State::waiting) begin(base::SlotTable<Transfer>::entry_of(transfer));
    });
}

void Transfers::on_peer_down(core::Peer& peer, const Status& why) {
    opens_.erase(&peer);
    peer.traffic.posted = 0;
    peer.traffic.window.reset();
    // Its grants ended with the connection; a later connection to the same peer has new grants.
    core::PendingCloses& pending_closes = peer.traffic.pending_closes;
    pending_closes.grants.clear();
    if (pending_closes.is_linked()) pending_closes.unlink();
    while (core::PeerTransfer* one = peer.traffic.transfers.pop_front()) {
        auto& transfer = static_cast<Transfer&>(*one);
        end(base::SlotTable<Transfer>::entry_of(transfer), why);
        transfer.spec.grant = 0;  // It ended with the connection.
        transfer.peer_ref = {};
        transfer.peer = nullptr;
    }
}

void Transfers::shutdown(const Status& why) {
    closed_ = true;
    context_.timers().cancel(closes_timer_);
    context_.timers().cancel(stall_timer_);
    pending_closes_.for_each([](core::PendingCloses& pending_closes) {
        pending_closes.grants.clear();
        pending_closes.unlink();
    });
    transfers_.for_each([&](Entry& entry) {
        Transfer& transfer = entry.value;
        end(entry, why);
        if (!transfer.core::Deferred::is_linked()) return;  // Completed before; quarantined.
        context_.undefer(transfer);
        complete(entry);
    });
}

void Transfers::keep_held() {
    std::uint32_t kept = 0;
    transfers_.for_each([&](Entry& entry) {
        Transfer& transfer = entry.value;
        if (transfer.chunks == 0 || transfer.endpoint->caps.fenced_by_end) return;
        keep_forever(std::exchange(transfer.spec.local, Buffer()));
        ++kept;
    });
    if (kept == 0) return;
    context_.log().error(
        "the local buffers of " + std::to_string(kept) +
        " transfers are kept until the process ends: a device may still access them");
}

}  // namespace weft::bulk
