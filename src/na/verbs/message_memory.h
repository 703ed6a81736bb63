// Memory for messages side by side, on large pages where there are some: an RDMA card translates
// addresses by itself, and has few entries to remember that in.
#pragma once

#include <cstddef>
#include <cstdint>

#include <weft/bytes.h>

namespace weft::na::verbs {

class MessageMemory {
  public:
    MessageMemory() = default;
    MessageMemory(const MessageMemory&) = delete;
    MessageMemory& operator=(const MessageMemory&) = delete;
    ~MessageMemory();

    // Once. False: no memory.
    bool make(std::uint32_t count, std::size_t message_bytes, bool on_large_pages);

    std::byte* at(std::uint32_t slot) const { return memory_.data() + stride_ * slot; }
    std::size_t stride() const { return stride_; }
    std::uint32_t count() const { return count_; }
    Bytes all() const { return memory_; }
    // The slot that `bytes` begin in, of those at() gave.
    std::uint32_t slot_of(const std::byte* bytes) const {
        return static_cast<std::uint32_t>(static_cast<std::size_t>(bytes - memory_.data()) /
                                          stride_);
    }

  private:
    Bytes memory_;
    std::size_t stride_ = 0;
    std::uint32_t count_ = 0;
};

}  // namespace weft::na::verbs
