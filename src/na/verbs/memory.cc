// Memory that is exposed to peers, and transfers from and to peers' memory.
#include <algorithm>
#include <array>
#include <utility>

#include "base/log.h"
#include "na/common/exposure.h"
#include "na/verbs/endpoint.h"

namespace weft::na::verbs {

static constexpr std::uint32_t busy_queue_pair_transfers = 4;

// The key is the same at all endpoints that expose the region at this device.
Result<FabricKey> VerbsEndpoint::expose(const Exposure& exposure) {
    if (Status status = validate_exposure(exposure); !status.ok()) return status;
    if (regions_.size() <= exposure.region) regions_.resize(exposure.region + 1);
    SharedDevice::Region*& region = regions_[exposure.region];
    if (region) return already_exposed(exposure.region);
    const Result<SharedDevice::Region*> exposed = device_->expose(exposure);
    if (!exposed) return exposed.status();
    region = *exposed;
    return FabricKey{reinterpret_cast<std::uintptr_t>(exposure.memory.data()),
                     region->memory->rkey};
}

// The queue pairs of lost peers have been destroyed already. The last endpoint that fences the
// region ends the registration; if it can't be ended, the memory is never released.
void VerbsEndpoint::fence(std::uint32_t region, Holders) {
    if (region < regions_.size() && regions_[region]) {
        if (const int error = device_->end_region(*regions_[region])) {
            parts_.log.error("verbs: the device can't deregister region " + std::to_string(region) +
                             ": " + describe(error) + "; the region is never fenced");
            return;
        }
        regions_[region] = nullptr;
    }
    events_.push(fenced_event(region));
}

std::size_t VerbsEndpoint::post(std::span<const RmaItem> items) noexcept {
    std::size_t accepted = 0;
    Connection* last = nullptr;
    for (const RmaItem& item : items) {
        RmaTable::Entry* taken = transfers_.take();
        if (!taken) break;
        RmaOperation& transfer = taken->value;
        transfer.item = item;
        ++accepted;
        Connection* peer = peers_.find_up(item.peer);
        if (!peer) {
            finish(transfer, Code::unavailable, "the peer is not connected");
            continue;
        }
        if (item.local.empty() || item.local.size() > limits_.rma_bytes_max) {
            finish(transfer, Code::invalid_argument,
                   "a transfer has 1 to " + std::to_string(limits_.rma_bytes_max) + " bytes");
            continue;
        }
        peer->waiting.push_back(transfer);
        Connection* before = std::exchange(last, peer);
        if (before && before != peer) serve_waiting(*before);
    }
    if (last) serve_waiting(*last);
    return accepted;
}

static std::uint32_t under_way(const InitiatorQueuePair& initiator) {
    return initiator.queue_pair->value.posted - initiator.queue_pair->value.completed;
}

// Spreads the transfers over the queue pairs that have room, and requests missing queue pairs.
void VerbsEndpoint::serve_waiting(Connection& peer) {
    std::array<RmaList, queue_pairs_max> fresh;
    std::array<std::uint32_t, queue_pairs_max> counts{};
    while (!peer.waiting.empty()) {
        InitiatorQueuePair* least_loaded = least_loaded_queue_pair(peer, counts);
        if (!least_loaded) break;
        RmaOperation& transfer = *peer.waiting.pop_front();
        if (!register_local(transfer)) continue;
        const auto which = static_cast<std::size_t>(least_loaded - peer.initiators.data());
        fresh[which].push_back(transfer);
        ++counts[which];
    }
    for (std::size_t which = 0; which < queue_pairs_max; ++which) {
        if (!fresh[which].empty()) post_transfers(peer, peer.initiators[which], fresh[which]);
    }
    if (!peer.waiting.empty() && !peer.initiators[0].queue_pair) request_queue_pair(peer, 0);
    for (std::uint32_t which = 1; which < queue_pairs_per_peer(); ++which) {
        const InitiatorQueuePair& before = peer.initiators[which - 1];
        if (before.up && under_way(before) >= busy_queue_pair_transfers)
            request_queue_pair(peer, which);
    }
}

// The least loaded queue pair that is up and has room. nullptr: none.
InitiatorQueuePair* VerbsEndpoint::least_loaded_queue_pair(Connection& peer,
                                                           std::span<const std::uint32_t> loads) {
    InitiatorQueuePair* least_loaded = nullptr;
    std::uint32_t least = transfers_per_queue_pair;
    for (std::size_t which = 0; which < queue_pairs_max; ++which) {
        InitiatorQueuePair& initiator = peer.initiators[which];
        if (!initiator.up) continue;
        const std::uint32_t load = under_way(initiator) + loads[which];
        if (load >= least) continue;
        least = load;
        least_loaded = &initiator;
    }
    return least_loaded;
}

// Makes `item.local` accessible to the device. False: that failed, and the transfer has ended.
bool VerbsEndpoint::register_local(RmaOperation& transfer) {
    const RmaItem& item = transfer.item;
    transfer.cached = cache_->take(item.local);
    if (transfer.cached) return true;
    auto memory = device_->register_memory(item.local,
                                           item.kind == RmaKind::get ? IBV_ACCESS_LOCAL_WRITE : 0);
    if (!memory) {
        finish(transfer, memory.status().code(), std::string(memory.status().text()));
        return false;
    }
    transfer.memory = *std::move(memory);
    return true;
}

void VerbsEndpoint::release_local(RmaOperation& transfer) {
    transfer.memory.reset();
    if (Registration* cached = std::exchange(transfer.cached, nullptr)) cache_->give_back(*cached);
}

// Posts the transfers as one list. Requires: the queue pair has room for them.
void VerbsEndpoint::post_transfers(Connection& peer, InitiatorQueuePair& initiator,
                                   RmaList& transfers) {
    WEFT_ASSERT(initiator.up && initiator.queue_pair);
    QueuePair& queue_pair = initiator.queue_pair->value;
    ibv_send_wr requests[transfers_per_queue_pair];
    ibv_sge pieces[transfers_per_queue_pair];
    std::size_t count = 0;
    while (RmaOperation* transfer = transfers.pop_front()) {
        const RmaItem& item = transfer->item;
        WEFT_ASSERT(count < transfers_per_queue_pair);
        transfer->sequence = ++queue_pair.posted;
        initiator.under_way.push_back(*transfer);
        const ibv_mr& memory = transfer->cached ? *transfer->cached->region : *transfer->memory;
        pieces[count] = {reinterpret_cast<std::uintptr_t>(item.local.data()),
                         static_cast<std::uint32_t>(item.local.size()), memory.lkey};
        ibv_send_wr& request = requests[count];
        request = {};
        request.wr_id = number_of(Work::transfer, initiator.queue_pair->id(), transfer->sequence);
        request.sg_list = &pieces[count];
        request.num_sge = 1;
        request.opcode = item.kind == RmaKind::get ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
        request.send_flags = IBV_SEND_SIGNALED;
        request.wr.rdma.remote_addr = item.fabric.address + item.offset;
        request.wr.rdma.rkey = static_cast<std::uint32_t>(item.fabric.key);
        ++count;
    }
    device_->counters.transfers += count;
    queue_pair.unlink();
    queue_pairs_.initiators.push_back(queue_pair);  // Now the last one used.
    if (const int error = device_->post_sends(*queue_pair.qp, {requests, count})) {
        take_down_later(peer, "the device refused a transfer: " + describe(error));
    }
}

// All transfers up to `sequence` have completed.
void VerbsEndpoint::on_transferred(QueuePairEntry& entry, std::uint32_t sequence) {
    QueuePair& queue_pair = entry.value;
    queue_pair.completed = sequence;
    Connection* owner = peers_.find(queue_pair.peer);
    if (!owner) return;
    RmaList& under_way = owner->initiators[queue_pair.which].under_way;
    while (RmaOperation* transfer = under_way.front()) {
        if (static_cast<std::int32_t>(transfer->sequence - sequence) > 0) break;
        transfer->unlink();
        finish(*transfer, Code::ok, {});
    }
    if (!owner->waiting.empty()) serve_waiting(*owner);
}

// The first transfer that fails has the reason; later ones are posted on another queue pair.
void VerbsEndpoint::on_transfer_error(QueuePairEntry& entry, const ibv_wc& completion) {
    const std::uint32_t which = entry.value.which;
    Connection* owner = peers_.find(entry.value.peer);
    if (!owner || owner->initiators[which].queue_pair != &entry) return;
    RmaList& under_way = owner->initiators[which].under_way;
    const std::uint32_t sequence = sequence_of(completion.wr_id, entry.value);
    while (RmaOperation* transfer = under_way.front()) {
        if (static_cast<std::int32_t>(transfer->sequence - sequence) >= 0) break;
        transfer->unlink();
        finish(*transfer, Code::ok, {});
    }
    const bool is_refused = completion.status == IBV_WC_REM_ACCESS_ERR ||
                            completion.status == IBV_WC_REM_INV_REQ_ERR ||
                            completion.status == IBV_WC_REM_OP_ERR;
    if (!is_refused) {
        return take_down(*owner, Code::unavailable,
                         "the connection broke: " + describe_status(completion.status));
    }
    RmaOperation* culprit = under_way.pop_front();
    drop_initiator(*owner, which);
    if (culprit) {
        finish(*culprit, Code::permission_denied,
               "the owner's device refused the access: " + describe_status(completion.status));
    }
    serve_waiting(*owner);
}

// The only place where a transfer ends: the device no longer holds `item.local`, or no longer
// accesses it.
void VerbsEndpoint::finish(RmaOperation& transfer, Code code, std::string why) {
    WEFT_DCHECK(!transfer.is_linked());
    release_local(transfer);
    events_.push_done(transfer.item, code, std::move(why));
    transfers_.release(RmaTable::entry_of(transfer));
}

// The peer goes down. Its queue pairs are destroyed first, so that the device releases their
// memory.
void VerbsEndpoint::end_transfers(Connection& peer, Code code, const std::string& why) {
    for (std::uint32_t which = 0; which < queue_pairs_max; ++which) drop_initiator(peer, which);
    fail_waiting(peer, code, why);
}

}  // namespace weft::na::verbs
