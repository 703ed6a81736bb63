// Exposed regions, their fences and our transfers.
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
                    "sm can't expose private memory here, as process_vm_readv is refused: use a "
                    "weft::Buffer from Runtime::allocate()");
    }
    if (std::find(fencing_.begin(), fencing_.end(), exposure.region) != fencing_.end()) {
        return fail(Code::resource_exhausted, "region " + std::to_string(exposure.region) +
                                                  " is being fenced and can't be used yet");
    }
    if (Status status = table_.expose(exposure, offset); !status.ok()) return status;
    regions_used_ = std::max(regions_used_, exposure.region + 1);
    return FabricKey{offset.value_or(0), exposure.key};
}

void SmEndpoint::fence(std::uint32_t region, Holders) {
    table_.revoke(region);
    if (std::find(fencing_.begin(), fencing_.end(), region) == fencing_.end()) {
        fencing_.push_back(region);
        attend();
    }
}

std::size_t SmEndpoint::give_fenced(std::span<Event> events) noexcept {
    std::size_t count = 0;
    for (std::size_t i = 0; i < fencing_.size() && count < events.size();) {
        if (is_accessed(fencing_[i])) {
            ++i;
            continue;
        }
        Event& event = events[count++];
        event = Event{};
        event.kind = EventKind::region_fenced;
        event.region = fencing_[i];
        fencing_.erase(fencing_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return count;
}

bool SmEndpoint::is_accessed(std::uint32_t region) const noexcept {
    const auto accesses = [region](const std::unique_ptr<Connection>& connection) {
        return connection && connection->accesses(region);
    };
    return std::any_of(slots_.begin(), slots_.end(),
                       [&](const Slot& slot) { return accesses(slot.connection); }) ||
           std::any_of(retired_.begin(), retired_.end(), accesses);
}

std::size_t SmEndpoint::copy_bytes_per_turn() const {
    return now_ - talked_at_ < busy_for ? slice_bytes_busy : slice_bytes_max;
}

std::size_t SmEndpoint::post(std::span<const RmaItem> items) noexcept {
    std::size_t accepted = 0;
    if (transfers_.is_idle()) copy_budget_ = copy_bytes_per_turn();
    attend();
    for (const RmaItem& item : items) {
        if (!transfers_.has_room()) break;
        ++accepted;
        Connection* connection = find(item.peer);
        if (!connection || connection->phase != Phase::up) {
            transfers_.post(item, nullptr, Code::unavailable, "the peer is not up");
        } else if (item.local.empty() || item.local.size() > rma_bytes_max) {
            transfers_.post(item, nullptr, Code::invalid_argument,
                            item.local.empty() ? "0 bytes" : "larger than rma_bytes_max");
        } else {
            transfers_.post(item, connection, Code::ok, nullptr);
        }
    }
    copy_budget_ = transfers_.advance(copy_budget_);
    return accepted;
}

// Copies for a while and hands out what is complete, up to and including the first that error()
// explains.
std::size_t SmEndpoint::give_transfers(std::span<Event> events) noexcept {
    copy_budget_ = transfers_.advance(copy_budget_);
    std::size_t count = 0;
    while (count < events.size()) {
        const Transfers::Transfer* transfer = transfers_.take();
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
