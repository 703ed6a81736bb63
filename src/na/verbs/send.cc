// Outgoing messages: frames are written into slots, joined in the backlog of their peer, and leave
// as one list of work requests at the end of the turn.
#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

#include "na/verbs/endpoint.h"

namespace weft::na::verbs {

static constexpr std::uint32_t frame_alignment = 8;
static constexpr std::size_t list_max = 32;

static std::uint32_t aligned(std::uint32_t bytes) {
    return (bytes + frame_alignment - 1) / frame_alignment * frame_alignment;
}

bool VerbsEndpoint::has_room(const Connection& peer) const {
    // Each peer gets a share of the rest, so that peers that read nothing do not block the others.
    return peer.slots < slots_per_peer && peer.slots + control_slots < slots_free_.size();
}

SendSlot* VerbsEndpoint::take_slot(std::uint32_t keep) {
    if (slots_free_.size() <= keep) return nullptr;
    SendSlot* slot = slots_free_.back();  // The last one given back is warm.
    slots_free_.pop_back();
    slot->used = 0;
    slot->kind = Kind::data;
    return slot;
}

void VerbsEndpoint::release(Connection* peer, SendSlot& slot) {
    if (peer) --peer->slots;
    slots_free_.push_back(&slot);
}

std::byte* VerbsEndpoint::reserve(PeerId id, std::size_t bytes) noexcept {
    WEFT_DCHECK(!claim_.slot);
    ConnectionEntry* entry = find_up(id);
    if (!entry || bytes > entry->value.info.message_bytes_max) return nullptr;
    Connection& peer = entry->value;
    claim_.peer = entry->id();
    SendSlot* last = peer.backlog.back();
    if (last && last->kind == Kind::data) {
        const std::uint32_t offset = aligned(last->used);
        if (offset + bytes <= peer.info.message_bytes_max) {
            claim_.slot = last;
            claim_.offset = offset;
            claim_.fresh = false;
            return last->message + offset;
        }
    }
    SendSlot* slot = has_room(peer) ? take_slot(control_slots) : nullptr;
    if (!slot) {
        if (!peer.WritableNode::is_linked()) want_writable_.push_back(peer);
        return nullptr;
    }
    claim_.slot = slot;
    claim_.offset = 0;
    claim_.fresh = true;
    return slot->message;
}

bool VerbsEndpoint::commit(std::size_t bytes, bool at_once) noexcept {
    if (!claim_.slot) return false;
    SendSlot& slot = *std::exchange(claim_.slot, nullptr);
    ConnectionEntry* entry = peers_.find(claim_.peer);
    if (!entry || bytes == 0) {
        if (claim_.fresh) release(nullptr, slot);
        return false;
    }
    Connection& peer = entry->value;
    std::memset(slot.message + slot.used, 0, claim_.offset - slot.used);
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

void VerbsEndpoint::flush() noexcept {
    while (Connection* peer = unflushed_.pop_front()) drain(ConnectionTable::entry_of(*peer));
    ++turn_;
}

// Posted messages do not count, though only the next signalled completion proves their arrival.
std::size_t VerbsEndpoint::unsent(PeerId peer) const {
    const ConnectionEntry* const entry = find(peer);
    return entry && !entry->value.backlog.empty() ? 1 : 0;
}

void VerbsEndpoint::drain(ConnectionEntry& entry) {
    Connection& peer = entry.value;
    if (!post_backlog(entry)) return;
    if (peer.phase == PeerPhase::up && peer.unreturned_credits * 2 >= peer.granted)
        return_credits(entry);
}

std::uint32_t VerbsEndpoint::immediate(Connection& peer, Kind kind) const {
    const bool gives = parts_.optimizations.piggybacked_credits || kind == Kind::credit;
    return htonl(
        encode({kind, peer.remote_index, gives ? std::exchange(peer.unreturned_credits, 0) : 0}));
}

// Posts what the window and the queue pair have room for, as one list. False: the peer is broken.
//
// The memory of an inline message is free at once, that of another with a completion. One message
// in signal_every requests a completion, and each one when slots run low.
bool VerbsEndpoint::post_backlog(ConnectionEntry& entry) {
    Connection& peer = entry.value;
    if (!peer.broken.empty()) return false;
    if (!peer.message_queue_pair || peer.phase == PeerPhase::connecting) return true;
    QueuePair& queue_pair = peer.message_queue_pair->value;
    while (!peer.backlog.empty()) {
        ibv_send_wr requests[list_max];
        ibv_sge pieces[list_max];
        SendQueue inlined_slots;
        std::size_t count = 0;
        while (count < list_max && queue_pair.posted - queue_pair.completed < message_depth) {
            SendSlot* slot = peer.backlog.front();
            if (!slot) break;
            const bool is_counted = slot->kind == Kind::data || slot->kind == Kind::queue_pair;
            if (is_counted && peer.credits == 0) break;
            slot->unlink();
            if (is_counted) --peer.credits;
            slot->sequence = ++queue_pair.posted;
            const bool inlined = slot->used <= device_->inline_bytes_max();
            const bool signalled = ++queue_pair.unsignalled >= signal_every_ ||
                                   (!inlined && slots_free_.size() < slots_.size() / 2);
            if (signalled) queue_pair.unsignalled = 0;
            ibv_sge& piece = pieces[count];
            piece = {reinterpret_cast<std::uintptr_t>(slot->message), slot->used,
                     device_->send_key()};
            ibv_send_wr& request = requests[count];
            request = {};
            request.wr_id = number_of(Work::message, peer.message_queue_pair->id(), slot->sequence);
            request.sg_list = &piece;
            request.num_sge = 1;
            request.opcode = IBV_WR_SEND_WITH_IMM;
            request.imm_data = immediate(peer, slot->kind);
            request.send_flags = (inlined ? static_cast<unsigned>(IBV_SEND_INLINE) : 0) |
                                 (signalled ? static_cast<unsigned>(IBV_SEND_SIGNALED) : 0);
            ++count;
            (inlined ? inlined_slots : queue_pair.in_flight).push_back(*slot);
        }
        if (count == 0) return true;
        const int error = device_->post_sends(*queue_pair.qp, {requests, count});
        while (SendSlot* slot = inlined_slots.pop_front()) release(&peer, *slot);
        if (error != 0) {
            take_down_later(entry, "the device refused a message: " + describe(error));
            return false;
        }
    }
    return true;
}

// Sends a message that is only an immediate, without using a credit. False: no room.
bool VerbsEndpoint::send_bare(ConnectionEntry& entry, Kind kind, bool signalled) {
    Connection& peer = entry.value;
    QueuePair& queue_pair = peer.message_queue_pair->value;
    if (queue_pair.posted - queue_pair.completed >= message_depth) return false;
    ibv_send_wr request{};
    ++queue_pair.posted;
    signalled = ++queue_pair.unsignalled >= signal_every_ || signalled;
    if (signalled) queue_pair.unsignalled = 0;
    request.wr_id = number_of(Work::message, peer.message_queue_pair->id(), queue_pair.posted);
    request.opcode = IBV_WR_SEND_WITH_IMM;
    request.imm_data = immediate(peer, kind);
    request.send_flags = signalled ? IBV_SEND_SIGNALED : 0;
    if (kind == Kind::credit) ++device_->counters.credit_sends;
    if (const int error = device_->post_sends(*queue_pair.qp, {&request, 1})) {
        take_down_later(entry, "the device refused a message: " + describe(error));
        return false;
    }
    return true;
}

void VerbsEndpoint::return_credits(ConnectionEntry& entry) {
    (void)send_bare(entry, Kind::credit, false);
}

// Queues a message about the connection itself. The peer's window bounds their number.
void VerbsEndpoint::queue_control(ConnectionEntry& entry, Kind kind, ByteView body) {
    SendSlot* slot = take_slot(0);
    if (!slot) return take_down_later(entry, "the endpoint has no slot for a message left");
    slot->kind = kind;
    slot->used = static_cast<std::uint32_t>(body.size());
    std::copy(body.begin(), body.end(), slot->message);
    ++entry.value.slots;
    entry.value.backlog.push_back(*slot);
    drain(entry);
}

}  // namespace weft::na::verbs
