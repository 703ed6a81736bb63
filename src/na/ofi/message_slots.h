// Message memory of one endpoint, allocated once: slots for sends, buffers for receives.
//
// Each incoming message gets its own buffer. libfabric's multi-receive would put many into one, but
// its release flag may overtake messages that still arrive in the same buffer (rxm 1.17 hands
// pieces to several sockets at once). A peer that dies halfway would leave a hole that nothing
// reports.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/assert.h"
#include "base/intrusive_list.h"
#include "na/common/send_backlog.h"
#include "na/ofi/wire.h"

namespace weft::na::ofi {

// The context of an operation: its completion returns this address.
struct OperationContext {
    enum class Kind : std::uint8_t { send, receive, transfer };
    explicit OperationContext(Kind k) : kind(k) {}
    Kind kind;
};

// Memory for messages side by side, each behind its prefix.
class MessageMemory {
  public:
    MessageMemory(std::uint32_t count, std::size_t message_bytes)
        : stride_((sizeof(Prefix) + message_bytes + 63) / 64 * 64),
          memory_(new (std::align_val_t{4096}) std::byte[stride_ * count]) {}

    std::byte* at(std::uint32_t i) const { return memory_.get() + stride_ * i; }
    std::size_t stride() const { return stride_; }

  private:
    struct Free {
        void operator()(std::byte* memory) const {
            ::operator delete[](memory, std::align_val_t{4096});
        }
    };
    std::size_t stride_;
    std::unique_ptr<std::byte, Free> memory_;
};

struct SendSlot : OperationContext, base::ListNode {
    SendSlot() : OperationContext(Kind::send) {}

    std::byte* frames() const { return message + sizeof(Prefix); }

    void reset() {
        WEFT_DCHECK(under_way == 0);
        used = sent = 0;
    }

    std::byte* message = nullptr;  // Room for the prefix, then the frames.
    std::uint32_t used = 0;        // Bytes of frames.
    std::uint32_t sent = 0;        // Bytes of them that libfabric has accepted.
    std::uint32_t under_way = 0;   // Pieces without a completion yet.
    PeerId peer;
    std::array<Prefix, pieces_max - 1> later;  // Prefixes of all pieces but the first.
};

struct ReceiveBuffer : OperationContext {
    ReceiveBuffer() : OperationContext(Kind::receive) {}
    std::byte* message = nullptr;
};

class ReceiveBuffers {
  public:
    ReceiveBuffers(std::uint32_t count, std::size_t message_bytes)
        : memory_(count, message_bytes), buffers_(count) {
        // In reverse, as they are taken from the end.
        idle_.reserve(count);
        for (std::uint32_t i = count; i-- > 0;) {
            buffers_[i].message = memory_.at(i);
            idle_.push_back(&buffers_[i]);
        }
    }

    ReceiveBuffer* take_idle() {
        if (idle_.empty()) return nullptr;
        ReceiveBuffer* buffer = idle_.back();
        idle_.pop_back();
        return buffer;
    }
    void give_back(ReceiveBuffer& buffer) {
        WEFT_DCHECK(idle_.size() < buffers_.size());
        idle_.push_back(&buffer);
    }
    bool has_idle() const { return !idle_.empty(); }
    std::size_t bytes() const { return memory_.stride(); }

    // The buffer that contains `bytes` of a message; nullptr: none.
    ReceiveBuffer* find(const std::byte* bytes) {
        const auto at = reinterpret_cast<std::uintptr_t>(bytes) -
                        reinterpret_cast<std::uintptr_t>(memory_.at(0));
        return at < buffers_.size() * memory_.stride() ? &buffers_[at / memory_.stride()] : nullptr;
    }

  private:
    MessageMemory memory_;
    std::vector<ReceiveBuffer> buffers_;
    std::vector<ReceiveBuffer*> idle_;
};

}  // namespace weft::na::ofi
