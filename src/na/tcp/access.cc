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
    caps.steers = true;
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
            bulk.refusal = regions_.validate(head, Access::write, now_);
            const bool good = bulk.refusal == Refusal::none;
            bulk.region = good ? head.region : BulkWriter::no_owner;
            bulk.reader.expect(good ? regions_.at(head) : nullptr);
            return nullptr;
        }
        case BulkOp::get: {
            const Refusal refusal = regions_.validate(head, Access::read, now_);
            if (refusal == Refusal::none) {
                BulkHead data;
                data.op = BulkOp::data;
                data.length = head.length;
                data.transfer = head.transfer;
                bulk.writer.push(data, regions_.at(head), head.region);
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
    return regions_.expose(exposure);
}

void TcpEndpoint::fence(std::uint32_t region, Holders) {
    regions_.revoke(region);
    peers_.for_each([region](Connection& connection) {
        Bulk* bulk = connection.bulk.get();
        if (!bulk) return;
        bulk->writer.revoke(region);
        if (bulk->region != region) return;
        bulk->reader.discard();
        bulk->region = BulkWriter::no_owner;
        bulk->refusal = Refusal::revoked;
    });
}

// ---- initiated transfers ----------------------------------------------------------------------

std::size_t TcpEndpoint::post(std::span<const RmaItem> items) noexcept {
    std::size_t accepted = 0;
    for (const RmaItem& item : items) {
        RmaEntry* entry = transfers_.take();
        if (!entry) break;
        ++accepted;
        entry->value = {item, nullptr, 0};
        Connection* connection = peers_.find_up(item.peer);
        if (!connection) {
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
    WEFT_DCHECK(entry.is_taken() && !item.local.empty());
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
    if (bulk.phase == BulkPhase::up) hot_.touch(bulk.polled);
    if (bulk.phase == BulkPhase::none || (bulk.phase == BulkPhase::up && !bulk.polled.full)) {
        pump(connection);
    }
}

void TcpEndpoint::finish(RmaEntry& entry, Code code, const std::string& why) {
    WEFT_ASSERT(entry.is_taken());
    const RmaItem& item = entry.value.item;
    const Connection* peer = entry.value.connection;
    events_.finished.push_done(
        item, code,
        code == Code::ok ? std::string() : transfer_text(item, peer ? &peer->info : nullptr, why));
    transfers_.release(entry);
}

}  // namespace weft::na::tcp
