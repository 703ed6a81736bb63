// Put and get of a simulated node. A put's pieces leave the initiator, a get's the owner. They
// travel like packets, and each is checked where and when it lands. A transfer lives at its
// initiator and an access at the owner: a packet that arrives after the end of either is ignored.
#include <algorithm>
#include <cstring>

#include "base/codec.h"
#include "na/sim/endpoint.h"

namespace weft::na::sim {

// ---- the initiator -----------------------------------------------------------------------------

std::size_t SimEndpoint::post(std::span<const RmaItem> items) noexcept {
    if (!self_.node) return 0;
    std::size_t accepted = 0;
    for (const RmaItem& item : items) {
        RmaTable::Entry* entry = transfers_.take();
        if (!entry) break;
        ++accepted;
        entry->value = RmaOperation{item, 0};
        if (!network_.options().rma_checked) {
            entry->value.item.region = static_cast<std::uint32_t>(item.fabric.address);
            entry->value.item.key = item.fabric.key;
        }
        const Connection* connection = peers_.find_up(item.peer);
        if (!connection) {
            finish(*entry, Code::unavailable, "the peer is not connected");
        } else if (item.local.empty() || item.local.size() > limits_.rma_bytes_max) {
            finish(*entry, Code::invalid_argument, "a transfer of 0 bytes or over rma_bytes_max");
        } else {
            send_piece(*entry);
        }
    }
    return accepted;
}

// Sends the next piece of a put, or the request for all of a get. Requires: the peer is up.
void SimEndpoint::send_piece(RmaTable::Entry& entry) {
    RmaOperation& transfer = entry.value;
    const RmaItem& item = transfer.item;
    Connection& connection = *peers_.find(item.peer);
    const bool is_put = item.kind == RmaKind::put;
    WEFT_ASSERT(entry.is_taken() && transfer.bytes_done <= item.local.size());
    const std::size_t left = is_put ? item.local.size() - transfer.bytes_done : 0;
    const std::size_t bytes = std::min(World::piece_bytes_max, left);
    Payload payload = Payload::make(sizeof(RmaHead) + bytes);
    const Bytes body(payload.bytes.get() + sizeof(RmaHead), bytes);
    if (bytes > 0 && !read_memory(arena_, item.local.subspan(transfer.bytes_done, bytes), body)) {
        if (transfer.bytes_done == 0) {
            return finish(entry, Code::failed_precondition, local_text_unreadable);
        }
        transfer.is_unreadable = true;  // Ends when the owner has replied.
        std::ranges::fill(body, std::byte{0});
    }
    Packet packet = packet_for(is_put ? Kind::rma_put : Kind::rma_request, item.peer, connection);
    packet.transfer = entry.id();
    packet.payload = std::move(payload);
    base::store(packet.payload.bytes.get(),
                RmaHead{item.region, item.generation, item.key, item.offset, item.local.size(),
                        transfer.bytes_done});
    transfer.bytes_done += bytes;
    send_ordered(connection, std::move(packet), Stream::bulk);
    if (bytes == left) return;
    Packet next;
    next.kind = Kind::rma_next;
    next.to = self_.node;
    next.to_peer = item.peer;
    next.transfer = entry.id();
    network_.send(network_.now() + network_.options().piece_time, std::move(next));
}

void SimEndpoint::on_rma_next(Packet& packet) {
    RmaTable::Entry* entry = transfers_.find(packet.transfer);
    if (entry) send_piece(*entry);  // Otherwise it ended, with its connection at the latest.
}

void SimEndpoint::on_rma_data(Packet& packet) {
    RmaTable::Entry* entry = transfers_.find(packet.transfer);
    if (!entry || entry->value.item.peer != packet.to_peer) return;
    RmaOperation& transfer = entry->value;
    const std::size_t bytes =
        std::min(packet.payload.size, transfer.item.local.size() - transfer.bytes_done);
    if (!write_memory(arena_, transfer.item.local.subspan(transfer.bytes_done, bytes),
                      {packet.payload.bytes.get(), bytes})) {
        return finish(*entry, Code::failed_precondition, local_text_unwritable);
    }
    transfer.bytes_done += bytes;
    if (transfer.bytes_done == transfer.item.local.size()) finish(*entry, Code::ok, {});
}

void SimEndpoint::on_rma_reply(Packet& packet) {
    RmaTable::Entry* entry = transfers_.find(packet.transfer);
    if (!entry || entry->value.item.peer != packet.to_peer) return;
    if (entry->value.is_unreadable) {
        return finish(*entry, Code::failed_precondition, local_text_unreadable);
    }
    finish(*entry, packet.code, packet.text);
}

void SimEndpoint::finish(RmaTable::Entry& entry, Code code, std::string_view why) {
    WEFT_ASSERT(entry.is_taken());
    const Event event = done_event(entry.value.item, code);
    transfers_.release(entry);
    push_event(event, std::string(why));
}

void SimEndpoint::finish_all(PeerId peer, Code code, std::string_view why) {
    transfers_.for_each([&](RmaTable::Entry& entry) {
        if (entry.value.item.peer == peer) finish(entry, code, why);
    });
}

// ---- the owner ---------------------------------------------------------------------------------

Result<FabricKey> SimEndpoint::expose(const Exposure& exposure) {
    if (exposure.region >= regions_max || regions_.table.contains(exposure.region)) {
        return fail(Code::invalid_argument,
                    "region " + std::to_string(exposure.region) + " cannot be exposed (again)");
    }
    if (self_.resource_faults->must_fail()) {
        return fail(Code::resource_exhausted,
                    "no memory to expose region " + std::to_string(exposure.region));
    }
    Region region;
    region.exposure = exposure;
    region.serial = ++regions_.serials;
    regions_.table.emplace(exposure.region, region);
    return FabricKey{exposure.region, exposure.key};
}

void SimEndpoint::fence(std::uint32_t region, Holders) {
    const auto found = regions_.table.find(region);
    const bool waits = network_.options().rma_checked && network_.flip();
    if (found == regions_.table.end() || found->second.accesses == 0 || !waits)
        return end_fence(region);
    // Admitted accesses may land for a while, as on a fabric that can't stop them at once.
    found->second.fencing = true;
    Packet over;
    over.kind = Kind::fence_over;
    over.to = self_.node;
    over.transfer = {region, static_cast<std::uint32_t>(found->second.serial)};
    network_.send(saturating_add(network_.now(), network_.options().fence_timeout),
                  std::move(over));
}

void SimEndpoint::on_fence_over(Packet& packet) {
    const auto found = regions_.table.find(packet.transfer.slot);
    if (found == regions_.table.end() || !found->second.fencing) return;
    if (static_cast<std::uint32_t>(found->second.serial) != packet.transfer.generation) return;
    end_fence(packet.transfer.slot);
}

// From here on no access lands in the region.
void SimEndpoint::end_fence(std::uint32_t region) {
    regions_.table.erase(region);
    push_event(fenced_event(region));
}

// Another context may have exposed it, and this one has not used it yet.
void SimEndpoint::adopt(const RmaHead& head) {
    if (!exposures_ || !network_.options().rma_checked || regions_.table.contains(head.region))
        return;
    const std::optional<Exposure> found =
        exposures_->adopt(head.region, head.generation, head.key, self_.context, network_.now());
    if (!found) return;
    Region region;
    region.exposure = *found;
    region.is_others = true;
    region.serial = ++regions_.serials;
    regions_.table.emplace(head.region, region);
}

// Any context may have revoked the region before this one fences it.
bool SimEndpoint::has_ended(const Region& region) const {
    if (!exposures_) return false;
    const Exposure& of = region.exposure;
    const TimePoint now = network_.now();
    return region.is_others
               ? !exposures_->adopt(of.region, of.generation, of.key, self_.context, now)
               : exposures_->has_ended(of.region, of.generation, now);
}

// Empty: the access is allowed.
std::string_view SimEndpoint::why_refused(RmaKind kind, const RmaHead& head) const {
    const auto found = regions_.table.find(head.region);
    if (found == regions_.table.end()) return "the owner has no such region";
    const Exposure& exposure = found->second.exposure;
    const bool checked = network_.options().rma_checked;
    if (checked && exposure.generation != head.generation) return "the reference is stale";
    if (exposure.key != head.key) return "the reference has a wrong key";
    if (found->second.fencing || (checked && has_ended(found->second)))
        return "the region was revoked";
    const Access wanted = kind == RmaKind::get ? Access::read : Access::write;
    if (!allows(exposure.access, wanted)) return "the region does not permit this access";
    const std::size_t size = exposure.memory.size();
    if (head.offset > size || head.bytes > size - head.offset)
        return "the range ends beyond the region";
    return {};
}

SimEndpoint::ActiveAccess* SimEndpoint::find_access(Connection& connection, RmaId transfer) {
    for (ActiveAccess& one : connection.accesses) {
        if (one.transfer == transfer) return &one;
    }
    return nullptr;
}

// nullptr: the access was refused.
SimEndpoint::ActiveAccess* SimEndpoint::start_access(Connection& connection, const Packet& packet,
                                                     RmaKind kind, const RmaHead& head) {
    adopt(head);
    if (const std::string_view why = why_refused(kind, head); !why.empty()) {
        answer(connection, packet, Code::permission_denied, why);
        return nullptr;
    }
    Region& region = regions_.table.find(head.region)->second;
    ++region.accesses;
    ActiveAccess access;
    access.transfer = packet.transfer;
    access.region = head.region;
    access.serial = region.serial;
    access.memory = region.exposure.memory.subspan(head.offset, head.bytes);
    connection.accesses.push_back(access);
    if (kind == RmaKind::get)
        network_.observe_read(self_.host, connection.host, region.exposure.memory);
    return &connection.accesses.back();
}

void SimEndpoint::on_rma_put(Packet& packet) {
    Connection* connection = peers_.find_up(packet.to_peer);
    if (ignores_rma_ || !connection) return;
    const auto head = base::load<RmaHead>(packet.payload.bytes.get());
    ActiveAccess* access = head.at == 0 ? start_access(*connection, packet, RmaKind::put, head)
                                        : find_access(*connection, packet.transfer);
    if (!access) return;  // Refused, now or with an earlier piece.
    if (is_revoked(*access)) return refuse_access(*connection, *access, packet);
    const std::size_t bytes = packet.payload.size - sizeof(RmaHead);
    const ByteView piece(packet.payload.bytes.get() + sizeof(RmaHead), bytes);
    if (!write_memory(arena_, access->memory.subspan(head.at, bytes), piece)) {
        answer(*connection, packet, Code::failed_precondition, memory_text_unwritable);
        return release(*connection, *access);
    }
    access->done += bytes;
    if (access->done != access->memory.size()) return;
    answer(*connection, packet, Code::ok, {});
    release(*connection, *access);
}

void SimEndpoint::on_rma_request(Packet& packet) {
    Connection* connection = peers_.find_up(packet.to_peer);
    if (ignores_rma_ || !connection) return;
    const auto head = base::load<RmaHead>(packet.payload.bytes.get());
    if (start_access(*connection, packet, RmaKind::get, head)) on_rma_more(packet);
}

void SimEndpoint::on_rma_more(Packet& packet) {
    Connection* connection = peers_.find(packet.to_peer);
    ActiveAccess* access = connection ? find_access(*connection, packet.transfer) : nullptr;
    if (ignores_rma_ || !access) return;
    if (is_revoked(*access)) return refuse_access(*connection, *access, packet);
    const std::size_t left = access->memory.size() - access->done;
    const std::size_t bytes = std::min(World::piece_bytes_max, left);
    Packet piece = packet_for(Kind::rma_data, packet.to_peer, *connection);
    piece.transfer = access->transfer;
    piece.payload = Payload::make(bytes);
    if (!read_memory(arena_, access->memory.subspan(access->done, bytes),
                     {piece.payload.bytes.get(), bytes})) {
        answer(*connection, packet, Code::failed_precondition, memory_text_unreadable);
        return release(*connection, *access);
    }
    access->done += bytes;
    send_ordered(*connection, std::move(piece), Stream::bulk);
    if (bytes == left) return release(*connection, *access);
    Packet more;
    more.kind = Kind::rma_more;
    more.to = self_.node;
    more.to_peer = packet.to_peer;
    more.transfer = access->transfer;
    network_.send(network_.now() + network_.options().piece_time, std::move(more));
}

// Without rma_checked an owner that waits for all holders of grants never reaches this: it is
// counted.
bool SimEndpoint::is_revoked(const ActiveAccess& access) {
    const auto found = regions_.table.find(access.region);
    if (found != regions_.table.end() && found->second.serial == access.serial) return false;
    if (!network_.options().rma_checked) network_.count_late_access();
    return true;
}

void SimEndpoint::refuse_access(Connection& connection, ActiveAccess& access,
                                const Packet& packet) {
    answer(connection, packet, Code::permission_denied,
           "the region was revoked during the transfer");
    release(connection, access);
}

void SimEndpoint::answer(Connection& connection, const Packet& request, Code code,
                         std::string_view why) {
    Packet packet = packet_for(Kind::rma_reply, request.to_peer, connection);
    packet.code = code;
    packet.transfer = request.transfer;
    packet.text = why;
    send_ordered(connection, std::move(packet), Stream::bulk);
}

void SimEndpoint::release(Connection& connection, ActiveAccess& access) {
    WEFT_ASSERT(!connection.accesses.empty());
    on_access_ended(access);
    if (&access != &connection.accesses.back()) access = connection.accesses.back();
    connection.accesses.pop_back();
}

void SimEndpoint::drop_accesses(Connection& connection) {
    for (const ActiveAccess& one : connection.accesses) on_access_ended(one);
    connection.accesses.clear();
}

// A fence may wait for this access.
void SimEndpoint::on_access_ended(const ActiveAccess& access) {
    const auto found = regions_.table.find(access.region);
    if (found == regions_.table.end() || found->second.serial != access.serial) return;
    WEFT_ASSERT(found->second.accesses != 0);
    if (--found->second.accesses == 0 && found->second.fencing) end_fence(access.region);
}

}  // namespace weft::na::sim
