// One turn of an endpoint: completions become events, and what is due by time is served.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "na/ofi/endpoint.h"
#include "na/own_stall.h"

namespace weft::na::ofi {

static constexpr Duration retry_spacing_min = 50us;
static constexpr Duration retry_spacing_max = 10ms;
static constexpr std::uint32_t retries_free = 10;

std::size_t OfiEndpoint::poll(std::span<Event> events, TimePoint now) noexcept {
    now_ = now;
    const Duration unseen = now - std::exchange(polled_at_, now);
    const bool has_opened = opened_at_ < now;
    const Duration stall = has_opened ? unseen : own_stall(unseen);
    if (stall > Duration::zero()) extend_deadlines(stall);
    if (has_opened) opened_at_ = never;
    for (const std::byte* message : handed_out_) recycle(message);
    handed_out_.clear();
    if (receives_.has_idle()) post_receives();

    out_ = events;
    out_count_ = 0;
    if (hand_out_pending()) {
        if (now >= next_scheduled_) serve_scheduled();
        if (fabric_) read_completions();
        if (reading_) serve_av_entries();
        if (!want_writable_.empty()) wake_writers();
        hand_out_pending();
    }
    out_ = {};
    return out_count_;
}

void OfiEndpoint::emit(const Event& event) {
    if (pending_at_ == pending_.size() && out_count_ < out_.size()) {
        out_[out_count_++] = event;
        if (event.kind == EventKind::message) handed_out_.push_back(event.bytes.data());
    } else {
        pending_.push_back({event, {}, false});
    }
}

void OfiEndpoint::emit(const Event& event, std::string reason) {
    pending_.push_back({event, std::move(reason), false});
}

// False: the batch ends, because it is full or because error() describes its last event.
bool OfiEndpoint::hand_out_pending() {
    while (pending_at_ < pending_.size()) {
        if (out_count_ == out_.size()) return false;
        PendingEvent& pending = pending_[pending_at_++];
        const Event& event = pending.event;
        if (event.kind == EventKind::message) handed_out_.push_back(event.bytes.data());
        if (event.kind == EventKind::peer_down) peers_.recycle(event.peer.index);
        if (pending.dropped) continue;
        out_[out_count_++] = event;
        if (!pending.reason.empty()) {
            error_ = std::move(pending.reason);
            return false;
        }
    }
    pending_.clear();
    pending_at_ = 0;
    return true;
}

// The caller has closed the peer: only the completions of its transfers are still handed out.
void OfiEndpoint::drop_events_of(PeerId peer) {
    for (std::size_t i = pending_at_; i < pending_.size(); ++i) {
        const Event& event = pending_[i].event;
        if (event.peer == peer && event.kind != EventKind::rma_done) pending_[i].dropped = true;
    }
}

void OfiEndpoint::post_receives() {
    while (fabric_) {
        ReceiveBuffer* buffer = receives_.take_idle();
        if (!buffer) return;
        if (fi_recv(fabric_->ep(), buffer->message, receives_.bytes(), nullptr, FI_ADDR_UNSPEC,
                    static_cast<OperationContext*>(buffer)) != 0) {
            receives_.give_back(*buffer);  // The next poll tries again.
            return;
        }
    }
}

// Each read makes libfabric take in up to 32 more completions from all peers. If fewer were taken
// out, its queue would grow without bound, and a message would wait behind all earlier ones. So a
// read takes them all, however few events the caller wants, and the next one waits until those are
// handed out.
void OfiEndpoint::read_completions() {
    fi_cq_msg_entry entries[completions_per_read];
    while (pending_at_ == pending_.size() && out_count_ < out_.size()) {
        const ssize_t count = fi_cq_read(fabric_->cq(), entries, completions_per_read);
        if (count == -FI_EAVAIL) {
            on_error();
            continue;
        }
        if (count <= 0) return;
        for (ssize_t i = 0; i < count; ++i) {
            // Completions without a context are libfabric's own.
            if (!entries[i].op_context) continue;
            on_completion(*static_cast<OperationContext*>(entries[i].op_context), entries[i].len);
        }
        // Another read of an empty queue would cost a system call.
        if (static_cast<std::size_t>(count) < completions_per_read) return;
    }
}

void OfiEndpoint::on_completion(OperationContext& operation, std::size_t bytes) {
    switch (operation.kind) {
        case OperationContext::Kind::receive:
            on_message(static_cast<ReceiveBuffer&>(operation), bytes);
            return;
        case OperationContext::Kind::send: on_sent(static_cast<SendSlot&>(operation)); return;
        case OperationContext::Kind::transfer:
            finish(static_cast<RmaOperation&>(operation), Code::ok, {});
            return;
    }
}

void OfiEndpoint::on_error() {
    fi_cq_err_entry entry{};
    std::byte data[64];  // Local, so that nothing points into libfabric.
    entry.err_data = data;
    entry.err_data_size = sizeof data;
    if (fi_cq_readerr(fabric_->cq(), &entry, 0) < 0 || !entry.op_context) return;
    const std::string why = "the connection broke: " + describe(entry.err);
    auto& operation = *static_cast<OperationContext*>(entry.op_context);
    base::SlotId gone;
    switch (operation.kind) {
        case OperationContext::Kind::receive:
            // A message cut short by the end of its connection; its sender is unknown.
            receives_.give_back(static_cast<ReceiveBuffer&>(operation));
            return;
        case OperationContext::Kind::send: {
            auto& slot = static_cast<SendSlot&>(operation);
            gone = slot.peer;
            on_sent(slot);
            break;
        }
        case OperationContext::Kind::transfer: {
            auto& transfer = static_cast<RmaOperation&>(operation);
            gone = {transfer.item.peer.index, transfer.item.peer.generation};
            finish(transfer, Code::unavailable, why);
            break;
        }
    }
    // All peers that share the connection have lost it too.
    if (ConnectionEntry* entry_of = peers_.find(gone)) cut(*entry_of->value.av_entry, why);
}

void OfiEndpoint::on_message(ReceiveBuffer& buffer, std::size_t bytes) {
    const ByteView message(buffer.message, std::min(bytes, receives_.bytes()));
    if (const auto prefix = decode_prefix(message)) {
        const ByteView body = message.subspan(sizeof(Prefix));
        ConnectionEntry* entry =
            prefix->index < by_index_.size() ? by_index_[prefix->index] : nullptr;
        if (prefix->index == no_index && prefix->tag == wire_magic && prefix->kind == Kind::hello) {
            on_hello(body);
        } else if (entry && entry->value.ours.tag == prefix->tag) {
            if (prefix->kind == Kind::data && entry->value.phase == PeerPhase::up &&
                prefix->sequence == entry->value.sequence_in + 1 && !body.empty() &&
                !entry->value.part) [[likely]] {
                entry->value.sequence_in = prefix->sequence;
                Event event;
                event.peer = id_of(*entry);
                event.bytes = body;
                emit(event);
                return;  // The buffer returns after the event was handed out.
            }
            on_peer_message(*entry, *prefix, body);
        } else {
            ++dropped_;
        }
    } else {
        ++dropped_;
    }
    receives_.give_back(buffer);
}

// Handles all but the common case of on_message().
void OfiEndpoint::on_peer_message(ConnectionEntry& entry, const Prefix& prefix, ByteView body) {
    Connection& peer = entry.value;
    switch (prefix.kind) {
        case Kind::welcome:
            if (peer.phase == PeerPhase::connecting) on_welcome(entry, body);
            return;
        case Kind::refusal:
            if (peer.phase == PeerPhase::connecting) on_refusal(entry, body);
            return;
        case Kind::bye:
        case Kind::piece:
        case Kind::data: break;
        case Kind::hello: ++dropped_; return;
    }
    if (peer.phase != PeerPhase::up) {
        ++dropped_;
    } else if (prefix.sequence != peer.sequence_in + 1) {
        take_down(entry, Code::data_loss, "messages of the peer were lost on the way");
    } else if (prefix.kind == Kind::bye) {
        peer.received_bye = true;
        take_down(entry, Code::unavailable, "the peer closed the connection");
    } else if (body.empty()) {
        take_down(entry, Code::data_loss, "the peer sent an empty message");
    } else {
        on_piece(entry, prefix, body);
    }
}

// Appends a piece of a message; the last one has kind `data`.
void OfiEndpoint::on_piece(ConnectionEntry& entry, const Prefix& prefix, ByteView body) {
    Connection& peer = entry.value;
    if (body.size() > limits_.message_bytes_max - peer.part_bytes) {
        take_down(entry, Code::data_loss, "the peer sent a message longer than it may");
        return;
    }
    if (!peer.part) peer.part = pool_.take();
    if (!peer.part) {
        take_down(entry, Code::resource_exhausted,
                  "this process has no memory for a message of the peer");
        return;
    }
    std::memcpy(peer.part.get() + peer.part_bytes, body.data(), body.size());
    peer.part_bytes += static_cast<std::uint32_t>(body.size());
    peer.sequence_in = prefix.sequence;
    if (prefix.kind == Kind::piece) return;

    Event event;
    event.peer = id_of(entry);
    event.bytes = {peer.part.get(), std::exchange(peer.part_bytes, 0)};
    joined_.push(std::move(peer.part));
    emit(event);
}

// The reader is done with the message. Joined messages return in the order of their events.
void OfiEndpoint::recycle(const std::byte* message) {
    if (ReceiveBuffer* buffer = receives_.find(message)) {
        receives_.give_back(*buffer);
        return;
    }
    WEFT_DCHECK(joined_.front().get() == message);
    pool_.give_back(std::move(joined_.front()));
    joined_.pop();
}

void OfiEndpoint::wake_writers() {
    want_writable_.for_each([this](Connection& peer) {
        if (!has_room(peer)) return;
        peer.WritableNode::unlink();
        Event event;
        event.kind = EventKind::writable;
        event.peer = id_of(*by_index_[peer.ours.index]);
        emit(event);
    });
}

bool OfiEndpoint::arm() {
    if (pending_at_ < pending_.size()) return false;
    if (receives_.has_idle()) post_receives();
    bool writable = false;  // Since the poll, for example by a connection that ended.
    want_writable_.for_each([&](Connection& peer) { writable |= has_room(peer); });
    return !writable && parts_.sleeps && (!fabric_ || fabric_->may_sleep());
}

void OfiEndpoint::schedule(ConnectionEntry& entry, TimePoint at) {
    WEFT_ASSERT(entry.is_taken());
    Connection& peer = entry.value;
    peer.retry.next = at;
    if (!peer.ScheduledNode::is_linked()) scheduled_.push_back(peer);
    next_scheduled_ = std::min(next_scheduled_, at);
}

void OfiEndpoint::serve_scheduled() {
    next_scheduled_ = never;
    // Serving one peer may end others, so no iterator stays in the list.
    base::IntrusiveList<Connection, ScheduledNode> round;
    round.splice_back(scheduled_);
    while (Connection* peer = round.pop_front()) {
        ConnectionEntry& entry = *by_index_[peer->ours.index];
        if (peer->retry.next > now_) {
            schedule(entry, peer->retry.next);
        } else {
            serve(entry);
        }
    }
    if (av_check_at_ <= now_) serve_av_entries();
    if (close_on_exec_at_ <= now_) set_close_on_exec();
    next_scheduled_ = std::min({next_scheduled_, av_check_at_, close_on_exec_at_});
}

// A thread that did not poll for so long has not seen answers that may have arrived: libfabric
// takes time to start, and again with its first messages, seconds on a busy machine. That time does
// not count against the peers.
void OfiEndpoint::extend_deadlines(Duration stall) {
    peers_.for_each([&](ConnectionEntry& entry) {
        entry.value.started = std::min(entry.value.started + stall, now_);
    });
}

void OfiEndpoint::serve(ConnectionEntry& entry) {
    switch (entry.value.phase) {
        case PeerPhase::resolving: return serve_resolving(entry);
        case PeerPhase::connecting: return serve_connecting(entry);
        case PeerPhase::accepting: return serve_accepting(entry);
        case PeerPhase::up: return serve_up(entry);
    }
}

void OfiEndpoint::serve_up(ConnectionEntry& entry) {
    if (drain(entry) && entry.value.backlog.empty()) start_waiting_transfers(entry);
}

// Whether operations that libfabric accepted are in flight: if the connection had broken, all of
// them would have failed. Over TCP libfabric may keep operations of a broken one, so they prove
// nothing.
bool OfiEndpoint::is_busy(AvEntry& av_entry) {
    if (traits_.probes_by_socket) return false;
    bool busy =
        std::any_of(transfers_.begin(), transfers_.end(), [&](const RmaOperation& transfer) {
            return transfer.posted && transfer.av_entry == &av_entry;
        });
    av_entry.members.for_each([&](Connection& peer) {
        std::uint32_t waiting = 0;
        peer.backlog.for_each([&](SendSlot& slot) { waiting += slot.under_way == 0; });
        busy = busy || peer.slots > waiting;
    });
    return busy;
}

// Records one more "try again" from libfabric. False: it lasted too long, and the peer was taken
// down.
bool OfiEndpoint::blocked(ConnectionEntry& entry) {
    Retry& retry = entry.value.retry;
    if (retry.attempts++ == 0) retry.since = now_;
    // The endpoint's own depth limits are below libfabric's, so an established connection accepts
    // more sooner or later. This one is being made anew, and messages on the old one may be lost.
    if (retry.attempts > retries_free && now_ - retry.since > lost_after) {
        if (is_busy(*entry.value.av_entry)) retry.since = now_;
    }
    if (retry.attempts > retries_free && now_ - retry.since > lost_after) {
        const std::string why = "the connection was lost";
        cut(*entry.value.av_entry, why);
        return false;
    }
    const std::uint32_t doublings =
        std::min(8u, retry.attempts > retries_free ? retry.attempts - retries_free : 0u);
    schedule(entry, now_ + std::min(retry_spacing_max, retry_spacing_min * (1 << doublings)));
    return true;
}

}  // namespace weft::na::ofi
