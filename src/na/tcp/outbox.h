// Outgoing messages: the caller writes them once, into chunks that are sent as they are.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <span>

#include <weft/bytes.h>

namespace weft::na::tcp {

inline constexpr std::size_t chunk_bytes = 256 * 1024;

struct Chunk {
    std::unique_ptr<Chunk> next;
    std::uint32_t begin = 0;  // Bytes before it are sent.
    std::uint32_t end = 0;
    alignas(64) std::byte bytes[chunk_bytes];
};

// Unused chunks of an endpoint: only its busy peers have chunks.
class ChunkPool {
  public:
    // nullptr: no memory.
    std::unique_ptr<Chunk> take() noexcept;
    void give_back(std::unique_ptr<Chunk> chunk) noexcept;

  private:
    static constexpr std::uint32_t kept_max = 16;
    std::unique_ptr<Chunk> free_;  // A list, the chunk used last first.
    std::uint32_t kept_ = 0;
};

class Outbox {
  public:
    // Bytes queued for a full socket beyond which reserve() fails.
    static constexpr std::size_t queued_bytes_max = 512 * 1024;

    bool empty() const { return queued_ == 0; }
    std::size_t queued() const { return queued_; }

    // Room for `bytes`, at most chunk_bytes, at a multiple of 8. nullptr: full, or no memory.
    std::byte* claim(std::size_t bytes, ChunkPool& pool) noexcept;
    // Keeps the first `bytes` of the claim and pads them to a multiple of 8. 0 abandons the claim.
    void commit(std::size_t bytes, ChunkPool& pool) noexcept;

    // The bytes to send, in order; returns the number of pieces.
    std::size_t gather(std::span<iovec> pieces) noexcept;
    void sent(std::size_t bytes, ChunkPool& pool) noexcept;
    void clear(ChunkPool& pool) noexcept;

  private:
    void drop_first(ChunkPool& pool) noexcept;

    std::unique_ptr<Chunk> first_;
    Chunk* last_ = nullptr;
    std::size_t queued_ = 0;
};

}  // namespace weft::na::tcp
