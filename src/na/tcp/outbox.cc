#include "na/tcp/outbox.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/assert.h"
#include "na/tcp/wire.h"

namespace weft::na::tcp {

std::unique_ptr<Chunk> ChunkPool::take() noexcept {
    if (!free_) return std::unique_ptr<Chunk>(new (std::nothrow) Chunk);
    std::unique_ptr<Chunk> chunk = std::move(free_);
    WEFT_DCHECK(kept_ != 0);
    free_ = std::move(chunk->next);
    --kept_;
    return chunk;
}

void ChunkPool::give_back(std::unique_ptr<Chunk> chunk) noexcept {
    WEFT_DCHECK(chunk && kept_ <= kept_max);
    if (kept_ == kept_max) return;
    chunk->begin = chunk->end = 0;
    chunk->next = std::move(free_);
    free_ = std::move(chunk);
    ++kept_;
}

std::byte* Outbox::claim(std::size_t bytes, ChunkPool& pool) noexcept {
    WEFT_DCHECK(bytes <= chunk_bytes);
    if (!last_ || chunk_bytes - last_->end < padded(bytes)) {
        if (queued_ >= queued_bytes_max) return nullptr;
        std::unique_ptr<Chunk> chunk = pool.take();
        if (!chunk) return nullptr;
        Chunk* const fresh = chunk.get();
        (last_ ? last_->next : first_) = std::move(chunk);
        last_ = fresh;
    }
    return last_->bytes + last_->end;
}

void Outbox::commit(std::size_t bytes, ChunkPool& pool) noexcept {
    if (bytes == 0) {
        if (queued_ == 0) clear(pool);
        return;
    }
    const std::size_t whole = padded(bytes);
    WEFT_DCHECK(last_ && chunk_bytes - last_->end >= whole);
    std::fill(last_->bytes + last_->end + bytes, last_->bytes + last_->end + whole, std::byte{0});
    last_->end += static_cast<std::uint32_t>(whole);
    queued_ += whole;
}

std::size_t Outbox::gather(std::span<iovec> pieces) noexcept {
    WEFT_DCHECK(!pieces.empty());
    std::size_t count = 0;
    for (Chunk* chunk = first_.get(); chunk && count < pieces.size(); chunk = chunk->next.get()) {
        if (chunk->begin == chunk->end) continue;
        pieces[count++] = {chunk->bytes + chunk->begin, chunk->end - chunk->begin};
    }
    return count;
}

void Outbox::sent(std::size_t bytes, ChunkPool& pool) noexcept {
    WEFT_ASSERT(bytes <= queued_);
    queued_ -= bytes;
    if (queued_ == 0) return clear(pool);
    while (bytes > 0) {
        const std::size_t here = std::min<std::size_t>(bytes, first_->end - first_->begin);
        first_->begin += static_cast<std::uint32_t>(here);
        bytes -= here;
        if (first_->begin == first_->end && first_.get() != last_) drop_first(pool);
    }
}

void Outbox::drop_first(ChunkPool& pool) noexcept {
    WEFT_DCHECK(first_);
    std::unique_ptr<Chunk> chunk = std::move(first_);
    first_ = std::move(chunk->next);
    pool.give_back(std::move(chunk));
}

void Outbox::clear(ChunkPool& pool) noexcept {
    while (first_) drop_first(pool);
    last_ = nullptr;
    queued_ = 0;
}

}  // namespace weft::na::tcp
