// Memory that peers may touch, and transfers from and to theirs.
#include <algorithm>
#include <array>
#include <utility>

#include "base/log.h"
#include "na/verbs/endpoint.h"

namespace weft::na::verbs {

static constexpr std::uint32_t transfers_of_a_busy_lane = 4;

static int access_flags(Access access) {
    return (allows(access, Access::read) ? IBV_ACCESS_REMOTE_READ : 0) |
           (allows(access, Access::write) ? IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE : 0);
}

// A registration of its own: exactly this range and these rights, and its end is the fence.
Result<FabricKey> VerbsEndpoint::expose(const Exposure& exposure) {
    if (exposure.region >= regions_max || exposure.memory.empty() ||
        exposure.access == Access::none) {
        return fail(Code::invalid_argument, "can't expose 0 bytes, nor without any access");
    }
    if (regions_.size() <= exposure.region) regions_.resize(exposure.region + 1);
    Owned<ibv_mr>& region = regions_[exposure.region];
    if (region) {
        return fail(Code::already_exists,
                    "region " + std::to_string(exposure.region) + " is exposed already");
    }
    auto memory = card_->register_memory(exposure.memory, access_flags(exposure.access));
    if (!memory) return std::move(memory).status();
    region = *std::move(memory);
    return FabricKey{reinterpret_cast<std::uintptr_t>(exposure.memory.data()), region->rkey};
}

// The registration's end waits for accesses that are under way, and no later one gets in; the lanes
// of those who are lost are gone before.
void VerbsEndpoint::fence(std::uint32_t region, Holders) {
    if (region < regions_.size() && regions_[region]) {
        // One that the card does not let go of stays as it is: its memory is never given back.
        if (const int error = ::ibv_dereg_mr(regions_[region].get())) {
            parts_.log.error("verbs: the card does not let go of region " + std::to_string(region) +
                             ": " + describe(error) + "; it is never fenced");
            return;
        }
        (void)regions_[region].release();
    }
    emit_fenced(region);
}

void VerbsEndpoint::emit_fenced(std::uint32_t region) {
    Event event;
    event.kind = EventKind::region_fenced;
    event.region = region;
    events_.give(event);
}

std::size_t VerbsEndpoint::post(std::span<const RmaItem> items) noexcept {
    std::size_t accepted = 0;
    PeerEntry* last = nullptr;
    for (const RmaItem& item : items) {
        TransferTable::Entry* taken = transfers_.take();
        if (!taken) break;
        Transfer& transfer = taken->value;
        transfer.item = item;
        ++accepted;
        PeerEntry* entry = find_up(item.peer);
        if (!entry) {
            finish(transfer, Code::unavailable, "the peer is gone");
            continue;
        }
        if (item.local.empty() || item.local.size() > limits_.rma_bytes_max) {
            finish(transfer, Code::invalid_argument,
                   "a transfer has 1 to " + std::to_string(limits_.rma_bytes_max) + " bytes");
            continue;
        }
        entry->value.waiting.push_back(transfer);
        PeerEntry* before = std::exchange(last, entry);
        if (before && before != entry) serve_waiting(*before);
    }
    if (last) serve_waiting(*last);
    return accepted;
}

static std::uint32_t under_way(const Asking& asking) {
    return asking.lane->value.posted - asking.lane->value.completed;
}

// What the lanes have room for, spread over them; and asks for those that are missing.
void VerbsEndpoint::serve_waiting(PeerEntry& entry) {
    Peer& peer = entry.value;
    std::array<TransferQueue, lanes_most> fresh;
    std::array<std::uint32_t, lanes_most> counts{};
    while (!peer.waiting.empty()) {
        Asking* freest = freest_lane(peer, counts);
        if (!freest) break;
        Transfer& transfer = *peer.waiting.pop_front();
        if (!bring_memory(transfer)) continue;
        const auto which = static_cast<std::size_t>(freest - peer.asking.data());
        fresh[which].push_back(transfer);
        ++counts[which];
    }
    for (std::size_t which = 0; which < lanes_most; ++which) {
        if (!fresh[which].empty()) post_transfers(entry, peer.asking[which], fresh[which]);
    }
    if (!peer.waiting.empty() && !peer.asking[0].lane) ask_for_lane(entry, 0);
    for (std::uint32_t which = 1; which < lanes_per_peer_; ++which) {
        const Asking& before = peer.asking[which - 1];
        if (before.up && under_way(before) >= transfers_of_a_busy_lane) ask_for_lane(entry, which);
    }
}

// Of those that are up and have room, the one with the least to do. nullptr: none.
Asking* VerbsEndpoint::freest_lane(Peer& peer, std::span<const std::uint32_t> loads) {
    Asking* freest = nullptr;
    std::uint32_t least = transfers_per_lane;
    for (std::size_t which = 0; which < lanes_most; ++which) {
        Asking& asking = peer.asking[which];
        if (!asking.up) continue;
        const std::uint32_t load = under_way(asking) + loads[which];
        if (load >= least) continue;
        least = load;
        freest = &asking;
    }
    return freest;
}

// Lets the card know `item.local`. False: it can't, and the transfer has ended.
bool VerbsEndpoint::bring_memory(Transfer& transfer) {
    const RmaItem& item = transfer.item;
    transfer.kept = cache_->take(item.local);
    if (transfer.kept) return true;
    auto memory =
        card_->register_memory(item.local, item.kind == RmaKind::get ? IBV_ACCESS_LOCAL_WRITE : 0);
    if (!memory) {
        finish(transfer, memory.status().code(), std::string(memory.status().text()));
        return false;
    }
    transfer.memory = *std::move(memory);
    return true;
}

void VerbsEndpoint::drop_memory(Transfer& transfer) {
    transfer.memory.reset();
    if (Registration* kept = std::exchange(transfer.kept, nullptr)) cache_->give_back(*kept);
}

// As one list. Requires: the lane has room for them.
void VerbsEndpoint::post_transfers(PeerEntry& entry, Asking& asking, TransferQueue& transfers) {
    Lane& lane = asking.lane->value;
    ibv_send_wr requests[transfers_per_lane];
    ibv_sge pieces[transfers_per_lane];
    std::size_t count = 0;
    while (Transfer* transfer = transfers.pop_front()) {
        const RmaItem& item = transfer->item;
        transfer->sequence = ++lane.posted;
        asking.under_way.push_back(*transfer);
        const ibv_mr& memory = transfer->kept ? *transfer->kept->region : *transfer->memory;
        pieces[count] = {reinterpret_cast<std::uintptr_t>(item.local.data()),
                         static_cast<std::uint32_t>(item.local.size()), memory.lkey};
        ibv_send_wr& request = requests[count];
        request = {};
        request.wr_id = number_of(Work::transfer, asking.lane->id(), transfer->sequence);
        request.sg_list = &pieces[count];
        request.num_sge = 1;
        request.opcode = item.kind == RmaKind::get ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
        request.send_flags = IBV_SEND_SIGNALED;
        request.wr.rdma.remote_addr = item.fabric.address + item.offset;
        request.wr.rdma.rkey = static_cast<std::uint32_t>(item.fabric.key);
        ++count;
    }
    card_->ledger.transfers += count;
    lane.unlink();
    asking_lanes_.push_back(lane);  // It is the last one used.
    if (const int error = card_->post_sends(*lane.pair, {requests, count})) {
        break_off(entry, "the card refused a transfer: " + describe(error));
    }
}

// All up to `sequence` are done.
void VerbsEndpoint::on_transferred(LaneEntry& entry, std::uint32_t sequence) {
    Lane& lane = entry.value;
    lane.completed = sequence;
    PeerEntry* owner = peers_.find(lane.peer);
    if (!owner) return;
    Peer& peer = owner->value;
    TransferQueue& under_way = peer.asking[lane.which].under_way;
    while (Transfer* transfer = under_way.front()) {
        if (static_cast<std::int32_t>(transfer->sequence - sequence) > 0) break;
        transfer->unlink();
        finish(*transfer, Code::ok, {});
    }
    if (!peer.waiting.empty()) serve_waiting(*owner);
}

// The first one that fails tells why; what was posted behind it goes over another lane.
void VerbsEndpoint::on_transfer_error(LaneEntry& entry, const ibv_wc& completion) {
    const std::uint32_t which = entry.value.which;
    PeerEntry* owner = peers_.find(entry.value.peer);
    if (!owner || owner->value.asking[which].lane != &entry) return;
    TransferQueue& under_way = owner->value.asking[which].under_way;
    const std::uint32_t sequence = sequence_of(completion.wr_id, entry.value);
    while (Transfer* transfer = under_way.front()) {
        if (static_cast<std::int32_t>(transfer->sequence - sequence) >= 0) break;
        transfer->unlink();
        finish(*transfer, Code::ok, {});
    }
    const bool is_refused = completion.status == IBV_WC_REM_ACCESS_ERR ||
                            completion.status == IBV_WC_REM_INV_REQ_ERR ||
                            completion.status == IBV_WC_REM_OP_ERR;
    if (!is_refused) {
        return bring_down(*owner, Code::unavailable,
                          "the connection broke: " + describe_status(completion.status));
    }
    Transfer* culprit = under_way.pop_front();
    drop_asking(*owner, which);
    if (culprit) {
        finish(*culprit, Code::permission_denied,
               "the owner's card refused it: " + describe_status(completion.status));
    }
    serve_waiting(*owner);
}

// The one place where a transfer ends: the card no longer knows `item.local`, or has no business
// with it any more.
void VerbsEndpoint::finish(Transfer& transfer, Code code, std::string why) {
    WEFT_DCHECK(!transfer.is_linked());
    drop_memory(transfer);
    Event event;
    event.kind = EventKind::rma_done;
    event.peer = transfer.item.peer;
    event.cookie = transfer.item.cookie;
    event.region = transfer.item.region;
    event.code = code;
    transfers_.give_back(TransferTable::entry_of(transfer));
    if (code == Code::ok) {
        events_.give(event);
    } else {
        events_.give(event, std::move(why));
    }
}

// The peer goes: its lanes first, so that the card lets go of their memory.
void VerbsEndpoint::end_transfers(PeerEntry& entry, Code code, const std::string& why) {
    for (std::uint32_t which = 0; which < lanes_most; ++which) drop_asking(entry, which);
    fail_waiting(entry, code, why);
}

}  // namespace weft::na::verbs
