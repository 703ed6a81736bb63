// Exposed regions, their fences, and the transfers of this side.
#include "na/sm/endpoint.h"

#include <algorithm>

#include "na/arena.h"

namespace weft::na::sm {

Caps SmEndpoint::caps() const {
    Caps caps;
    caps.rma = true;
    caps.rma_private = PeerMemory::is_allowed();
    caps.rma_checked = true;
    caps.rma_survives = true;
    caps.wait_fd = true;
    caps.reports_peer_death = true;
    caps.fences_region = true;
    caps.sent_survives = true;
    return caps;
}

Result<FabricKey> SmEndpoint::expose(const Exposure& exposure) {
    const std::optional<std::uint64_t> offset = parts_.arena.offset_of(exposure.memory);
    if (!offset && !PeerMemory::is_allowed()) {
        return fail(Code::unimplemented,
                    "sm can't expose private memory here, as the kernel lacks pidfd_open (before "
                    "Linux 5.3) or process_vm_readv is refused (seccomp, a container): use a "
                    "weft::Buffer from Runtime::allocate()");
    }
    if (exposure.region < regions_max && is_fencing_[exposure.region]) {
        return fail(Code::resource_exhausted, "region " + std::to_string(exposure.region) +
                                                  " is being fenced and can't be used yet");
    }
    if (Status status = table_.expose(exposure, offset); !status.ok()) return status;
    regions_used_ = std::max(regions_used_, exposure.region + 1);
    return FabricKey{offset.value_or(0), exposure.key};
}

void SmEndpoint::fence(std::uint32_t region, Holders) {
    WEFT_DCHECK(region < regions_max);
    table_.revoke(region);
    if (is_fencing_[region]) return;
    is_fencing_.set(region);
    fencing_.push_back(region);
    request_full_poll();
}

std::size_t SmEndpoint::emit_fenced(std::span<Event> events) noexcept {
    if (fencing_.empty()) return 0;
    const Regions accessed = accessed_regions();
    std::size_t count = 0, kept = 0;
    for (const std::uint32_t region : fencing_) {
        if (accessed[region] || count == events.size()) {
            fencing_[kept++] = region;
            continue;
        }
        is_fencing_.reset(region);
        Event& event = events[count++];
        event = Event{};
        event.kind = EventKind::region_fenced;
        event.region = region;
    }
    fencing_.resize(kept);
    return count;
}

// One walk over the connections, however many regions are being fenced.
SmEndpoint::Regions SmEndpoint::accessed_regions() const noexcept {
    Regions accessed;
    const auto collect = [&accessed](const std::unique_ptr<Connection>& connection) {
        const std::uint32_t word = connection ? connection->accessing() : no_region;
        if (word != no_region && word <= regions_max) accessed.set(word - 1);
    };
    for (const Slot& slot : slots_) collect(slot.connection);
    std::ranges::for_each(retired_, collect);
    return accessed;
}

std::size_t SmEndpoint::copy_bytes_per_turn() const {
    return now_ - last_message_at_ < busy_for ? slice_bytes_busy : slice_bytes_max;
}

std::size_t SmEndpoint::post(std::span<const RmaItem> items) noexcept {
    std::size_t accepted = 0;
    if (rma_queue_.is_idle()) copy_budget_ = copy_bytes_per_turn();
    request_full_poll();
    for (const RmaItem& item : items) {
        if (!rma_queue_.has_room()) break;
        ++accepted;
        Connection* connection = find(item.peer);
        if (!connection || connection->phase != PeerPhase::up) {
            rma_queue_.post(item, nullptr, Code::unavailable, "the peer is not up");
        } else if (item.local.empty() || item.local.size() > rma_bytes_max) {
            rma_queue_.post(item, nullptr, Code::invalid_argument,
                            item.local.empty() ? "a transfer of 0 bytes"
                                               : "a transfer larger than rma_bytes_max");
        } else {
            rma_queue_.post(item, connection, Code::ok, nullptr);
        }
    }
    copy_budget_ = rma_queue_.advance(copy_budget_);
    return accepted;
}

// Copies within the budget and emits completed transfers, up to and including the first that
// error() explains.
std::size_t SmEndpoint::emit_rma_done(std::span<Event> events) noexcept {
    copy_budget_ = rma_queue_.advance(copy_budget_);
    std::size_t count = 0;
    while (count < events.size()) {
        const RmaQueue::RmaOperation* transfer = rma_queue_.take();
        if (!transfer) break;
        const RmaItem& item = transfer->item;
        Event& event = events[count++];
        event = Event{};
        event.kind = EventKind::rma_done;
        event.code = transfer->code;
        event.peer = item.peer;
        event.cookie = item.cookie;
        if (transfer->code == Code::ok) continue;
        error_ = std::string(item.kind == RmaKind::get ? "get from" : "put to");
        error_ += " region " + std::to_string(item.region);
        if (const Connection* peer = transfer->connection) error_ += " of " + peer->info.uri;
        error_ += std::string(": ") + transfer->why;
        break;
    }
    return count;
}

}  // namespace weft::na::sm
