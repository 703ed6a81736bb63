// Messages on their way in: what a read brought is handed out where it lies; a frame that came only
// in part is put together in memory of its own.
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

// The frames at the start of `bytes` that are whole. The transport's own are taken out, and the
// frames behind them move up.
struct Scan {
    bool broken = false;      // An impossible length.
    bool wants_bulk = false;  // A want_bulk was among them.
    bool bye = false;
    std::size_t whole = 0;  // Bytes of the frames that are left, without the last one's padding.
    std::size_t start = 0;  // Where a frame begins that is not whole,
    std::size_t left = 0;   // and how much of it is there.
};
Scan scan_frames(Bytes bytes) noexcept;

// Where the bytes that come to an endpoint lie. What was handed out stays until reset().
class Slab {
  public:
    Slab() : memory_(new std::byte[slab_bytes]) {}

    void reset() noexcept;
    bool has_room() const { return slab_bytes - used_ >= slab_bytes / 8; }
    Bytes room() noexcept { return {memory_.get() + used_, slab_bytes - used_}; }
    // What is before `end` is handed out.
    void use(const std::byte* end) {
        used_ = padded(static_cast<std::size_t>(end - memory_.get()));
    }

    MessagePool& pool() { return pool_; }  // For frames that come in part.
    // Handed out; free with the next reset().
    void lend(MessagePool::Buffer memory);

    static constexpr std::size_t slab_bytes = 256 * 1024;

  private:
    std::unique_ptr<std::byte[]> memory_;
    std::size_t used_ = 0;
    MessagePool pool_{message_bytes_max, 8};
    std::vector<MessagePool::Buffer> lent_;
};

// The incoming stream of one peer.
class Inbox {
  public:
    // Where the next bytes go, at most `bytes_max` in one or two pieces; returns how many. `one`:
    // not more than one message may come of it. Requires: slab.has_room().
    std::size_t room(Slab& slab, bool one, std::size_t bytes_max, iovec* pieces) noexcept;

    struct Taken {
        ByteView messages[2];
        std::size_t count = 0;
        bool broken = false;
        bool no_memory = false;
        bool wants_bulk = false;
        bool bye = false;
    };
    // `bytes` came there.
    Taken took(std::size_t bytes, Slab& slab) noexcept;

    void clear(Slab& slab) noexcept;

  private:
    std::size_t lacks() const;
    void give(Bytes bytes, Taken& taken, Scan& scan) noexcept;
    Bytes complete(Bytes fresh, Slab& slab, Taken& taken) noexcept;

    MessagePool::Buffer part_;  // The start of a frame; its rest is what comes next.
    std::size_t have_ = 0;
};

}  // namespace weft::na::tcp
