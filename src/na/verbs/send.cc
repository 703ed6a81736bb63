// Messages on their way out: frames are written into slots, joined in the backlog of their peer,
// and leave as one list of work requests at the end of the turn.
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

bool VerbsEndpoint::has_room(const Peer& peer) const {
    // Each a share of what is left, so that those who take nothing do not hold up all others.
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

void VerbsEndpoint::release(Peer* peer, SendSlot& slot) {
    if (peer) --peer->slots;
    slots_free_.push_back(&slot);
}

std::byte* VerbsEndpoint::reserve(PeerId id, std::size_t bytes) noexcept {
    WEFT_DCHECK(!claim_.slot);
    PeerEntry* entry = find_up(id);
    if (!entry || bytes > entry->value.info.message_bytes_max) return nullptr;
    Peer& peer = entry->value;
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
    PeerEntry* entry = peers_.find(claim_.peer);
    if (!entry || bytes == 0) {
        if (claim_.fresh) release(nullptr, slot);
        return false;
    }
    Peer& peer = entry->value;
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
    while (Peer* peer = unflushed_.pop_front()) drain(PeerTable::entry_of(*peer));
    ++turn_;
}

// What the card has is known to have arrived only with the next completion that was asked for.
std::size_t VerbsEndpoint::unsent(PeerId peer) const {
    const PeerEntry* const entry = find(peer);
    return entry && !entry->value.backlog.empty() ? 1 : 0;
}

void VerbsEndpoint::drain(PeerEntry& entry) {
    Peer& peer = entry.value;
    if (!post_backlog(entry)) return;
    if (peer.state == PeerState::up && peer.owed * 2 >= peer.granted) give_credits_back(entry);
}

std::uint32_t VerbsEndpoint::immediate(Peer& peer, Kind kind) const {
    const bool gives = parts_.economies.riding || kind == Kind::credit;
    return htonl(encode({kind, peer.their_index, gives ? std::exchange(peer.owed, 0) : 0}));
}

// What the window and the queue pair have room for, as one list. False: the peer is broken.
//
// The memory of a message that went inside its work request is free at once, that of another when a
// completion says so, which one in signal_every gives, and each when slots run low.
bool VerbsEndpoint::post_backlog(PeerEntry& entry) {
    Peer& peer = entry.value;
    if (!peer.broken.empty()) return false;
    if (!peer.talk || peer.state == PeerState::connecting) return true;
    Lane& lane = peer.talk->value;
    while (!peer.backlog.empty()) {
        ibv_send_wr requests[list_max];
        ibv_sge pieces[list_max];
        SendQueue inlined_slots;
        std::size_t count = 0;
        while (count < list_max && lane.posted - lane.completed < message_depth) {
            SendSlot* slot = peer.backlog.front();
            if (!slot) break;
            const bool is_counted = slot->kind == Kind::data || slot->kind == Kind::lane;
            if (is_counted && peer.credits == 0) break;
            slot->unlink();
            if (is_counted) --peer.credits;
            slot->sequence = ++lane.posted;
            const bool inlined = slot->used <= card_->inline_bytes_max();
            const bool signalled = ++lane.unsignalled >= signal_every_ ||
                                   (!inlined && slots_free_.size() < slots_.size() / 2);
            if (signalled) lane.unsignalled = 0;
            ibv_sge& piece = pieces[count];
            piece = {reinterpret_cast<std::uintptr_t>(slot->message), slot->used,
                     card_->send_key()};
            ibv_send_wr& request = requests[count];
            request = {};
            request.wr_id = number_of(Work::message, peer.talk->id(), slot->sequence);
            request.sg_list = &piece;
            request.num_sge = 1;
            request.opcode = IBV_WR_SEND_WITH_IMM;
            request.imm_data = immediate(peer, slot->kind);
            request.send_flags = (inlined ? static_cast<unsigned>(IBV_SEND_INLINE) : 0) |
                                 (signalled ? static_cast<unsigned>(IBV_SEND_SIGNALED) : 0);
            ++count;
            (inlined ? inlined_slots : lane.in_flight).push_back(*slot);
        }
        if (count == 0) return true;
        const int error = card_->post_sends(*lane.pair, {requests, count});
        while (SendSlot* slot = inlined_slots.pop_front()) release(&peer, *slot);
        if (error != 0) {
            break_off(entry, "the card refused a message: " + describe(error));
            return false;
        }
    }
    return true;
}

// A message that is an immediate and nothing else; credits are not asked for. False: no room.
bool VerbsEndpoint::send_bare(PeerEntry& entry, Kind kind, bool signalled) {
    Peer& peer = entry.value;
    Lane& lane = peer.talk->value;
    if (lane.posted - lane.completed >= message_depth) return false;
    ibv_send_wr request{};
    ++lane.posted;
    signalled = ++lane.unsignalled >= signal_every_ || signalled;
    if (signalled) lane.unsignalled = 0;
    request.wr_id = number_of(Work::message, peer.talk->id(), lane.posted);
    request.opcode = IBV_WR_SEND_WITH_IMM;
    request.imm_data = immediate(peer, kind);
    request.send_flags = signalled ? IBV_SEND_SIGNALED : 0;
    if (kind == Kind::credit) ++card_->ledger.credit_sends;
    if (const int error = card_->post_sends(*lane.pair, {&request, 1})) {
        break_off(entry, "the card refused a message: " + describe(error));
        return false;
    }
    return true;
}

void VerbsEndpoint::give_credits_back(PeerEntry& entry) {
    (void)send_bare(entry, Kind::credit, false);
}

// What is said of the connection itself. Bounded by what the peer asks for within its window.
void VerbsEndpoint::queue_control(PeerEntry& entry, Kind kind, ByteView body) {
    SendSlot* slot = take_slot(0);
    if (!slot) return break_off(entry, "no memory for a message left");
    slot->kind = kind;
    slot->used = static_cast<std::uint32_t>(body.size());
    std::copy(body.begin(), body.end(), slot->message);
    ++entry.value.slots;
    entry.value.backlog.push_back(*slot);
    drain(entry);
}

}  // namespace weft::na::verbs
