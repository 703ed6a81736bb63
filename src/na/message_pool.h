// Memory for messages that come in parts and are put together before they are handed out.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace weft::na {

// Buffers of one size. A few that are done with wait for the next.
class MessagePool {
  public:
    using Buffer = std::unique_ptr<std::byte[]>;

    explicit MessagePool(std::size_t buffer_bytes) : buffer_bytes_(buffer_bytes) {
        free_.reserve(kept_max);
    }

    // nullptr: no memory.
    Buffer take() noexcept {
        if (free_.empty()) return Buffer(new (std::nothrow) std::byte[buffer_bytes_]);
        Buffer buffer = std::move(free_.back());
        free_.pop_back();
        return buffer;
    }
    void give_back(Buffer buffer) noexcept {
        if (buffer && free_.size() < kept_max) free_.push_back(std::move(buffer));
    }

  private:
    static constexpr std::size_t kept_max = 8;
    const std::size_t buffer_bytes_;
    std::vector<Buffer> free_;
};

}  // namespace weft::na
