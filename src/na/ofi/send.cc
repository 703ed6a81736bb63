// Outgoing messages: frames are written into slots, joined in the backlog of their peer, and leave
// in order.
#include <algorithm>
#include <cstring>

#include "na/ofi/endpoint.h"

namespace weft::na::ofi {

static constexpr std::uint32_t frame_alignment = 8;

static std::uint32_t aligned(std::uint32_t bytes) {
    return (bytes + frame_alignment - 1) / frame_alignment * frame_alignment;
}

bool OfiEndpoint::has_room(const Connection& peer) const {
    // Each peer gets a share of the rest, so that peers that read nothing do not block the others.
    return peer.slots < traits_.slots_per_peer && peer.slots + control_slots < sends_.remaining() &&
           peer.bytes < bytes_under_way_max;
}

std::byte* OfiEndpoint::reserve(PeerId id, std::size_t bytes) noexcept {
    WEFT_DCHECK(!claim_.slot);
    ConnectionEntry* entry = find_up(id);
    if (!entry || bytes > entry->value.info.message_bytes_max) return nullptr;
    Connection& peer = entry->value;
    claim_.peer = entry->id();
    if (SendSlot* last = peer.backlog.back()) {
        const std::uint32_t offset = aligned(last->used);
        // A message in pieces is delivered whole: joined frames that have arrived would wait for
        // it.
        if (offset + bytes <= std::min<std::size_t>(peer.info.message_bytes_max, piece_bytes_)) {
            claim_.slot = last;
            claim_.offset = offset;
            claim_.fresh = false;
            return last->message + sizeof(Prefix) + offset;
        }
    }
    SendSlot* slot = has_room(peer) ? sends_.take(control_slots) : nullptr;
    if (!slot) {
        if (!peer.WritableNode::is_linked()) want_writable_.push_back(peer);
        return nullptr;
    }
    slot->peer = claim_.peer;
    claim_.slot = slot;
    claim_.offset = 0;
    claim_.fresh = true;
    return slot->message + sizeof(Prefix);
}

bool OfiEndpoint::commit(std::size_t bytes, bool at_once) noexcept {
    if (!claim_.slot) return false;
    SendSlot& slot = *std::exchange(claim_.slot, nullptr);
    ConnectionEntry* entry = peers_.find(claim_.peer);
    if (!entry || bytes == 0) {
        if (claim_.fresh) sends_.give_back(slot);
        return false;
    }
    Connection& peer = entry->value;
    WEFT_DCHECK(claim_.offset + bytes <= peer.info.message_bytes_max);
    std::memset(slot.message + sizeof(Prefix) + slot.used, 0, claim_.offset - slot.used);
    peer.bytes += claim_.offset - slot.used + bytes;
    slot.used = claim_.offset + static_cast<std::uint32_t>(bytes);
    if (claim_.fresh) {
        const bool leaves_now = at_once && peer.turn != turn_ && peer.backlog.empty();
        ++peer.slots;
        peer.backlog.push_back(slot);
        if (leaves_now) {
            peer.turn = turn_;
            drain(*entry);
            return true;  // The next turn starts after the flush.
        }
    }
    if (!peer.FlushNode::is_linked()) unflushed_.push_back(peer);
    return true;
}

void OfiEndpoint::flush() noexcept {
    while (Connection* peer = unflushed_.pop_front()) drain(*by_index_[peer->ours.index]);
    ++turn_;
}

// A slot counts until its completion: libfabric queues accepted messages and does not report that.
std::size_t OfiEndpoint::unsent(PeerId peer) const {
    const ConnectionEntry* const entry = find_up(peer);
    return entry ? entry->value.slots : 0;
}

// Passes the backlog to libfabric, in order, as far as it is accepted. False: the peer was taken
// down. While libfabric returns "try again" a timer retries.
bool OfiEndpoint::drain(ConnectionEntry& entry) {
    Connection& peer = entry.value;
    if (peer.phase != PeerPhase::up) return true;
    while (SendSlot* slot = peer.backlog.front()) {
        if (peer.retry.attempts != 0 && peer.retry.next > now_) return true;
        slot->unlink();
        switch (send_slot(peer, *slot)) {
            case Sent::ok: break;
            case Sent::retry: peer.backlog.push_front(*slot); return blocked(entry);
            case Sent::failed:
                drop(*slot);
                cut(*peer.av_entry, "libfabric refused a message");
                return false;
        }
    }
    return true;
}

// Sends the rest of the message. libfabric uses accepted bytes in place until their completion.
OfiEndpoint::Sent OfiEndpoint::send_slot(Connection& peer, SendSlot& slot) {
    do {
        const std::uint32_t left = slot.used - slot.sent;
        const std::uint32_t body = std::min(left, piece_bytes_);
        const Prefix prefix{peer.theirs.index, peer.theirs.tag, peer.sequence_out + 1,
                            static_cast<std::uint16_t>(body),
                            body < left ? Kind::piece : Kind::data};
        const std::size_t bytes = sizeof(Prefix) + body;
        bool inject = false;
        ssize_t error;
        if (slot.sent == 0) [[likely]] {
            inject =
                traits_.injects && body == left && bytes <= fabric_->info().tx_attr->inject_size;
            base::store(slot.message, prefix);
            error = inject ? fi_inject(fabric_->ep(), slot.message, bytes, peer.av_entry->address)
                           : fi_send(fabric_->ep(), slot.message, bytes, nullptr,
                                     peer.av_entry->address, static_cast<OperationContext*>(&slot));
        } else {
            Prefix& later = slot.later[slot.sent / piece_bytes_ - 1];
            later = prefix;
            const iovec parts[] = {{&later, sizeof later},
                                   {slot.message + sizeof(Prefix) + slot.sent, body}};
            error = fi_sendv(fabric_->ep(), parts, nullptr, 2, peer.av_entry->address,
                             static_cast<OperationContext*>(&slot));
        }
        peer.av_entry->on_send_result(error);
        if (error != 0) [[unlikely]]
            return error == -FI_EAGAIN ? Sent::retry : Sent::failed;
        peer.retry.attempts = 0;
        ++peer.sequence_out;
        slot.sent += body;
        if (!inject) ++slot.under_way;
    } while (slot.sent < slot.used);
    release(slot);
    return Sent::ok;
}

// libfabric has completed one piece of the slot.
void OfiEndpoint::on_sent(SendSlot& slot) {
    --slot.under_way;
    release(slot);
}

// Frees the slot when libfabric has accepted and completed all of it.
void OfiEndpoint::release(SendSlot& slot) {
    if (slot.sent < slot.used || slot.under_way > 0) return;
    if (ConnectionEntry* entry = peers_.find(slot.peer)) {
        --entry->value.slots;
        entry->value.bytes -= slot.used;
    }
    sends_.give_back(slot);
}

// Discards the unsent rest of the slot.
void OfiEndpoint::drop(SendSlot& slot) {
    if (ConnectionEntry* entry = peers_.find(slot.peer)) {
        entry->value.bytes -= slot.used - slot.sent;
    }
    slot.used = slot.sent;
    release(slot);
}

// Best effort: a peer that misses the bye detects the silence.
void OfiEndpoint::send_bye(Connection& peer) {
    if (peer.phase != PeerPhase::up || !peer.av_entry || !peer.backlog.empty()) return;
    const Prefix prefix{peer.theirs.index, peer.theirs.tag, peer.sequence_out + 1, 0, Kind::bye};
    peer.av_entry->on_send_result(
        fi_inject(fabric_->ep(), &prefix, sizeof prefix, peer.av_entry->address));
}

}  // namespace weft::na::ofi
