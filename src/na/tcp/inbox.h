// Incoming messages: frames are delivered where a read put them; a frame that arrives in parts is
// assembled in memory of its own.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "na/message_pool.h"
#include "na/tcp/wire.h"

namespace weft::na::tcp {

// The largest frame, its padding included.
inline constexpr std::size_t message_bytes_max = 129 * 1024;

// The whole frames at the start of `bytes`. The transport's own frames are removed, and the frames
// behind them move up.
struct Scan {
    bool broken = false;      // An impossible length.
    bool wants_bulk = false;  // A want_bulk was among them.
    bool bye = false;
    std::size_t whole = 0;  // Bytes of the remaining frames, without the last one's padding.
    std::size_t start = 0;  // Where a partial frame begins,
    std::size_t left = 0;   // and how many of its bytes are there.
};
Scan scan_frames(Bytes bytes) noexcept;

// The receive buffer of an endpoint. Delivered bytes stay valid until reset().
class Slab {
  public:
    Slab() : memory_(new std::byte[slab_bytes]) {}

    void reset() noexcept;
    bool has_room() const { return slab_bytes - used_ >= slab_bytes / 8; }
    Bytes room() noexcept { return {memory_.get() + used_, slab_bytes - used_}; }
    // Marks the bytes before `end` as delivered.
    void use(const std::byte* end) {
        used_ = padded(static_cast<std::size_t>(end - memory_.get()));
    }

    MessagePool& pool() { return pool_; }  // For frames that arrive in parts.
    // Keeps delivered memory until the next reset().
    void retain(MessagePool::Buffer memory);

    static constexpr std::size_t slab_bytes = 256 * 1024;

  private:
    std::unique_ptr<std::byte[]> memory_;
    std::size_t used_ = 0;
    MessagePool pool_{message_bytes_max, 8};
    std::vector<MessagePool::Buffer> retained_;
};

// The incoming stream of one peer.
class Inbox {
  public:
    // Memory for the next bytes, at most `bytes_max` in one or two pieces; returns the number of
    // pieces. `one`: at most one message event may result. Requires: slab.has_room().
    std::size_t room(Slab& slab, bool one, std::size_t bytes_max, iovec* pieces) noexcept;

    struct Taken {
        ByteView messages[2];
        std::size_t count = 0;
        bool broken = false;
        bool no_memory = false;
        bool wants_bulk = false;
        bool bye = false;
    };
    // `bytes` were read into that memory.
    Taken on_read(std::size_t bytes, Slab& slab) noexcept;

    void clear(Slab& slab) noexcept;

  private:
    std::size_t missing_bytes() const;
    void add_messages(Bytes bytes, Taken& taken, Scan& scan) noexcept;
    Bytes complete(Bytes fresh, Slab& slab, Taken& taken) noexcept;

    MessagePool::Buffer part_;  // The start of a frame; its rest arrives next.
    std::size_t have_ = 0;
};

}  // namespace weft::na::tcp
