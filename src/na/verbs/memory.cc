// Memory that peers may touch, and transfers from and to theirs.
#include <algorithm>

#include "base/log.h"
#include "na/verbs/endpoint.h"

namespace weft::na::verbs {

static int access_flags(Access access) {
    return (allows(access, Access::read) ? IBV_ACCESS_REMOTE_READ : 0) |
           (allows(access, Access::write) ? IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE : 0);
}

// A registration of its own: exactly this range and these rights, and its end is the fence.
Result<FabricKey> VerbsEndpoint::expose(const Exposure& exposure) {
    if (exposure.region >= regions_max || exposure.memory.empty() ||
        exposure.access == Access::none) {
        return fail(Code::invalid_argument, "can't expose nothing, nor to nobody");
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
    const auto start = [this](PeerEntry* entry) {
        if (!entry) return;
        if (entry->value.asking_up) {
            start_transfers(*entry);
        } else if (!entry->value.asking) {
            ask_for_lane(*entry);
        }
    };
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
        if (last != entry) start(std::exchange(last, entry));
    }
    start(last);
    return accepted;
}

// What the lane has room for, as one list.
void VerbsEndpoint::start_transfers(PeerEntry& entry) {
    Peer& peer = entry.value;
    Lane& lane = peer.asking->value;
    while (!peer.waiting.empty()) {
        ibv_send_wr requests[transfers_per_peer];
        ibv_sge pieces[transfers_per_peer];
        std::size_t count = 0;
        while (count < transfers_per_peer &&
               lane.posted - lane.completed < transfer_depth_of_lane) {
            Transfer* transfer = peer.waiting.pop_front();
            if (!transfer) break;
            const RmaItem& item = transfer->item;
            const bool is_get = item.kind == RmaKind::get;
            auto memory = card_->register_memory(item.local, is_get ? IBV_ACCESS_LOCAL_WRITE : 0);
            if (!memory) {
                finish(*transfer, memory.status().code(), std::string(memory.status().text()));
                continue;
            }
            transfer->memory = *std::move(memory);
            transfer->sequence = ++lane.posted;
            peer.under_way.push_back(*transfer);
            pieces[count] = {reinterpret_cast<std::uintptr_t>(item.local.data()),
                             static_cast<std::uint32_t>(item.local.size()), transfer->memory->lkey};
            ibv_send_wr& request = requests[count];
            request = {};
            request.wr_id = number_of(Work::transfer, peer.asking->id(), transfer->sequence);
            request.sg_list = &pieces[count];
            request.num_sge = 1;
            request.opcode = is_get ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
            request.send_flags = IBV_SEND_SIGNALED;
            request.wr.rdma.remote_addr = item.fabric.address + item.offset;
            request.wr.rdma.rkey = static_cast<std::uint32_t>(item.fabric.key);
            if (count != 0) requests[count - 1].next = &request;
            ++count;
        }
        if (count == 0) return;
        Ledger& ledger = card_->ledger;
        ++ledger.doorbells;
        ledger.work_requests += count;
        ledger.signalled += count;
        ledger.transfers += count;
        ibv_send_wr* refused = nullptr;
        if (const int error = ::ibv_post_send(lane.pair.get(), requests, &refused)) {
            return break_off(entry, "the card refused a transfer: " + describe(error));
        }
    }
}

// All up to `sequence` are done.
void VerbsEndpoint::on_transferred(LaneEntry& entry, std::uint32_t sequence) {
    Lane& lane = entry.value;
    lane.completed = sequence;
    PeerEntry* owner = peers_.find(lane.peer);
    if (!owner) return;
    Peer& peer = owner->value;
    while (Transfer* transfer = peer.under_way.front()) {
        if (static_cast<std::int32_t>(transfer->sequence - sequence) > 0) break;
        transfer->unlink();
        finish(*transfer, Code::ok, {});
    }
    if (!peer.waiting.empty() && peer.asking_up) start_transfers(*owner);
}

// The first one that fails tells why; what was posted behind it goes over another lane.
void VerbsEndpoint::on_transfer_error(LaneEntry& entry, const ibv_wc& completion) {
    PeerEntry* owner = peers_.find(entry.value.peer);
    if (!owner || owner->value.asking != &entry) return;
    Peer& peer = owner->value;
    const std::uint32_t sequence = sequence_of(completion.wr_id, entry.value);
    while (Transfer* transfer = peer.under_way.front()) {
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
    Transfer* culprit = peer.under_way.pop_front();
    drop_asking(*owner);
    if (culprit) {
        finish(*culprit, Code::permission_denied,
               "the owner's card refused it: " + describe_status(completion.status));
    }
    ask_for_lane(*owner);
}

// The one place where a transfer ends: the card no longer knows `item.local`.
void VerbsEndpoint::finish(Transfer& transfer, Code code, std::string why) {
    WEFT_DCHECK(!transfer.is_linked());
    transfer.memory.reset();
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

// The peer goes: its lane first, so that the card lets go of their memory.
void VerbsEndpoint::end_transfers(PeerEntry& entry, Code code, const std::string& why) {
    drop_asking(entry);
    fail_waiting(entry, code, why);
}

}  // namespace weft::na::verbs
