// Outgoing messages: frames are written into slots, joined in the backlog of their peer, and leave
// as one list of work requests at the end of the turn.
#include <arpa/inet.h>

#include <algorithm>

#include "na/verbs/endpoint.h"

namespace weft::na::verbs {

static constexpr std::size_t list_max = 32;

bool VerbsEndpoint::has_room(const Connection& peer) const {
    // Each peer gets a share of the rest, so that peers that read nothing do not block the others.
    return peer.slots < slots_per_peer && peer.slots + control_slots < slots_.remaining();
}

// `peer`: nullptr if it is gone.
void VerbsEndpoint::release(Connection* peer, SendSlot& slot) {
    WEFT_DCHECK(!peer || peer->slots != 0);
    if (peer) --peer->slots;
    slots_.give_back(slot);
}

std::byte* VerbsEndpoint::reserve(PeerId id, std::size_t bytes) noexcept {
    Connection* peer = peers_.find_up(id);
    if (!peer || bytes > peer->info.message_bytes_max) return nullptr;
    SendSlot* last = peer->backlog.back();
    if (last && last->kind != Kind::data) last = nullptr;
    return backlog_.claim(*peer, last, bytes, peer->info.message_bytes_max,
                          [&] { return has_room(*peer) ? slots_.take(control_slots) : nullptr; });
}

bool VerbsEndpoint::commit(std::size_t bytes, bool at_once) noexcept {
    if (!backlog_.has_claim()) return false;
    Connection* peer = peers_.find(backlog_.claimer());
    const auto done =
        backlog_.commit(peer, bytes, at_once, [this](SendSlot& slot) { slots_.give_back(slot); });
    if (done.bytes == 0) return false;
    if (done.leaves_now) drain(*peer);
    return true;  // Also after it has left: the next turn starts after the flush.
}

void VerbsEndpoint::flush() noexcept {
    backlog_.flush([this](Connection& peer) { drain(peer); });
    backlog_.end_turn();
}

// Posted messages do not count, though only the next signalled completion proves their arrival.
std::size_t VerbsEndpoint::unsent(PeerId id) const {
    const Connection* const peer = peers_.find(id);
    return peer && !peer->backlog.empty() ? 1 : 0;
}

void VerbsEndpoint::drain(Connection& peer) {
    if (!post_backlog(peer)) return;
    if (peer.phase == PeerPhase::up && peer.credits.must_return()) return_credits(peer);
}

std::uint32_t VerbsEndpoint::immediate(Connection& peer, Kind kind) const {
    const bool gives = device_->optimizations().piggybacked_credits || kind == Kind::credit;
    return htonl(encode({kind, peer.remote_index, gives ? peer.credits.take_unreturned() : 0}));
}

// Posts what the window and the queue pair have room for, as one list. False: the peer is broken.
//
// The memory of an inline message is free at once, that of another with a completion. One message
// in signal_every requests a completion, and each one when slots run low.
bool VerbsEndpoint::post_backlog(Connection& peer) {
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
            if (is_counted && !peer.credits.may_send()) break;
            slot->unlink();
            if (is_counted) peer.credits.on_sent();
            slot->sequence = ++queue_pair.posted;
            const bool inlined = slot->used <= device_->inline_bytes_max();
            const bool signalled = ++queue_pair.unsignalled >= signal_interval() ||
                                   (!inlined && slots_.remaining() < slots_.size() / 2);
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
            take_down_later(peer, "the device refused a message: " + describe(error));
            return false;
        }
    }
    return true;
}

// Sends a message that is only an immediate, without using a credit. False: no room.
bool VerbsEndpoint::send_bare(Connection& peer, Kind kind, bool signalled) {
    QueuePair& queue_pair = peer.message_queue_pair->value;
    if (queue_pair.posted - queue_pair.completed >= message_depth) return false;
    ibv_send_wr request{};
    ++queue_pair.posted;
    signalled = ++queue_pair.unsignalled >= signal_interval() || signalled;
    if (signalled) queue_pair.unsignalled = 0;
    request.wr_id = number_of(Work::message, peer.message_queue_pair->id(), queue_pair.posted);
    request.opcode = IBV_WR_SEND_WITH_IMM;
    request.imm_data = immediate(peer, kind);
    request.send_flags = signalled ? IBV_SEND_SIGNALED : 0;
    if (kind == Kind::credit) ++device_->counters.credit_sends;
    if (const int error = device_->post_sends(*queue_pair.qp, {&request, 1})) {
        take_down_later(peer, "the device refused a message: " + describe(error));
        return false;
    }
    return true;
}

void VerbsEndpoint::return_credits(Connection& peer) { (void)send_bare(peer, Kind::credit, false); }

// Queues a message about the connection itself. The peer's window bounds their number.
void VerbsEndpoint::queue_control(Connection& peer, Kind kind, ByteView body) {
    SendSlot* slot = slots_.take(0);
    if (!slot) return take_down_later(peer, "the endpoint has no slot for a message left");
    WEFT_ASSERT(body.size() <= message_bytes_wanted);
    slot->kind = kind;
    slot->used = static_cast<std::uint32_t>(body.size());
    std::copy(body.begin(), body.end(), slot->message);
    ++peer.slots;
    peer.backlog.push_back(*slot);
    drain(peer);
}

}  // namespace weft::na::verbs
