// Memory that peers may touch, and transfers from and to theirs.
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
    if (exposure.region >= regions_max || exposure.memory.empty() ||
        exposure.access == Access::none) {
        return fail(Code::invalid_argument, "can't expose 0 bytes, nor without any access");
    }
    if (regions_.size() <= exposure.region) regions_.resize(exposure.region + 1);
    Region& region = regions_[exposure.region];
    if (region.taken) {
        return fail(Code::already_exists,
                    "region " + std::to_string(exposure.region) + " is exposed already");
    }
    region.exposure = exposure;
    // The fabric's key is a secret of its own: the reference's key never travels to it.
    region.fabric = {0, parts_.random.next()};
    if (!fabric_ && row_.keys_of_card) {
        if (Status status = open_for_keys(); !status.ok()) return status;
    }
    region.taken = true;
    // Without a fabric yet the memory is registered when the first connection opens it.
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
        return fail(Code::resource_exhausted, "libfabric can't register " +
                                                  std::to_string(exposure.memory.size()) +
                                                  " bytes: " + describe(error) +
                                                  (row_.keys_of_card ? "; " + room_needed() : ""));
    }
    region.memory.reset(memory);
    if (attr.mr_mode & FI_MR_PROV_KEY) region.fabric.key = fi_mr_key(memory);
    if (attr.mr_mode & FI_MR_VIRT_ADDR) {
        region.fabric.address = reinterpret_cast<std::uintptr_t>(exposure.memory.data());
    }
    return {};
}

// Over a card the end of the registration waits for accesses that are under way and lets no later
// one in. Over TCP it refuses new accesses but not one under way (libfabric 1.17: 510 of 512 MiB
// landed after it), so where a holder was lost before it acknowledged, the connections that lost
// peers used end here; the fence waits for those that can't end yet, unless nobody ever was on
// them.
void OfiEndpoint::fence(std::uint32_t region, Holders holders) {
    if (region >= regions_.size()) regions_.resize(region + 1);
    if (!withdraw(regions_[region])) return;
    if (holders == Holders::lost && !row_.closing_fences) cut_lost_peers(region);
    if (!exposes()) gone_.clear();
    if (regions_[region].fenced_by == 0) emit_fenced(region);
}

// False: the card does not let go of it. Then it stays as it is, and its memory is never given
// back.
bool OfiEndpoint::withdraw(Region& region) {
    if (fid_mr* memory = region.memory.release()) {
        const int error = fi_close(&memory->fid);
        if (error && row_.closing_fences) {
            parts_.log.error(std::string(row_.scheme) + ": the card does not let go of region " +
                             std::to_string(region.exposure.region) + ": " + describe(error) +
                             "; it is never fenced");
            region.memory.reset(memory);
            return false;
        }
    }
    region.taken = false;
    return true;
}

void OfiEndpoint::cut_lost_peers(std::uint32_t region) {
    for (const SocketName& name : std::vector(gone_)) {
        if (Link* link = link_to(name)) cut(*link, {});
    }
    for (auto at = links_.begin(); at != links_.end();) {
        Link& link = at->second;
        ++at;
        if (!link.dirty || cut(link, "the connection was closed to fence memory")) continue;
        if (link.word == Link::Word::none) continue;
        link.fences.push_back(region);
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
        Transfer& transfer = *transfers_free_.back();
        transfers_free_.pop_back();
        transfer.item = item;
        transfer.posted = false;
        transfer.cut_code = Code::ok;
        ++accepted;
        PeerEntry* entry = find_up(item.peer);
        if (!entry) {
            finish(transfer, Code::unavailable, "the peer is gone");
            continue;
        }
        if (item.local.empty() || item.local.size() > limits_.rma_bytes_max) {
            finish(transfer, Code::invalid_argument,
                   "a transfer has 1 to " + std::to_string(limits_.rma_bytes_max) + " bytes");
            continue;
        }
        const bool is_get = item.kind == RmaKind::get;
        if (row_.copies_itself && !can_touch(parts_.arena, item.local, is_get)) {
            finish(transfer, Code::failed_precondition,
                   is_get ? local_text_unwritable : local_text_unreadable);
            continue;
        }
        Peer& peer = entry->value;
        peer.waiting.push_back(transfer);
        if (peer.retry.attempts == 0) start_waiting_transfers(*entry);
    }
    return accepted;
}

// False: the peer is gone.
bool OfiEndpoint::start_waiting_transfers(PeerEntry& entry) {
    Peer& peer = entry.value;
    while (Transfer* transfer = peer.waiting.front()) {
        transfer->unlink();
        switch (post_transfer(peer, *transfer)) {
            case Sent::ok:
                peer.retry.attempts = 0;
                transfer->posted = true;
                transfer->link = peer.link;
                ++peer.transfers_posted;
                break;
            case Sent::again: peer.waiting.push_front(*transfer); return blocked(entry);
            case Sent::failed:
                finish(*transfer, Code::internal, "libfabric refused a transfer");
                break;
        }
    }
    return true;
}

OfiEndpoint::Sent OfiEndpoint::post_transfer(Peer& peer, Transfer& transfer) {
    const RmaItem& item = transfer.item;
    iovec local{item.local.data(), item.local.size()};
    fi_rma_iov remote{item.fabric.address + item.offset, item.local.size(), item.fabric.key};
    fi_msg_rma message{};
    message.msg_iov = &local;
    message.iov_count = 1;
    message.addr = peer.link->address;
    message.rma_iov = &remote;
    message.rma_iov_count = 1;
    message.context = static_cast<Operation*>(&transfer);
    if (row_.breaks_answers && item.kind == RmaKind::get && item.local.size() >= sizeof unread_) {
        std::memcpy(item.local.data(), unread_.data(), sizeof unread_);
    }
    // Without delivery-complete a put is "done" when it left our socket, even out of range.
    const ssize_t error =
        item.kind == RmaKind::put
            ? fi_writemsg(fabric_->ep(), &message, FI_COMPLETION | FI_DELIVERY_COMPLETE)
            : fi_readmsg(fabric_->ep(), &message, FI_COMPLETION);
    peer.link->said(error);
    if (error == 0) return Sent::ok;
    return error == -FI_EAGAIN ? Sent::again : Sent::failed;
}

// The one place where a transfer ends: libfabric no longer knows `item.local`.
void OfiEndpoint::finish(Transfer& transfer, Code code, std::string why) {
    if (transfer.posted) {
        if (PeerEntry* entry = find(transfer.item.peer)) --entry->value.transfers_posted;
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

// The peer goes: what libfabric has not got ends now, the rest when the connection was cut, which
// flushes it.
void OfiEndpoint::end_transfers(PeerEntry& entry, Code code) {
    Peer& peer = entry.value;
    while (Transfer* transfer = peer.waiting.pop_front()) {
        finish(*transfer, code, "the connection ended before the transfer began");
    }
    if (peer.transfers_posted == 0) return;
    for (Transfer& transfer : transfers_) {
        if (transfer.posted && transfer.item.peer == id_of(entry)) transfer.cut_code = code;
    }
}

// An answer to a get of ours comes in: some of it is there, and libfabric has not said that all is.
// What is smaller than the mark comes in one piece.
bool OfiEndpoint::is_arriving(const Transfer& transfer) const {
    const RmaItem& item = transfer.item;
    return transfer.posted && item.kind == RmaKind::get && item.local.size() >= sizeof unread_ &&
           std::memcmp(item.local.data(), unread_.data(), sizeof unread_) != 0;
}

// A get of ours has no end yet, and its connection can't be cut in the middle of it. On this link,
// or nullptr: on any.
bool OfiEndpoint::is_asking(const Link* link) const {
    if (!row_.breaks_answers) return false;
    return std::any_of(transfers_.begin(), transfers_.end(), [&](const Transfer& transfer) {
        return (!link || transfer.link == link) && transfer.posted &&
               transfer.item.kind == RmaKind::get;
    });
}

// The same of an answer that comes in.
bool OfiEndpoint::is_reading(const Link* link) const {
    if (!row_.breaks_answers) return false;
    return std::any_of(transfers_.begin(), transfers_.end(), [&](const Transfer& transfer) {
        return (!link || transfer.link == link) && is_arriving(transfer);
    });
}

// At the end: nothing is handed out any more.
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
        auto* operation = static_cast<Operation*>(entry.op_context);
        if (operation && operation->kind == Operation::Kind::transfer) {
            static_cast<Transfer*>(operation)->posted = false;
        }
    }
}

// Peers that heard our bye close their side within `linger`, those that died have done so. False:
// one stands still.
bool OfiEndpoint::finish_reading() {
    constexpr int waits_max = 300;  // Milliseconds.
    static_assert(answers_begin < 1ms * waits_max);
    for (int waits = 0; waits < waits_max; ++waits) {
        drop_completions();
        if (!is_reading(nullptr) && (!is_asking(nullptr) || 1ms * waits >= answers_begin)) {
            return true;
        }
        (void)::poll(nullptr, 0, 1);
    }
    return !is_reading(nullptr);
}

}  // namespace weft::na::ofi
