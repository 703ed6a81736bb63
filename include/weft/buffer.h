// Memory for bulk transfers.
#pragma once

#include <memory>
#include <utility>

#include <weft/bytes.h>
#include <weft/callback.h>
#include <weft/refuse.h>

namespace weft {

namespace base {
struct BufferAccess;
}

// A shared handle on a block of memory, or on a slice of one. The block is released when the last
// handle, region and transfer that holds it is destroyed, so a transfer never outlives its memory.
//
// Thread: handles may be copied and dropped on any thread; synchronising access to the bytes is the
// caller's task.
class Buffer {
  public:
    // Empty, as after a move: no bytes. It can't be exposed (INVALID_ARGUMENT), and a transfer of
    // it moves nothing.
    Buffer() = default;
    Buffer(const Buffer&) = default;
    Buffer& operator=(const Buffer&) = default;
    Buffer(Buffer&& other) noexcept
        : owner_(std::move(other.owner_)), memory_(std::exchange(other.memory_, {})) {}
    Buffer& operator=(Buffer&& other) noexcept {
        owner_ = std::move(other.owner_);
        memory_ = std::exchange(other.memory_, {});
        return *this;
    }

    // Memory of the caller's own, outside the arena; `release` runs when nothing uses it any more,
    // on any thread, and must not throw. For memory to be exposed, Runtime::allocate() is better.
    static Buffer adopt(Bytes memory, Callback<void()> release) {
        return Buffer(std::shared_ptr<void>(memory.data(),
                                            [release = std::move(release)](void*) {
                                                if (release) release();
                                            }),
                      memory);
    }

    Bytes bytes() const { return memory_; }
    std::byte* data() const { return memory_.data(); }
    std::size_t size() const { return memory_.size(); }
    // True also for a slice of 0 bytes.
    explicit operator bool() const { return owner_ != nullptr; }

    // Requires: offset + bytes <= size(); anything else aborts the program with a message.
    Buffer slice(std::size_t offset, std::size_t bytes) const {
        if (!detail::is_inside(offset, bytes, size()))
            detail::refuse_range("Buffer::slice()", offset, bytes, size());
        return Buffer(owner_, memory_.subspan(offset, bytes));
    }

  private:
    friend struct base::BufferAccess;
    Buffer(std::shared_ptr<void> owner, Bytes memory) : owner_(std::move(owner)), memory_(memory) {}

    std::shared_ptr<void> owner_;
    Bytes memory_;
};

}  // namespace weft
