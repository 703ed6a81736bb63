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
    caps.steers = true;
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
    if (exposure.region < regions_max && fences_.set[exposure.region]) {
        return fail(Code::resource_exhausted, "region " + std::to_string(exposure.region) +
                                                  " is being fenced and can't be used yet");
    }
    if (Status status = table_.expose(exposure, offset); !status.ok()) return status;
    note_used(exposure.region);
    return FabricKey{offset.value_or(0), exposure.key};
}

void SmEndpoint::note_used(std::uint32_t region) {
    std::uint32_t used = fences_.regions_used.load(std::memory_order_relaxed);
    while (used <= region && !fences_.regions_used.compare_exchange_weak(
                                 used, region + 1, std::memory_order_relaxed)) {
    }
}

// A region of another context; memory that peers can't access here is refused at each access.
void SmEndpoint::publish(const Exposure& exposure) {
    const std::optional<std::uint64_t> offset = parts_.arena.offset_of(exposure.memory);
    if (!offset && !PeerMemory::is_allowed()) return;
    (void)table_.expose(exposure, offset);
    note_used(exposure.region);
}

void SmEndpoint::fence(std::uint32_t region, Holders) {
    WEFT_DCHECK(region < regions_max);
    table_.revoke(region);
    if (fences_.set[region]) return;
    fences_.set.set(region);
    fences_.order.push_back(region);
    request_full_poll();
}

std::size_t SmEndpoint::emit_fenced(std::span<Event> events) noexcept {
    if (fences_.order.empty()) return 0;
    const Regions accessed = accessed_regions();
    std::size_t count = 0, kept = 0;
    for (const std::uint32_t region : fences_.order) {
        if (accessed[region] || count == events.size()) {
            fences_.order[kept++] = region;
            continue;
        }
        fences_.set.reset(region);
        events[count++] = fenced_event(region);
    }
    fences_.order.resize(kept);
    return count;
}

// One walk over the connections, however many regions are being fenced.
SmEndpoint::Regions SmEndpoint::accessed_regions() const noexcept {
    Regions accessed;
    const auto collect = [&accessed](const Connection& connection) {
        const std::uint32_t word = connection.accessing();
        if (word != no_region && word <= regions_max) accessed.set(word - 1);
    };
    peers_.for_each(collect);
    for (const auto& connection : retired_) collect(*connection);
    return accessed;
}

std::size_t SmEndpoint::copy_bytes_per_turn() const {
    return control_.now - transfers_.last_message_at < busy_for ? slice_bytes_busy
                                                                : slice_bytes_max;
}

std::size_t SmEndpoint::post(std::span<const RmaItem> items) noexcept {
    std::size_t accepted = 0;
    if (transfers_.queue.is_idle()) transfers_.budget = copy_bytes_per_turn();
    request_full_poll();
    for (const RmaItem& item : items) {
        if (!transfers_.queue.has_room()) break;
        ++accepted;
        Connection* connection = peers_.find_up(item.peer);
        if (!connection) {
            transfers_.queue.post(item, nullptr, Code::unavailable, "the peer is not up");
        } else if (item.local.empty() || item.local.size() > rma_bytes_max) {
            transfers_.queue.post(item, nullptr, Code::invalid_argument,
                                  item.local.empty() ? "a transfer of 0 bytes"
                                                     : "a transfer larger than rma_bytes_max");
        } else {
            transfers_.queue.post(item, connection, Code::ok, nullptr);
        }
    }
    transfers_.budget = transfers_.queue.advance(transfers_.budget);
    return accepted;
}

// Copies within the budget and emits completed transfers, up to and including the first that
// error() explains.
std::size_t SmEndpoint::emit_rma_done(std::span<Event> events) noexcept {
    transfers_.budget = transfers_.queue.advance(transfers_.budget);
    std::size_t count = 0;
    while (count < events.size()) {
        const RmaQueue::RmaOperation* transfer = transfers_.queue.take();
        if (!transfer) break;
        const RmaItem& item = transfer->item;
        events[count++] = done_event(item, transfer->code);
        if (transfer->code == Code::ok) continue;
        const Connection* peer = transfer->connection;
        events_.error = transfer_text(item, peer ? &peer->info : nullptr, transfer->why);
        break;
    }
    return count;
}

}  // namespace weft::na::sm
