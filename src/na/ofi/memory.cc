// Memory that is exposed to peers, and transfers from and to peers' memory.
#include <poll.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "base/random.h"
#include "na/arena.h"
#include "na/ofi/endpoint.h"
#include "na/ofi/settings.h"

namespace weft::na::ofi {

static std::uint64_t access_flags(Access access) {
    return (allows(access, Access::read) ? FI_REMOTE_READ : 0) |
           (allows(access, Access::write) ? FI_REMOTE_WRITE : 0);
}

Result<FabricKey> OfiEndpoint::expose(const Exposure& exposure) {
    if (exposure.region >= regions_max) {
        return fail(Code::invalid_argument, "region " + std::to_string(exposure.region) +
                                                " is over the limit of " +
                                                std::to_string(regions_max) + " regions");
    }
    if (exposure.memory.empty()) {
        return fail(Code::invalid_argument, "can't expose an empty range");
    }
    if (exposure.access == Access::none) {
        return fail(Code::invalid_argument, "can't expose memory with Access::none");
    }
    if (regions_.size() <= exposure.region) regions_.resize(exposure.region + 1);
    Region& region = regions_[exposure.region];
    if (region.taken) {
        return fail(Code::already_exists,
                    "region " + std::to_string(exposure.region) + " is exposed already");
    }
    region.exposure = exposure;
    // The fabric's key is a secret of its own: the reference's key is never passed to the fabric.
    region.fabric = {0, parts_.random.next()};
    if (!fabric_ && traits_.keys_from_device) {
        if (Status status = open_for_keys(); !status.ok()) return status;
    }
    region.taken = true;
    // Without a fabric the memory is registered when the first connection opens one.
    if (fabric_) {
        if (Status status = register_region(region); !status.ok()) {
            region.taken = false;
            return status;
        }
    }
    return region.fabric;
}

Status OfiEndpoint::register_region(Region& region) {
    const fi_domain_attr& attr = *fabric_->info().domain_attr;
    const Exposure& exposure = region.exposure;
    fid_mr* memory = nullptr;
    const int error =
        fi_mr_reg(fabric_->domain(), exposure.memory.data(), exposure.memory.size(),
                  access_flags(exposure.access), 0, region.fabric.key, 0, &memory, nullptr);
    if (error) {
        return fail(Code::resource_exhausted,
                    "libfabric can't register " + std::to_string(exposure.memory.size()) +
                        " bytes: " + describe(error) +
                        (traits_.keys_from_device ? "; " + room_needed() : ""));
    }
    region.memory.reset(memory);
    if (attr.mr_mode & FI_MR_PROV_KEY) region.fabric.key = fi_mr_key(memory);
    if (attr.mr_mode & FI_MR_VIRT_ADDR) {
        region.fabric.address = reinterpret_cast<std::uintptr_t>(exposure.memory.data());
    }
    return {};
}

// Over a device, deregistration waits for accesses in flight and admits no later one. Over TCP it
// refuses new accesses but does not stop one in flight (libfabric 1.17: 510 of 512 MiB landed after
// it). So if a holder was lost before it acknowledged, this function closes the connections of the
// lost peers. The fence waits for connections that can't be closed yet; it skips those on which no
// send was ever accepted.
void OfiEndpoint::fence(std::uint32_t region, Holders holders) {
    if (region >= regions_.size()) regions_.resize(region + 1);
    if (!withdraw(regions_[region])) return;
    if (holders == Holders::lost && !traits_.deregistration_fences) cut_lost_peers(region);
    if (!exposes()) removed_.clear();
    if (regions_[region].fenced_by == 0) emit_fenced(region);
}

// False: the device can't deregister the region. The registration stays, and its memory is never
// released.
bool OfiEndpoint::withdraw(Region& region) {
    if (fid_mr* memory = region.memory.release()) {
        const int error = fi_close(&memory->fid);
        if (error && traits_.deregistration_fences) {
            parts_.log.error(std::string(traits_.scheme) + ": the device can't deregister region " +
                             std::to_string(region.exposure.region) + ": " + describe(error) +
                             "; the region is never fenced");
            region.memory.reset(memory);
            return false;
        }
    }
    region.taken = false;
    return true;
}

// Closes every connection over which a lost peer may still write.
void OfiEndpoint::cut_lost_peers(std::uint32_t region) {
    for (const SocketName& name : std::vector(removed_)) {
        if (AvEntry* av_entry = find_or_add_av_entry(name)) cut(*av_entry, {});
    }
    for (auto at = av_entries_.begin(); at != av_entries_.end();) {
        AvEntry& av_entry = at->second;
        ++at;
        if (!av_entry.dirty || cut(av_entry, "the connection was closed to fence memory")) continue;
        if (av_entry.last_send == AvEntry::LastSend::none) continue;
        av_entry.fences.push_back(region);
        ++regions_[region].fenced_by;
    }
}

bool OfiEndpoint::exposes() const {
    return std::any_of(regions_.begin(), regions_.end(),
                       [](const Region& region) { return region.taken; });
}

void OfiEndpoint::emit_fenced(std::uint32_t region) {
    Event event;
    event.kind = EventKind::region_fenced;
    event.region = region;
    emit(event);
}

std::size_t OfiEndpoint::post(std::span<const RmaItem> items) noexcept {
    std::size_t accepted = 0;
    for (const RmaItem& item : items) {
        if (transfers_free_.empty()) break;
        RmaOperation& transfer = *transfers_free_.back();
        transfers_free_.pop_back();
        transfer.item = item;
        transfer.posted = false;
        transfer.cut_code = Code::ok;
        ++accepted;
        ConnectionEntry* entry = find_up(item.peer);
        if (!entry) {
            finish(transfer, Code::unavailable, "the peer is not connected");
            continue;
        }
        if (item.local.empty() || item.local.size() > limits_.rma_bytes_max) {
            finish(transfer, Code::invalid_argument,
                   "a transfer has 1 to " + std::to_string(limits_.rma_bytes_max) + " bytes");
            continue;
        }
        const bool is_get = item.kind == RmaKind::get;
        if (traits_.copies_in_library && !is_accessible(parts_.arena, item.local, is_get)) {
            finish(transfer, Code::failed_precondition,
                   is_get ? local_text_unwritable : local_text_unreadable);
            continue;
        }
        Connection& peer = entry->value;
        peer.waiting.push_back(transfer);
        if (peer.retry.attempts == 0) start_waiting_transfers(*entry);
    }
    return accepted;
}

// False: the peer was taken down.
bool OfiEndpoint::start_waiting_transfers(ConnectionEntry& entry) {
    Connection& peer = entry.value;
    while (RmaOperation* transfer = peer.waiting.front()) {
        transfer->unlink();
        switch (post_transfer(peer, *transfer)) {
            case Sent::ok:
                peer.retry.attempts = 0;
                transfer->posted = true;
                transfer->av_entry = peer.av_entry;
                ++peer.transfers_posted;
                break;
            case Sent::retry: peer.waiting.push_front(*transfer); return blocked(entry);
            case Sent::failed:
                finish(*transfer, Code::internal, "libfabric refused a transfer");
                break;
        }
    }
    return true;
}

OfiEndpoint::Sent OfiEndpoint::post_transfer(Connection& peer, RmaOperation& transfer) {
    const RmaItem& item = transfer.item;
    iovec local{item.local.data(), item.local.size()};
    fi_rma_iov remote{item.fabric.address + item.offset, item.local.size(), item.fabric.key};
    fi_msg_rma message{};
    message.msg_iov = &local;
    message.iov_count = 1;
    message.addr = peer.av_entry->address;
    message.rma_iov = &remote;
    message.rma_iov_count = 1;
    message.context = static_cast<OperationContext*>(&transfer);
    if (traits_.close_breaks_gets && item.kind == RmaKind::get &&
        item.local.size() >= sizeof unread_) {
        std::memcpy(item.local.data(), unread_.data(), sizeof unread_);
    }
    // Without delivery-complete, a put counts as complete once it has left the local socket, even
    // if the target would refuse it as out of range.
    const ssize_t error =
        item.kind == RmaKind::put
            ? fi_writemsg(fabric_->ep(), &message, FI_COMPLETION | FI_DELIVERY_COMPLETE)
            : fi_readmsg(fabric_->ep(), &message, FI_COMPLETION);
    peer.av_entry->on_send_result(error);
    if (error == 0) return Sent::ok;
    return error == -FI_EAGAIN ? Sent::retry : Sent::failed;
}

// The only place where a transfer ends: libfabric no longer holds `item.local`.
void OfiEndpoint::finish(RmaOperation& transfer, Code code, std::string why) {
    if (transfer.posted) {
        if (ConnectionEntry* entry = find(transfer.item.peer)) --entry->value.transfers_posted;
    }
    Event event;
    event.kind = EventKind::rma_done;
    event.peer = transfer.item.peer;
    event.cookie = transfer.item.cookie;
    event.region = transfer.item.region;
    event.code = code;
    if (code != Code::ok && transfer.cut_code != Code::ok) event.code = transfer.cut_code;
    transfer.posted = false;
    transfers_free_.push_back(&transfer);
    if (code == Code::ok) {
        emit(event);
    } else {
        emit(event, std::move(why));
    }
}

// The peer goes down. Transfers that libfabric does not hold complete now; the others complete when
// the connection is closed and libfabric flushes them.
void OfiEndpoint::end_transfers(ConnectionEntry& entry, Code code) {
    Connection& peer = entry.value;
    while (RmaOperation* transfer = peer.waiting.pop_front()) {
        finish(*transfer, code, "the connection ended before the transfer began");
    }
    if (peer.transfers_posted == 0) return;
    for (RmaOperation& transfer : transfers_) {
        if (transfer.posted && transfer.item.peer == id_of(entry)) transfer.cut_code = code;
    }
}

// Whether the reply to a get that this side started is arriving: the buffer no longer begins with
// the pattern `unread_`, written to it beforehand, and the get has not completed. A get that is
// smaller than the pattern arrives in one piece.
bool OfiEndpoint::is_arriving(const RmaOperation& transfer) const {
    const RmaItem& item = transfer.item;
    return transfer.posted && item.kind == RmaKind::get && item.local.size() >= sizeof unread_ &&
           std::memcmp(item.local.data(), unread_.data(), sizeof unread_) != 0;
}

// Whether a get of this side is posted; its connection must not be closed before it completes.
// `av_entry`: on that address; nullptr: on any.
bool OfiEndpoint::has_pending_rma(const AvEntry* av_entry) const {
    if (!traits_.close_breaks_gets) return false;
    return std::any_of(transfers_.begin(), transfers_.end(), [&](const RmaOperation& transfer) {
        return (!av_entry || transfer.av_entry == av_entry) && transfer.posted &&
               transfer.item.kind == RmaKind::get;
    });
}

// Whether the reply to such a get has begun to arrive.
bool OfiEndpoint::has_pending_gets(const AvEntry* av_entry) const {
    if (!traits_.close_breaks_gets) return false;
    return std::any_of(transfers_.begin(), transfers_.end(), [&](const RmaOperation& transfer) {
        return (!av_entry || transfer.av_entry == av_entry) && is_arriving(transfer);
    });
}

// For the destructor: discards all completions.
void OfiEndpoint::drop_completions() {
    for (;;) {
        fi_cq_msg_entry entry{};
        fi_cq_err_entry error{};
        const ssize_t count = fi_cq_read(fabric_->cq(), &entry, 1);
        if (count == -FI_EAVAIL) {
            if (fi_cq_readerr(fabric_->cq(), &error, 0) < 0) return;
            entry.op_context = error.op_context;
        } else if (count <= 0) {
            return;
        }
        auto* operation = static_cast<OperationContext*>(entry.op_context);
        if (operation && operation->kind == OperationContext::Kind::transfer) {
            static_cast<RmaOperation*>(operation)->posted = false;
        }
    }
}

// A live peer closes its side within `linger` after the bye; a dead peer's side is closed already.
// Returns false if a peer stopped halfway through a reply.
bool OfiEndpoint::finish_reading() {
    constexpr int waits_max = 300;  // Milliseconds.
    static_assert(replies_begin_within < 1ms * waits_max);
    for (int waits = 0; waits < waits_max; ++waits) {
        drop_completions();
        if (!has_pending_gets(nullptr) &&
            (!has_pending_rma(nullptr) || 1ms * waits >= replies_begin_within)) {
            return true;
        }
        (void)::poll(nullptr, 0, 1);
    }
    return !has_pending_gets(nullptr);
}

}  // namespace weft::na::ofi
