// Memory for messages side by side, on large pages if possible: an RDMA device translates addresses
// itself, and caches few translations.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <weft/bytes.h>

#include "base/assert.h"

namespace weft::na::verbs {

class MessageMemory {
  public:
    MessageMemory() = default;
    MessageMemory(const MessageMemory&) = delete;
    MessageMemory& operator=(const MessageMemory&) = delete;
    ~MessageMemory();

    // Call once. False: no memory.
    bool make(std::uint32_t count, std::size_t message_bytes, bool on_large_pages);

    std::byte* at(std::uint32_t slot) const {
        WEFT_DCHECK(slot < count_);
        return memory_.data() + stride_ * slot;
    }
    std::size_t stride() const { return stride_; }
    std::uint32_t count() const { return count_; }
    Bytes all() const { return memory_; }
    // The slot in which `bytes` begin. Requires: they lie in one that at() returned.
    std::uint32_t slot_of(const std::byte* bytes) const {
        WEFT_DCHECK(bytes >= memory_.data() && bytes < at(0) + stride_ * count_);
        return static_cast<std::uint32_t>(static_cast<std::size_t>(bytes - memory_.data()) /
                                          stride_);
    }
    // Whether the kernel gave large pages for all of it.
    bool is_on_large_pages() const { return page_shift_ == large_page_shift; }
    // Whether the page of `message` is new to a device that caches 64 pages of this memory, each in
    // the place that its number gives it. Caches the page.
    bool misses_page(const std::byte* message) {
        const auto page = static_cast<std::size_t>(message - memory_.data()) >> page_shift_;
        const auto known = static_cast<std::uint32_t>(page) + 1;
        return std::exchange(pages_[page % pages_.size()], known) != known;
    }

  private:
    bool take_from_pool(std::size_t bytes);

    static constexpr unsigned page_shift = 12, large_page_shift = 21;

    Bytes reserved_;  // Contains memory_; the rest is inaccessible.
    Bytes memory_;
    std::size_t stride_ = 0;
    std::uint32_t count_ = 0;
    unsigned page_shift_ = page_shift;
    std::array<std::uint32_t, 64> pages_{};  // Page numbers plus one.
};

}  // namespace weft::na::verbs
