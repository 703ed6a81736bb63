// Put and get of a simulated node. A put's pieces leave its initiator, a get's the owner; they
// travel like packets, and what lands is judged where and when it lands. A transfer lives at its
// initiator and an access at the owner: what arrives after the end of either finds nothing.
#include <algorithm>
#include <cstring>

#include "base/codec.h"
#include "base/mutant.h"
#include "na/sim/endpoint.h"

namespace weft::na::sim {

// ---- the initiator -----------------------------------------------------------------------------

std::size_t SimEndpoint::post(std::span<const RmaItem> items) noexcept {
    if (!node_) return 0;
    std::size_t accepted = 0;
    for (const RmaItem& item : items) {
        TransferTable::Entry* entry = transfers_.take();
        if (!entry) break;
        ++accepted;
        entry->value = Transfer{item, 0};
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
            send_piece(*entry);
        }
    }
    return accepted;
}

// Of a put the next one, of a get the request for all of them. Requires: the peer is up.
void SimEndpoint::send_piece(TransferTable::Entry& entry) {
    Transfer& transfer = entry.value;
    const RmaItem& item = transfer.item;
    Link& link = *find(item.peer);
    const bool is_put = item.kind == RmaKind::put;
    const std::size_t left = is_put ? item.local.size() - transfer.bytes_done : 0;
    const std::size_t bytes = std::min(World::piece_bytes_max, left);
    Parcel parcel = Parcel::make(sizeof(RmaHead) + bytes);
    const Bytes body(parcel.bytes.get() + sizeof(RmaHead), bytes);
    if (bytes > 0 && !read_memory(arena_, item.local.subspan(transfer.bytes_done, bytes), body)) {
        if (transfer.bytes_done == 0) {
            return finish(entry, Code::failed_precondition, local_text_unreadable);
        }
        transfer.is_unreadable = true;  // Ends when the owner has answered.
        std::ranges::fill(body, std::byte{0});
    }
    Cargo cargo = cargo_for(is_put ? Kind::rma_put : Kind::rma_request, item.peer, link);
    cargo.transfer = entry.id();
    cargo.parcel = std::move(parcel);
    base::store(cargo.parcel.bytes.get(),
                RmaHead{item.region, item.generation, item.key, item.offset, item.local.size(),
                        transfer.bytes_done});
    transfer.bytes_done += bytes;
    send_ordered(link, std::move(cargo), Lane::bulk);
    if (bytes == left) return;
    Cargo next;
    next.kind = Kind::rma_next;
    next.to = node_;
    next.to_peer = item.peer;
    next.transfer = entry.id();
    network_.send(network_.now() + network_.options().piece_time, std::move(next));
}

void SimEndpoint::on_rma_next(Cargo& cargo) {
    TransferTable::Entry* entry = transfers_.find(cargo.transfer);
    if (entry) send_piece(*entry);  // Else it ended, with its connection at the latest.
}

void SimEndpoint::on_rma_data(Cargo& cargo) {
    TransferTable::Entry* entry = transfers_.find(cargo.transfer);
    if (!entry || entry->value.item.peer != cargo.to_peer) return;
    Transfer& transfer = entry->value;
    const std::size_t bytes =
        std::min(cargo.parcel.size, transfer.item.local.size() - transfer.bytes_done);
    if (!write_memory(arena_, transfer.item.local.subspan(transfer.bytes_done, bytes),
                      {cargo.parcel.bytes.get(), bytes})) {
        return finish(*entry, Code::failed_precondition, local_text_unwritable);
    }
    transfer.bytes_done += bytes;
    if (transfer.bytes_done == transfer.item.local.size()) finish(*entry, Code::ok, {});
}

void SimEndpoint::on_rma_answer(Cargo& cargo) {
    TransferTable::Entry* entry = transfers_.find(cargo.transfer);
    if (!entry || entry->value.item.peer != cargo.to_peer) return;
    if (entry->value.is_unreadable) {
        return finish(*entry, Code::failed_precondition, local_text_unreadable);
    }
    finish(*entry, cargo.code, cargo.text);
}

void SimEndpoint::finish(TransferTable::Entry& entry, Code code, std::string_view why) {
    const Transfer& transfer = entry.value;
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

// ---- the owner ---------------------------------------------------------------------------------

Result<FabricKey> SimEndpoint::expose(const Exposure& exposure) {
    if (exposure.region >= regions_max || regions_.contains(exposure.region)) {
        return fail(Code::invalid_argument,
                    "region " + std::to_string(exposure.region) + " cannot be exposed (again)");
    }
    if (scarcity_->strikes()) {
        return fail(Code::resource_exhausted,
                    "no memory to expose region " + std::to_string(exposure.region));
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
    if (found == regions_.end() || found->second.admissions == 0 || !waits)
        return end_fence(region);
    // What was admitted may still land for a while, as on a fabric that nothing stops at once.
    found->second.fencing = true;
    Cargo over;
    over.kind = Kind::fence_over;
    over.to = node_;
    over.transfer = {region, static_cast<std::uint32_t>(found->second.serial)};
    network_.send(saturating_add(network_.now(), network_.options().fence_patience),
                  std::move(over));
}

void SimEndpoint::on_fence_over(Cargo& cargo) {
    const auto found = regions_.find(cargo.transfer.slot);
    if (found == regions_.end() || !found->second.fencing) return;
    if (static_cast<std::uint32_t>(found->second.serial) != cargo.transfer.generation) return;
    end_fence(cargo.transfer.slot);
}

// From here on nothing lands there.
void SimEndpoint::end_fence(std::uint32_t region) {
    regions_.erase(region);
    Event event;
    event.kind = EventKind::region_fenced;
    event.region = region;
    arrive(event);
}

// Empty: the access is allowed.
std::string_view SimEndpoint::why_refused(RmaKind kind, const RmaHead& head) const {
    const auto found = regions_.find(head.region);
    if (found == regions_.end()) return "no such region";
    const Exposure& exposure = found->second.exposure;
    const bool checked = network_.options().rma_checked;
    if (checked && exposure.generation != head.generation) return "a region of that name is gone";
    if (exposure.key != head.key) return "wrong key";
    if (found->second.fencing) return "the region is revoked";
    const Access wanted = kind == RmaKind::get ? Access::read : Access::write;
    if (!allows(exposure.access, wanted)) return "the region does not permit this access";
    const std::size_t size = exposure.memory.size();
    if (head.offset > size || head.bytes > size - head.offset) return "out of range";
    return {};
}

SimEndpoint::Admission* SimEndpoint::find_admission(Link& link, TransferId transfer) {
    for (Admission& one : link.admissions) {
        if (one.transfer == transfer) return &one;
    }
    return nullptr;
}

// nullptr: it was refused.
SimEndpoint::Admission* SimEndpoint::admit(Link& link, const Cargo& cargo, RmaKind kind,
                                           const RmaHead& head) {
    if (const std::string_view why = why_refused(kind, head); !why.empty()) {
        answer(link, cargo, Code::permission_denied, why);
        return nullptr;
    }
    Region& region = regions_.find(head.region)->second;
    ++region.admissions;
    Admission admission;
    admission.transfer = cargo.transfer;
    admission.region = head.region;
    admission.serial = region.serial;
    admission.memory = region.exposure.memory.subspan(head.offset, head.bytes);
    link.admissions.push_back(admission);
    if (kind == RmaKind::get) network_.show(host_, link.host, region.exposure.memory);
    return &link.admissions.back();
}

void SimEndpoint::on_rma_put(Cargo& cargo) {
    Link* link = find(cargo.to_peer);
    if (silent_ || !link || link->state != LinkState::up) return;
    const auto head = base::load<RmaHead>(cargo.parcel.bytes.get());
    Admission* admission = head.at == 0 ? admit(*link, cargo, RmaKind::put, head)
                                        : find_admission(*link, cargo.transfer);
    if (!admission) return;  // Refused, now or with a piece before.
    if (!base::is_mutated(base::Mutant::late_piece) && is_revoked(*admission))
        return deny(*link, *admission, cargo);
    const std::size_t bytes = cargo.parcel.size - sizeof(RmaHead);
    if (!base::is_mutated(base::Mutant::lost_piece) || head.at != World::piece_bytes_max) {
        const ByteView piece(cargo.parcel.bytes.get() + sizeof(RmaHead), bytes);
        if (!write_memory(arena_, admission->memory.subspan(head.at, bytes), piece)) {
            answer(*link, cargo, Code::failed_precondition, memory_text_unwritable);
            return release(*link, *admission);
        }
    }
    admission->done += bytes;
    if (admission->done != admission->memory.size()) return;
    answer(*link, cargo, Code::ok, {});
    release(*link, *admission);
}

void SimEndpoint::on_rma_request(Cargo& cargo) {
    Link* link = find(cargo.to_peer);
    if (silent_ || !link || link->state != LinkState::up) return;
    const auto head = base::load<RmaHead>(cargo.parcel.bytes.get());
    if (admit(*link, cargo, RmaKind::get, head)) on_rma_more(cargo);
}

void SimEndpoint::on_rma_more(Cargo& cargo) {
    Link* link = find(cargo.to_peer);
    Admission* admission = link ? find_admission(*link, cargo.transfer) : nullptr;
    if (silent_ || !admission) return;
    if (!base::is_mutated(base::Mutant::late_read) && is_revoked(*admission))
        return deny(*link, *admission, cargo);
    const std::size_t left = admission->memory.size() - admission->done;
    const std::size_t bytes = std::min(World::piece_bytes_max, left);
    Cargo piece = cargo_for(Kind::rma_data, cargo.to_peer, *link);
    piece.transfer = admission->transfer;
    piece.parcel = Parcel::make(bytes);
    if (!read_memory(arena_, admission->memory.subspan(admission->done, bytes),
                     {piece.parcel.bytes.get(), bytes})) {
        answer(*link, cargo, Code::failed_precondition, memory_text_unreadable);
        return release(*link, *admission);
    }
    admission->done += bytes;
    send_ordered(*link, std::move(piece), Lane::bulk);
    if (bytes == left) return release(*link, *admission);
    Cargo more;
    more.kind = Kind::rma_more;
    more.to = node_;
    more.to_peer = cargo.to_peer;
    more.transfer = admission->transfer;
    network_.send(network_.now() + network_.options().piece_time, std::move(more));
}

// Where no access is judged, who waits for all holders of grants never sees this: it is counted.
bool SimEndpoint::is_revoked(const Admission& admission) {
    const auto found = regions_.find(admission.region);
    if (found != regions_.end() && found->second.serial == admission.serial) return false;
    if (!network_.options().rma_checked) network_.count_late_access();
    return true;
}

void SimEndpoint::deny(Link& link, Admission& admission, const Cargo& cargo) {
    answer(link, cargo, Code::permission_denied, "the region was revoked under way");
    release(link, admission);
}

void SimEndpoint::answer(Link& link, const Cargo& request, Code code, std::string_view why) {
    Cargo cargo = cargo_for(Kind::rma_answer, request.to_peer, link);
    cargo.code = code;
    cargo.transfer = request.transfer;
    cargo.text = why;
    send_ordered(link, std::move(cargo), Lane::bulk);
}

void SimEndpoint::release(Link& link, Admission& admission) {
    leave(admission);
    if (&admission != &link.admissions.back()) admission = link.admissions.back();
    link.admissions.pop_back();
}

void SimEndpoint::drop_admissions(Link& link) {
    for (const Admission& one : link.admissions) leave(one);
    link.admissions.clear();
}

// A fence may have waited for it.
void SimEndpoint::leave(const Admission& admission) {
    const auto found = regions_.find(admission.region);
    if (found == regions_.end() || found->second.serial != admission.serial) return;
    if (--found->second.admissions == 0 && found->second.fencing) end_fence(admission.region);
}

}  // namespace weft::na::sim
