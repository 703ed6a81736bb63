// The memory of incoming messages, until the poll after the one that returned them.
#pragma once

#include <vector>

#include "base/fifo.h"
#include "na/message_pool.h"
#include "na/ofi/message_slots.h"

namespace weft::na::ofi {

class ReceivedMessages {
  public:
    ReceivedMessages(std::uint32_t count, std::size_t buffer_bytes, std::size_t message_bytes)
        : buffers_(count, buffer_bytes), pool_(message_bytes, joined_kept_max) {
        handed_out_.reserve(count);
    }

    ReceiveBuffers& buffers() { return buffers_; }
    // For a message that arrives in pieces. Empty: no memory.
    MessagePool::Buffer take_joined() { return pool_.take(); }
    void drop_joined(MessagePool::Buffer buffer) { pool_.give_back(std::move(buffer)); }
    // All pieces have arrived, and the event of the message is queued.
    void on_joined(MessagePool::Buffer buffer) {
        WEFT_DCHECK(buffer);
        joined_.push(std::move(buffer));
    }

    // The event of the message leaves its queue: the reader has it until free_handed_out().
    void hand_out(const std::byte* message) {
        WEFT_DCHECK(message);
        handed_out_.push_back(message);
    }
    void free_handed_out() {
        for (const std::byte* message : handed_out_) recycle(message);
        handed_out_.clear();
    }

  private:
    static constexpr std::size_t joined_kept_max = 32;

    // Joined messages mostly return in the order of their events.
    void recycle(const std::byte* message) {
        if (ReceiveBuffer* buffer = buffers_.find(message)) return buffers_.give_back(*buffer);
        std::size_t at = 0;
        while (at < joined_.size() && joined_[at].get() != message) ++at;
        WEFT_ASSERT(at < joined_.size());
        pool_.give_back(std::move(joined_[at]));
        if (at == 0) return joined_.pop();
        joined_.erase(at);
    }

    ReceiveBuffers buffers_;
    MessagePool pool_;
    base::Fifo<MessagePool::Buffer> joined_;    // Reported and not yet recycled.
    std::vector<const std::byte*> handed_out_;  // Messages of the last poll.
};

}  // namespace weft::na::ofi
