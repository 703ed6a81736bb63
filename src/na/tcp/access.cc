// Exposed regions and transfers. We run the copies, on both sides: a region that is fenced is not
// touched any more from that moment on.
#include <algorithm>

#include "na/tcp/endpoint.h"

namespace weft::na::tcp {
namespace {

// Answers that a peer lets wait: several times what a peer asks that keeps to rma_share.
constexpr std::size_t queued_max = 16 * rma_share;

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

// What came, one head or body after the other. Not nullptr: which rule was broken.
const char* TcpEndpoint::take_steps(Connection& connection) noexcept {
    Bulk& bulk = *connection.bulk;
    while (true) {
        switch (bulk.reader.step(&parts_.arena)) {
            case BulkReader::Step::more:
                if (!bulk.writer.empty() && !bulk.lane.full) pump(connection);
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
    if (asks && bulk.writer.size() > queued_max) return "more requests than it reads answers";
    switch (head.op) {
        case BulkOp::put: {
            bulk.refusal = judge(head, Access::write);
            const bool good = bulk.refusal == Refusal::none;
            bulk.region = good ? head.region : BulkWriter::no_owner;
            bulk.reader.expect(good ? regions_[head.region].memory.data() + head.offset : nullptr);
            return nullptr;
        }
        case BulkOp::get: {
            const Refusal refusal = judge(head, Access::read);
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
            TransferEntry* entry = transfer_of(connection, head.transfer);
            if (!entry || entry->value.item.kind != RmaKind::get || entry->value.received != 0 ||
                head.length != entry->value.item.local.size()) {
                return "data that was not asked for";
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
    TransferEntry* entry = transfer_of(connection, head.transfer);
    if (!entry) return "an answer to nothing";
    // Its memory would go back while it is still read.
    if (connection.bulk->writer.is_sending(head.transfer)) return "an answer before the question";
    if (head.code > code_max) return "an unknown code";
    const RmaItem& item = entry->value.item;
    const auto code = static_cast<Code>(head.code);
    if (entry->value.failed) {
        finish(*entry, Code::failed_precondition, entry->value.failed);
    } else if (code == Code::ok) {
        if (item.kind == RmaKind::get && entry->value.received == 0) return "a get without data";
        finish(*entry, Code::ok, "");
    } else {
        finish(*entry, code, words(head.why));
    }
    return nullptr;
}

void TcpEndpoint::on_body_end(Connection& connection) noexcept {
    Bulk& bulk = *connection.bulk;
    const BulkHead& head = bulk.reader.head();
    const bool faulted = bulk.reader.has_faulted();
    if (head.op != BulkOp::put) {
        TransferEntry* entry = faulted ? transfer_of(connection, head.transfer) : nullptr;
        if (entry) entry->value.failed = local_text_unwritable;
        return;
    }
    bulk.region = BulkWriter::no_owner;
    if (faulted && bulk.refusal == Refusal::none) bulk.refusal = Refusal::unwritable;
    bulk.writer.push(done_head(head.transfer, bulk.refusal));
}

TcpEndpoint::TransferEntry* TcpEndpoint::transfer_of(Connection& connection,
                                                     std::uint64_t name) noexcept {
    TransferEntry* entry = transfers_.find(id_of(name));
    return entry && entry->value.connection == &connection ? entry : nullptr;
}

// A write found memory that can't be read: the owner's of a get, or ours of a put. False: all of it
// can be.
bool TcpEndpoint::drop_unreadable(Connection& connection, std::size_t bytes_max) noexcept {
    const auto found = connection.bulk->writer.drop_unreadable(bytes_max);
    if (!found) return false;
    if (found->head.op != BulkOp::put) return true;
    TransferEntry* entry = transfer_of(connection, found->head.transfer);
    if (!entry) return true;
    entry->value.failed = local_text_unreadable;
    if (!found->goes_on) finish(*entry, Code::failed_precondition, entry->value.failed);
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

Refusal TcpEndpoint::judge(const BulkHead& head, Access access) const noexcept {
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

// ---- our transfers -----------------------------------------------------------------------------

std::size_t TcpEndpoint::post(std::span<const RmaItem> items) noexcept {
    std::size_t accepted = 0;
    for (const RmaItem& item : items) {
        TransferEntry* entry = transfers_.take();
        if (!entry) break;
        ++accepted;
        entry->value = {item, nullptr, 0};
        Connection* connection = find(item.peer);
        if (!connection || connection->phase != Phase::up) {
            finish(*entry, Code::unavailable, "the peer is not up");
        } else if (item.local.empty() || item.local.size() > tcp::rma_bytes_max) {
            finish(*entry, Code::invalid_argument,
                   item.local.empty() ? "0 bytes" : "larger than rma_bytes_max");
        } else {
            entry->value.connection = connection;
            ask(*connection, *entry);
        }
    }
    return accepted;
}

void TcpEndpoint::ask(Connection& connection, const TransferEntry& entry) noexcept {
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
    if (bulk.phase == BulkPhase::up) heat(bulk.lane);
    if (bulk.phase == BulkPhase::none || (bulk.phase == BulkPhase::up && !bulk.lane.full)) {
        pump(connection);
    }
}

void TcpEndpoint::finish(TransferEntry& entry, Code code, const std::string& why) {
    const RmaItem& item = entry.value.item;
    Notice notice;
    notice.event.kind = EventKind::rma_done;
    notice.event.code = code;
    notice.event.peer = item.peer;
    notice.event.cookie = item.cookie;
    if (code != Code::ok) {
        notice.text = std::string(item.kind == RmaKind::get ? "get from" : "put to") + " region " +
                      std::to_string(item.region);
        if (const Connection* peer = entry.value.connection) notice.text += " of " + peer->info.uri;
        notice.text += ": " + why;
    }
    finished_.push(std::move(notice));
    transfers_.give_back(entry);
}

// Up to and including the first that error() explains.
// False: it is there.
bool TcpEndpoint::give_finished(std::span<Event> events, std::size_t& count) noexcept {
    while (!finished_.empty() && count < events.size()) {
        Notice& notice = finished_.front();
        const bool failed = notice.event.code != Code::ok;
        events[count++] = notice.event;
        if (failed) error_ = std::move(notice.text);
        finished_.pop();
        if (failed) return false;
    }
    return true;
}

}  // namespace weft::na::tcp
