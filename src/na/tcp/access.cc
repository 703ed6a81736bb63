// Exposed regions and transfers. This transport copies on both sides itself: from the moment of its
// fence a region is not touched any more.
#include <algorithm>

#include "na/tcp/endpoint.h"

namespace weft::na::tcp {
namespace {

// Answers that a peer does not read: several times what a peer within rma_per_peer_max causes.
constexpr std::size_t queued_max = 16 * rma_per_peer_max;

BulkHead done_head(std::uint64_t transfer, Refusal refusal) {
    BulkHead done;
    done.op = BulkOp::done;
    done.code = static_cast<std::uint8_t>(code_of(refusal));
    done.why = static_cast<std::uint8_t>(refusal);
    done.transfer = transfer;
    return done;
}

std::uint64_t name_of(base::SlotId id) { return std::uint64_t{id.generation} << 32 | id.slot; }
base::SlotId id_of(std::uint64_t name) {
    return {static_cast<std::uint32_t>(name), static_cast<std::uint32_t>(name >> 32)};
}

}  // namespace

Caps TcpEndpoint::caps() const {
    Caps caps;
    caps.rma = true;
    caps.rma_private = true;
    caps.rma_checked = true;
    caps.rma_survives = true;
    caps.wait_fd = true;
    caps.reports_peer_death = true;
    caps.fences_region = true;
    caps.fenced_by_end = true;
    caps.sent_survives = true;
    return caps;
}

// Processes the received heads and bodies in order. Not nullptr: the broken rule.
const char* TcpEndpoint::process_bulk(Connection& connection) noexcept {
    Bulk& bulk = *connection.bulk;
    while (true) {
        switch (bulk.reader.step(&parts_.arena)) {
            case BulkReader::Step::more:
                if (!bulk.writer.empty() && !bulk.polled.full) pump(connection);
                return nullptr;
            case BulkReader::Step::head:
                if (const char* broken = on_head(connection)) return broken;
                break;
            case BulkReader::Step::body_end: on_body_end(connection); break;
        }
    }
}

const char* TcpEndpoint::on_head(Connection& connection) noexcept {
    Bulk& bulk = *connection.bulk;
    const BulkHead& head = bulk.reader.head();
    const bool asks = head.op == BulkOp::put || head.op == BulkOp::get;
    if (asks && (head.length == 0 || head.length > tcp::rma_bytes_max)) return "an impossible size";
    if (asks && bulk.writer.size() > queued_max) return "more requests than answers that it reads";
    switch (head.op) {
        case BulkOp::put: {
            bulk.refusal = validate(head, Access::write);
            const bool good = bulk.refusal == Refusal::none;
            bulk.region = good ? head.region : BulkWriter::no_owner;
            bulk.reader.expect(good ? regions_[head.region].memory.data() + head.offset : nullptr);
            return nullptr;
        }
        case BulkOp::get: {
            const Refusal refusal = validate(head, Access::read);
            if (refusal == Refusal::none) {
                BulkHead data;
                data.op = BulkOp::data;
                data.length = head.length;
                data.transfer = head.transfer;
                bulk.writer.push(data, regions_[head.region].memory.data() + head.offset,
                                 head.region);
            }
            bulk.writer.push(done_head(head.transfer, refusal));
            return nullptr;
        }
        case BulkOp::data: {
            RmaEntry* entry = transfer_of(connection, head.transfer);
            if (!entry || entry->value.item.kind != RmaKind::get || entry->value.received != 0 ||
                head.length != entry->value.item.local.size()) {
                return "data that was not requested";
            }
            entry->value.received = head.length;
            bulk.region = BulkWriter::no_owner;
            bulk.reader.expect(entry->value.item.local.data());
            return nullptr;
        }
        case BulkOp::done: return on_done(connection, head);
    }
    return "an unknown operation";
}

const char* TcpEndpoint::on_done(Connection& connection, const BulkHead& head) noexcept {
    RmaEntry* entry = transfer_of(connection, head.transfer);
    if (!entry) return "a done for no transfer in progress";
    // Its memory would be released while it is still being sent.
    if (connection.bulk->writer.is_sending(head.transfer)) return "a done before its put was sent";
    if (head.code > code_max) return "an unknown code";
    const RmaItem& item = entry->value.item;
    const auto code = static_cast<Code>(head.code);
    if (entry->value.failed) {
        finish(*entry, Code::failed_precondition, entry->value.failed);
    } else if (code == Code::ok) {
        if (item.kind == RmaKind::get && entry->value.received == 0) return "a get without data";
        finish(*entry, Code::ok, "");
    } else {
        finish(*entry, code, refusal_text(head.why));
    }
    return nullptr;
}

void TcpEndpoint::on_body_end(Connection& connection) noexcept {
    Bulk& bulk = *connection.bulk;
    const BulkHead& head = bulk.reader.head();
    const bool faulted = bulk.reader.has_write_failed();
    if (head.op != BulkOp::put) {
        RmaEntry* entry = faulted ? transfer_of(connection, head.transfer) : nullptr;
        if (entry) entry->value.failed = local_text_unwritable;
        return;
    }
    bulk.region = BulkWriter::no_owner;
    if (faulted && bulk.refusal == Refusal::none) bulk.refusal = Refusal::unwritable;
    bulk.writer.push(done_head(head.transfer, bulk.refusal));
}

TcpEndpoint::RmaEntry* TcpEndpoint::transfer_of(Connection& connection,
                                                std::uint64_t name) noexcept {
    RmaEntry* entry = transfers_.find(id_of(name));
    return entry && entry->value.connection == &connection ? entry : nullptr;
}

// Call when a write found unreadable memory: the owner's of a get, or local memory of a put. False:
// all of it is readable.
bool TcpEndpoint::drop_unreadable(Connection& connection, std::size_t bytes_max) noexcept {
    const auto found = connection.bulk->writer.drop_unreadable(bytes_max);
    if (!found) return false;
    if (found->head.op != BulkOp::put) return true;
    RmaEntry* entry = transfer_of(connection, found->head.transfer);
    if (!entry) return true;
    entry->value.failed = local_text_unreadable;
    if (!found->continues) finish(*entry, Code::failed_precondition, entry->value.failed);
    return true;
}

// ---- regions -----------------------------------------------------------------------------------

Result<FabricKey> TcpEndpoint::expose(const Exposure& exposure) {
    if (exposure.region >= regions_max) {
        return fail(Code::resource_exhausted, "tcp: region " + std::to_string(exposure.region) +
                                                  " is beyond the table of " +
                                                  std::to_string(regions_max));
    }
    if (exposure.region >= regions_.size()) regions_.resize(exposure.region + 1);
    regions_[exposure.region] = exposure;
    return FabricKey{reinterpret_cast<std::uintptr_t>(exposure.memory.data()), exposure.key};
}

void TcpEndpoint::fence(std::uint32_t region, Holders) {
    if (region < regions_.size()) {
        Exposure& exposure = regions_[region];
        exposure.memory = {};
        exposure.access = Access::none;
    }
    for (const Slot& slot : slots_) {
        Bulk* bulk = slot.connection ? slot.connection->bulk.get() : nullptr;
        if (!bulk) continue;
        bulk->writer.revoke(region);
        if (bulk->region != region) continue;
        bulk->reader.discard();
        bulk->region = BulkWriter::no_owner;
        bulk->refusal = Refusal::revoked;
    }
    if (std::find(fenced_.begin(), fenced_.end(), region) == fenced_.end()) {
        fenced_.push_back(region);
    }
}

Refusal TcpEndpoint::validate(const BulkHead& head, Access access) const noexcept {
    if (head.region >= regions_.size()) return Refusal::no_region;
    const Exposure& exposure = regions_[head.region];
    if (exposure.generation != head.generation) return Refusal::stale;
    if (exposure.access == Access::none) return Refusal::revoked;
    if (exposure.key != head.key) return Refusal::key;
    if (!allows(exposure.access, access)) {
        return access == Access::read ? Refusal::not_readable : Refusal::not_writable;
    }
    const std::uint64_t bytes = exposure.memory.size();
    if (head.offset > bytes || head.length > bytes - head.offset) return Refusal::range;
    return Refusal::none;
}

// ---- initiated transfers ----------------------------------------------------------------------

std::size_t TcpEndpoint::post(std::span<const RmaItem> items) noexcept {
    std::size_t accepted = 0;
    for (const RmaItem& item : items) {
        RmaEntry* entry = transfers_.take();
        if (!entry) break;
        ++accepted;
        entry->value = {item, nullptr, 0};
        Connection* connection = find(item.peer);
        if (!connection || connection->phase != PeerPhase::up) {
            finish(*entry, Code::unavailable, "the peer is not up");
        } else if (item.local.empty() || item.local.size() > tcp::rma_bytes_max) {
            finish(*entry, Code::invalid_argument,
                   item.local.empty() ? "a transfer of 0 bytes"
                                      : "a transfer larger than rma_bytes_max");
        } else {
            entry->value.connection = connection;
            send_request(*connection, *entry);
        }
    }
    return accepted;
}

void TcpEndpoint::send_request(Connection& connection, const RmaEntry& entry) noexcept {
    const RmaItem& item = entry.value.item;
    BulkHead head;
    head.op = item.kind == RmaKind::put ? BulkOp::put : BulkOp::get;
    head.region = item.region;
    head.generation = item.generation;
    head.length = static_cast<std::uint32_t>(item.local.size());
    head.key = item.key;
    head.offset = item.offset;
    head.transfer = name_of(entry.id());
    Bulk& bulk = bulk_of(connection);
    if (item.kind == RmaKind::put) {
        bulk.writer.push(head, item.local.data());
    } else {
        bulk.writer.push(head);
    }
    if (bulk.phase == BulkPhase::up) mark_hot(bulk.polled);
    if (bulk.phase == BulkPhase::none || (bulk.phase == BulkPhase::up && !bulk.polled.full)) {
        pump(connection);
    }
}

void TcpEndpoint::finish(RmaEntry& entry, Code code, const std::string& why) {
    const RmaItem& item = entry.value.item;
    PendingEvent pending;
    pending.event.kind = EventKind::rma_done;
    pending.event.code = code;
    pending.event.peer = item.peer;
    pending.event.cookie = item.cookie;
    if (code != Code::ok) {
        pending.text = std::string(item.kind == RmaKind::get ? "get from" : "put to") + " region " +
                       std::to_string(item.region);
        if (const Connection* peer = entry.value.connection)
            pending.text += " of " + peer->info.uri;
        pending.text += ": " + why;
    }
    finished_.push(std::move(pending));
    transfers_.release(entry);
}

// Emits completions up to and including the first that error() explains. False: the batch ends with
// such an event.
bool TcpEndpoint::emit_rma_done(std::span<Event> events, std::size_t& count) noexcept {
    while (!finished_.empty() && count < events.size()) {
        PendingEvent& pending = finished_.front();
        const bool failed = pending.event.code != Code::ok;
        events[count++] = pending.event;
        if (failed) error_ = std::move(pending.text);
        finished_.pop();
        if (failed) return false;
    }
    return true;
}

}  // namespace weft::na::tcp
