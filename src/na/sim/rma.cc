// Put and get of a simulated node. A transfer lives at its initiator; the cargo that travels names
// it, so that whatever arrives after its end finds nothing.
#include <algorithm>
#include <cstring>

#include "na/sim/endpoint.h"

namespace weft::na::sim {

std::size_t SimEndpoint::post(std::span<const RmaItem> items) noexcept {
    if (!node_) return 0;
    std::size_t accepted = 0;
    for (const RmaItem& item : items) {
        TransferTable::Entry* entry = transfers_.take();
        if (!entry) break;
        ++accepted;
        entry->value = Transfer{item, 0, {}, 0};
        if (!network_.options().rma_checked) {
            entry->value.item.region = static_cast<std::uint32_t>(item.fabric.address);
            entry->value.item.key = item.fabric.key;
        }
        const Link* link = find(item.peer);
        if (!link || link->state != LinkState::up) {
            finish(*entry, Code::unavailable, "the peer is not connected");
        } else if (item.local.empty() || item.local.size() > limits_.rma_bytes_max) {
            finish(*entry, Code::invalid_argument, "a transfer of 0 bytes or over rma_bytes_max");
        } else {
            entry->value.owner = link->node;
            Cargo cargo = cargo_for(Kind::rma_request, item.peer, *link);
            cargo.transfer = entry->id();
            network_.transmit(std::move(cargo));
        }
    }
    return accepted;
}

Result<FabricKey> SimEndpoint::expose(const Exposure& exposure) {
    if (exposure.region >= regions_max || regions_.contains(exposure.region)) {
        return fail(Code::invalid_argument,
                    "region " + std::to_string(exposure.region) + " cannot be exposed (again)");
    }
    Region region;
    region.exposure = exposure;
    region.serial = ++exposures_;
    regions_.emplace(exposure.region, region);
    return FabricKey{exposure.region, exposure.key};
}

void SimEndpoint::fence(std::uint32_t region, Holders) {
    const auto found = regions_.find(region);
    const bool waits = network_.options().rma_checked && network_.flip();
    if (found != regions_.end() && found->second.transfers != 0 && waits) {
        // What was admitted may still land, as on a fabric whose reads and writes nothing stops.
        found->second.fencing = true;
        return;
    }
    if (found != regions_.end()) regions_.erase(found);
    Event event;
    event.kind = EventKind::region_fenced;
    event.region = region;
    arrive(event);
}

// Empty: the access is allowed.
std::string_view SimEndpoint::why_refused(const RmaItem& item) const {
    const auto found = regions_.find(item.region);
    if (found == regions_.end()) return "no such region";
    const Exposure& exposure = found->second.exposure;
    const bool checked = network_.options().rma_checked;
    if (checked && exposure.generation != item.generation) return "a region of that name is gone";
    if (exposure.key != item.key) return "wrong key";
    if (found->second.fencing) return "the region is revoked";
    const Access wanted = item.kind == RmaKind::get ? Access::read : Access::write;
    if (!allows(exposure.access, wanted)) return "the region does not permit this access";
    const std::size_t size = exposure.memory.size();
    if (item.offset > size || item.local.size() > size - item.offset) return "out of range";
    return {};
}

SimEndpoint::TransferTable::Entry* SimEndpoint::transfer_of(const Cargo& cargo) {
    SimEndpoint* initiator = network_.find(cargo.from);
    const Link* link = find(cargo.to_peer);
    if (initiator && (!link || link->state == LinkState::down))
        network_.reset(cargo, "the peer knows no such connection");
    if (!initiator || !link || link->state != LinkState::up) return nullptr;
    return initiator->transfers_.find(cargo.transfer);
}

void SimEndpoint::answer(const Cargo& request, Code code, std::string_view why) {
    Cargo cargo;
    cargo.kind = Kind::rma_answer;
    cargo.code = code;
    cargo.from_host = host_;
    cargo.to_host = request.from_host;
    cargo.from = request.to;
    cargo.from_peer = request.to_peer;
    cargo.to = request.from;
    cargo.to_peer = request.from_peer;
    cargo.transfer = request.transfer;
    cargo.text = why;
    network_.transmit(std::move(cargo));
}

void SimEndpoint::on_rma_request(Cargo& cargo) {
    TransferTable::Entry* entry = silent_ ? nullptr : transfer_of(cargo);
    if (!entry) return;
    const std::string_view why = why_refused(entry->value.item);
    if (!why.empty()) return answer(cargo, Code::permission_denied, why);
    Region& region = regions_.find(entry->value.item.region)->second;
    ++region.transfers;
    entry->value.serial = region.serial;
    cargo.kind = Kind::rma_piece;
    network_.send(network_.now() + network_.options().piece_time, std::move(cargo));
}

void SimEndpoint::on_rma_piece(Cargo& cargo) {
    TransferTable::Entry* entry = transfer_of(cargo);
    if (!entry) return;
    Transfer& transfer = entry->value;
    const RmaItem& item = transfer.item;
    const auto found = regions_.find(item.region);
    if (found == regions_.end() || found->second.serial != transfer.serial) {
        if (!network_.options().rma_checked) network_.count_late_access();
        return answer(cargo, Code::permission_denied, "the region was revoked under way");
    }
    const std::size_t done = transfer.bytes_done;
    const std::size_t bytes = std::min(World::piece_bytes_max, item.local.size() - done);
    std::byte* remote = found->second.exposure.memory.data() + item.offset + done;
    std::byte* local = item.local.data() + done;
    if (item.kind == RmaKind::put) {
        std::memmove(remote, local, bytes);
    } else {
        std::memmove(local, remote, bytes);
    }
    transfer.bytes_done += bytes;
    if (transfer.bytes_done == item.local.size()) {
        end_access(item.region, std::exchange(transfer.serial, 0));
        return answer(cargo, Code::ok, {});
    }
    network_.send(network_.now() + network_.options().piece_time, std::move(cargo));
}

void SimEndpoint::on_rma_answer(Cargo& cargo) {
    TransferTable::Entry* entry = transfers_.find(cargo.transfer);
    if (entry) finish(*entry, cargo.code, cargo.text);
}

void SimEndpoint::end_access(std::uint32_t region, std::uint64_t serial) {
    const auto found = regions_.find(region);
    if (found == regions_.end() || found->second.serial != serial) return;
    if (--found->second.transfers != 0 || !found->second.fencing) return;
    regions_.erase(found);
    Event event;
    event.kind = EventKind::region_fenced;
    event.region = region;
    arrive(event);
}

void SimEndpoint::finish(TransferTable::Entry& entry, Code code, std::string_view why) {
    const Transfer& transfer = entry.value;
    SimEndpoint* owner = transfer.serial != 0 ? network_.find(transfer.owner) : nullptr;
    if (owner) owner->end_access(transfer.item.region, transfer.serial);
    Event event;
    event.kind = EventKind::rma_done;
    event.code = code;
    event.peer = transfer.item.peer;
    event.cookie = transfer.item.cookie;
    transfers_.give_back(entry);
    arrive(event, std::string(why));
}

void SimEndpoint::finish_all(PeerId peer, Code code, std::string_view why) {
    transfers_.for_each([&](TransferTable::Entry& entry) {
        if (entry.value.item.peer == peer) finish(entry, code, why);
    });
}

}  // namespace weft::na::sim
