// Outgoing messages: frames are written into slots, joined in the backlog of their peer, and leave
// in order.
#include <algorithm>

#include "na/ofi/endpoint.h"

namespace weft::na::ofi {

bool OfiEndpoint::has_room(const Connection& peer) const {
    // Each peer gets a share of the rest, so that peers that read nothing do not block the others.
    return peer.slots < traits_.slots_per_peer && peer.slots + control_slots < sends_.remaining() &&
           peer.bytes < bytes_under_way_max;
}

std::byte* OfiEndpoint::reserve(PeerId id, std::size_t bytes) noexcept {
    Connection* peer = peers_.find_up(id);
    if (!peer || bytes > peer->info.message_bytes_max) return nullptr;
    // A message in pieces is delivered whole: joined frames that have arrived would wait for it.
    const std::size_t joined_max =
        std::min<std::size_t>(peer->info.message_bytes_max, piece_bytes_);
    return backlog_.claim(*peer, peer->backlog.back(), bytes, joined_max, [&]() -> SendSlot* {
        SendSlot* slot = has_room(*peer) ? sends_.take(control_slots) : nullptr;
        if (slot) slot->peer = peer->id;
        return slot;
    });
}

bool OfiEndpoint::commit(std::size_t bytes, bool at_once) noexcept {
    if (!backlog_.has_claim()) return false;
    Connection* peer = peers_.find(backlog_.claimer());
    const auto done =
        backlog_.commit(peer, bytes, at_once, [this](SendSlot& slot) { sends_.give_back(slot); });
    if (done.bytes == 0) return false;
    peer->bytes += done.bytes;
    if (done.leaves_now) drain(*peer);
    return true;  // Also after it has left: the next turn starts after the flush.
}

void OfiEndpoint::flush() noexcept {
    backlog_.flush([this](Connection& peer) { drain(peer); });
    backlog_.end_turn();
}

// A slot counts until its completion: libfabric queues accepted messages and does not report that.
std::size_t OfiEndpoint::unsent(PeerId id) const {
    const Connection* const peer = peers_.find_up(id);
    return peer ? peer->slots : 0;
}

// Passes the backlog to libfabric, in order, as far as it is accepted. False: the peer was taken
// down. While libfabric returns "try again" a timer retries.
bool OfiEndpoint::drain(Connection& peer) {
    if (peer.phase != PeerPhase::up) return true;
    while (SendSlot* slot = peer.backlog.front()) {
        if (peer.retry.attempts != 0 && peer.due > clock_.now) return true;
        slot->unlink();
        switch (send_slot(peer, *slot)) {
            case Sent::ok: break;
            case Sent::retry: peer.backlog.push_front(*slot); return blocked(peer);
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
    WEFT_DCHECK(peer.av_entry && slot.sent < slot.used && !slot.is_linked());
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
    WEFT_ASSERT(slot.under_way != 0);
    --slot.under_way;
    release(slot);
}

// Frees the slot when libfabric has accepted and completed all of it.
void OfiEndpoint::release(SendSlot& slot) {
    if (slot.sent < slot.used || slot.under_way > 0) return;
    if (Connection* peer = peers_.find(slot.peer)) {
        WEFT_DCHECK(peer->slots != 0 && peer->bytes >= slot.used);
        --peer->slots;
        peer->bytes -= slot.used;
    }
    sends_.give_back(slot);
}

// Discards the unsent rest of the slot.
void OfiEndpoint::drop(SendSlot& slot) {
    if (Connection* peer = peers_.find(slot.peer)) {
        peer->bytes -= slot.used - slot.sent;
    }
    WEFT_ASSERT(slot.sent <= slot.used && !slot.is_linked());
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
