#include "na/sm/rma_queue.h"

#include <algorithm>

#include "base/user_memory.h"

namespace weft::na::sm {
namespace {

// Holds the region in the `accessing` word during its lifetime (region_table.h describes the
// fence).
class Accessing {
  public:
    Accessing(std::atomic<std::uint32_t>& word, std::uint32_t region) : word_(word) {
        enter_region(word_, region + 1);
    }
    ~Accessing() { leave_region(word_, no_region); }

  private:
    std::atomic<std::uint32_t>& word_;
};

void refuse(RmaQueue::RmaOperation& transfer, Code code, const char* why) {
    WEFT_ASSERT(code != Code::ok && why);
    transfer.code = code;
    transfer.why = why;
}

void refuse_local(RmaQueue::RmaOperation& transfer) {
    refuse(transfer, Code::failed_precondition,
           transfer.item.kind == RmaKind::get ? local_text_unwritable : local_text_unreadable);
}

void copy_private(RmaQueue::RmaOperation& transfer, std::uint64_t address,
                  std::size_t bytes) noexcept {
    Connection& peer = *transfer.connection;
    const PeerMemory::ProbeResult& result =
        peer.memory.probe(peer.socket.get(), peer.regions.nonce());
    if (result.code != Code::ok) return refuse(transfer, result.code, result.why);
    const Bytes local = transfer.item.local.subspan(transfer.done, bytes);
    const bool is_get = transfer.item.kind == RmaKind::get;
    const bool copied =
        is_get ? peer.memory.read(address, local) : peer.memory.write(address, local);
    if (copied) {
        transfer.done += bytes;
    } else if (!peer.memory.is_there()) {
        refuse(transfer, Code::unavailable,
               "the peer's process has ended, or executes another program");
    } else if (!base::is_accessible(local, is_get)) {
        refuse_local(transfer);
    } else {
        refuse(transfer, Code::failed_precondition,
               is_get ? memory_text_unreadable : memory_text_unwritable);
    }
}

}  // namespace

// Validates and copies the next `bytes` of the transfer.
void RmaQueue::copy_slice(RmaOperation& transfer, std::size_t bytes) noexcept {
    WEFT_ASSERT(transfer.connection && bytes <= transfer.item.local.size() - transfer.done);
    const RmaItem& item = transfer.item;
    Connection& peer = *transfer.connection;
    AccessRequest request;
    request.region = item.region;
    request.generation = item.generation;
    request.key = item.key;
    request.offset = item.offset;
    request.bytes =
        item.local.size();  // The whole range: a transfer that can't complete copies nothing.
    request.access = item.kind == RmaKind::get ? Access::read : Access::write;
    Accessing word(peer.writer.words().accessing, item.region);
    const auto target =
        peer.regions.validate(request, peer.arena ? peer.arena->size() : 0, &transfer.why);
    if (!target) {
        transfer.code = Code::permission_denied;
        return;
    }
    if (target->is_private) return copy_private(transfer, target->at + transfer.done, bytes);
    std::byte* arena = peer.arena->data();
    if (!arena) {
        return refuse(
            transfer, Code::resource_exhausted,
            "no address space to map the peer's arena (`ulimit -v`; a smaller arena of both, "
            "by WEFT_ARENA, takes less)");
    }
    const Bytes local = item.local.subspan(transfer.done, bytes);
    const Bytes remote(arena + target->at + transfer.done, bytes);
    const bool copied = item.kind == RmaKind::get ? write_memory(own_, local, remote)
                                                  : read_memory(own_, local, remote);
    if (!copied) return refuse_local(transfer);
    transfer.done += bytes;
}

void RmaQueue::post(const RmaItem& item, Connection* connection, Code code,
                    const char* why) noexcept {
    WEFT_DCHECK(has_room());
    at(posted_++) = RmaOperation{item, connection, 0, code, why};
}

std::size_t RmaQueue::advance(std::size_t budget) noexcept {
    WEFT_DCHECK(taken_ <= copied_ && copied_ <= posted_);
    while (copied_ != posted_) {
        RmaOperation& transfer = at(copied_);
        if (transfer.code == Code::ok) {
            if (budget == 0) break;
            const std::size_t left = transfer.item.local.size() - transfer.done;
            const std::size_t bytes = std::min({left, budget, slice_bytes_max});
            copy_slice(transfer, bytes);
            budget -= bytes;
            if (transfer.code == Code::ok && bytes < left) continue;
        }
        ++copied_;
    }
    return budget;
}

const RmaQueue::RmaOperation* RmaQueue::take() noexcept {
    return taken_ == copied_ ? nullptr : &at(taken_++);
}

bool RmaQueue::has(const Connection& connection) const noexcept {
    for (std::uint64_t i = taken_; i != posted_; ++i) {
        if (ring_[i % rma_depth].connection == &connection) return true;
    }
    return false;
}

void RmaQueue::drop(const Connection& connection, Code code, const char* why) noexcept {
    for (std::uint64_t i = copied_; i != posted_; ++i) {
        RmaOperation& transfer = at(i);
        if (transfer.connection != &connection) continue;
        transfer.connection = nullptr;
        if (transfer.code == Code::ok) refuse(transfer, code, why);
    }
    // Completed transfers keep their result and lose the peer.
    for (std::uint64_t i = taken_; i != copied_; ++i) {
        if (at(i).connection == &connection) at(i).connection = nullptr;
    }
    WEFT_DCHECK(!has(connection));
}

}  // namespace weft::na::sm
