// Memory that is exposed to peers, and transfers from and to peers' memory.
#include <poll.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "base/random.h"
#include "na/arena.h"
#include "na/common/exposure.h"
#include "na/ofi/endpoint.h"
#include "na/ofi/settings.h"

namespace weft::na::ofi {

static std::uint64_t access_flags(Access access) {
    return (allows(access, Access::read) ? FI_REMOTE_READ : 0) |
           (allows(access, Access::write) ? FI_REMOTE_WRITE : 0);
}

Result<FabricKey> OfiEndpoint::expose(const Exposure& exposure) {
    if (Status status = validate_exposure(exposure); !status.ok()) return status;
    if (regions_.size() <= exposure.region) regions_.resize(exposure.region + 1);
    Region& region = regions_[exposure.region];
    if (region.taken) return already_exposed(exposure.region);
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
    WEFT_ASSERT(fabric_ && !region.memory);
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
    if (!exposes()) av_.removed.clear();
    if (regions_[region].fenced_by == 0) events_.push(fenced_event(region));
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
    for (const SocketName& name : std::vector(av_.removed)) {
        if (AvEntry* av_entry = find_or_add_av_entry(name)) cut(*av_entry, {});
    }
    for (auto at = av_.entries.begin(); at != av_.entries.end();) {
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

std::size_t OfiEndpoint::post(std::span<const RmaItem> items) noexcept {
    std::size_t accepted = 0;
    for (const RmaItem& item : items) {
        if (!transfers_.has_room()) break;
        RmaOperation& transfer = transfers_.take(item);
        ++accepted;
        Connection* peer = peers_.find_up(item.peer);
        if (!peer) {
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
        peer->waiting.push_back(transfer);
        if (peer->retry.attempts == 0) start_waiting_transfers(*peer);
    }
    return accepted;
}

// False: the peer was taken down.
bool OfiEndpoint::start_waiting_transfers(Connection& peer) {
    while (RmaOperation* transfer = peer.waiting.front()) {
        transfer->unlink();
        switch (post_transfer(peer, *transfer)) {
            case Sent::ok:
                peer.retry.attempts = 0;
                transfer->posted = true;
                transfer->av_entry = peer.av_entry;
                ++peer.transfers_posted;
                break;
            case Sent::retry: peer.waiting.push_front(*transfer); return blocked(peer);
            case Sent::failed:
                finish(*transfer, Code::internal, "libfabric refused a transfer");
                break;
        }
    }
    return true;
}

OfiEndpoint::Sent OfiEndpoint::post_transfer(Connection& peer, RmaOperation& transfer) {
    WEFT_DCHECK(peer.av_entry && !transfer.posted && !transfer.is_linked());
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
    if (traits_.close_breaks_gets && item.kind == RmaKind::get) transfers_.mark_unread(item);
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
        Connection* peer = peers_.find(transfer.item.peer);
        WEFT_ASSERT(!peer || peer->transfers_posted != 0);
        if (peer) --peer->transfers_posted;
    }
    const bool was_cut = code != Code::ok && transfer.cut_code != Code::ok;
    events_.push_done(transfer.item, was_cut ? transfer.cut_code : code, std::move(why));
    transfers_.give_back(transfer);
}

// The peer goes down. Transfers that libfabric does not hold complete now; the others complete when
// the connection is closed and libfabric flushes them.
void OfiEndpoint::end_transfers(Connection& peer, Code code) {
    while (RmaOperation* transfer = peer.waiting.pop_front()) {
        finish(*transfer, code, "the connection ended before the transfer began");
    }
    if (peer.transfers_posted == 0) return;
    transfers_.for_each_posted([&](RmaOperation& transfer) {
        if (transfer.item.peer == peer.id) transfer.cut_code = code;
    });
}

// Whether a get of this side is posted; its connection must not be closed before it completes.
// `av_entry`: on that address; nullptr: on any.
bool OfiEndpoint::has_pending_rma(const AvEntry* av_entry) const {
    if (!traits_.close_breaks_gets) return false;
    return transfers_.any_posted([&](const RmaOperation& transfer) {
        return (!av_entry || transfer.av_entry == av_entry) && transfer.item.kind == RmaKind::get;
    });
}

// Whether the reply to such a get has begun to arrive.
bool OfiEndpoint::has_pending_gets(const AvEntry* av_entry) const {
    if (!traits_.close_breaks_gets) return false;
    return transfers_.any_posted([&](const RmaOperation& transfer) {
        return (!av_entry || transfer.av_entry == av_entry) &&
               transfers_.is_arriving(transfer.item);
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
