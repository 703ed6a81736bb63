// Memory in which messages that arrive in parts are assembled before delivery.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "base/assert.h"

namespace weft::na {

// Buffers of one size. The pool keeps up to kept_max returned buffers for later messages.
class MessagePool {
  public:
    using Buffer = std::unique_ptr<std::byte[]>;

    MessagePool(std::size_t buffer_bytes, std::size_t kept_max)
        : buffer_bytes_(buffer_bytes), kept_max_(kept_max) {
        WEFT_ASSERT(buffer_bytes != 0);
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
        if (buffer && free_.size() < kept_max_) free_.push_back(std::move(buffer));
    }

  private:
    const std::size_t buffer_bytes_;
    const std::size_t kept_max_;
    std::vector<Buffer> free_;
};

}  // namespace weft::na
