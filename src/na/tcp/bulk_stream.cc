#include "na/tcp/bulk_stream.h"

#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "base/user_memory.h"

namespace weft::na::tcp {

std::size_t BulkReader::room(std::size_t bytes_max, Bytes discard_buffer, iovec* pieces) noexcept {
    std::size_t count = 0;
    // All bytes of the buffer have been processed.
    if (begin_ == end_) begin_ = end_ = 0;
    if (left_ > 0) {
        WEFT_DCHECK(end_ == 0);
        const Bytes body =
            to_ ? Bytes(to_, left_)
                : discard_buffer.first(std::min<std::size_t>(discard_buffer.size(), left_));
        const std::size_t bytes = std::min(body.size(), bytes_max);
        pieces[count++] = {body.data(), bytes};
        if (bytes < left_) return count;
    }
    pieces[count++] = {buffer_ + end_, buffer_bytes - end_};
    return count;
}

void BulkReader::on_read(std::size_t bytes) noexcept {
    if (left_ > 0) {
        const auto body = static_cast<std::uint32_t>(std::min<std::size_t>(bytes, left_));
        if (to_) to_ += body;
        left_ -= body;
        ended_ = left_ == 0;
        bytes -= body;
    }
    end_ += bytes;
    WEFT_ASSERT(end_ <= buffer_bytes);
}

BulkReader::Step BulkReader::step(const Arena* arena) noexcept {
    WEFT_DCHECK(begin_ <= end_ && end_ <= buffer_bytes);
    if (left_ > 0) {  // The start of the body arrived with the head.
        const auto here = static_cast<std::uint32_t>(std::min<std::size_t>(left_, end_ - begin_));
        if (to_ && here > 0) {
            const ByteView start(buffer_ + begin_, here);
            const Bytes body(to_, here);
            const bool written =
                arena ? write_memory(*arena, body, start) : base::copy_to_user(body, start);
            if (written) {
                to_ += here;
            } else {
                on_write_failed();
            }
        }
        begin_ += here;
        left_ -= here;
        if (left_ > 0) return Step::more;
        ended_ = true;
    }
    if (std::exchange(ended_, false)) return Step::body_end;
    if (end_ - begin_ >= sizeof head_) {
        head_ = base::load<BulkHead>(buffer_ + begin_);
        begin_ += sizeof head_;
        return Step::head;
    }
    std::memmove(buffer_, buffer_ + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    return Step::more;
}

static bool has_body(const BulkHead& head) {
    return head.op == BulkOp::put || head.op == BulkOp::data;
}

std::size_t BulkWriter::bytes_of(const Item& item) {
    return sizeof(BulkHead) + (has_body(item.head) ? item.head.length : 0);
}

// A remainder up to this size is not worth a turn of its own.
static constexpr std::size_t crumb_bytes = 4096;

std::size_t BulkWriter::gather(std::span<iovec> pieces, std::size_t bytes_max) noexcept {
    alignas(64) static const std::byte zeroes[64 * 1024] = {};
    std::size_t count = 0;
    for (std::size_t i = 0; i < queue_.size() && pieces.size() - count >= 2; ++i) {
        Item& item = queue_[i];
        const std::size_t begin = std::max<std::size_t>(item.sent, sizeof(BulkHead));
        WEFT_DCHECK(begin <= bytes_of(item));
        const std::size_t left = bytes_of(item) - begin;
        if (left > 0 && bytes_max == 0) break;
        if (item.sent < sizeof(BulkHead)) {
            pieces[count++] = {reinterpret_cast<std::byte*>(&item.head) + item.sent,
                               sizeof(BulkHead) - item.sent};
        }
        if (left == 0) continue;
        std::size_t here = std::min(left, bytes_max);
        if (left - here <= crumb_bytes) here = left;
        if (!item.body) here = std::min(here, sizeof zeroes);
        const std::byte* from = item.body ? item.body + (begin - sizeof(BulkHead)) : zeroes;
        pieces[count++] = {const_cast<std::byte*>(from), here};
        bytes_max -= std::min(here, bytes_max);
        if (here < left) break;
    }
    return count;
}

void BulkWriter::sent(std::size_t bytes) noexcept {
    while (bytes > 0) {
        Item& item = queue_.front();
        WEFT_ASSERT(item.sent < bytes_of(item));
        const std::size_t here = std::min(bytes, bytes_of(item) - item.sent);
        item.sent += static_cast<std::uint32_t>(here);
        bytes -= here;
        if (item.sent == bytes_of(item)) queue_.pop();
    }
}

static bool can_read(const std::byte* from, std::size_t bytes) noexcept {
    constexpr std::size_t page_bytes = 4096;
    std::byte byte;
    for (std::size_t i = 0; i < bytes; i += page_bytes) {
        if (!base::copy_from_user({from + i, 1}, {&byte, 1})) return false;
    }
    return bytes == 0 || base::copy_from_user({from + bytes - 1, 1}, {&byte, 1});
}

std::optional<BulkWriter::Unreadable> BulkWriter::drop_unreadable(std::size_t bytes_max) noexcept {
    for (std::size_t i = 0; i < queue_.size(); ++i) {
        Item& item = queue_[i];
        if (!item.body) continue;
        const std::size_t begin = std::max<std::size_t>(item.sent, sizeof(BulkHead));
        const std::size_t left = std::min(bytes_of(item) - begin, bytes_max + crumb_bytes);
        if (can_read(item.body + (begin - sizeof(BulkHead)), left)) continue;
        const Unreadable found{item.head, item.sent > 0};
        if (item.head.op == BulkOp::data) {
            WEFT_ASSERT(i + 1 < queue_.size());  // Its done.
            BulkHead& done = queue_[i + 1].head;
            done.code = static_cast<std::uint8_t>(code_of(Refusal::unreadable));
            done.why = static_cast<std::uint8_t>(Refusal::unreadable);
        }
        item.body = nullptr;
        item.region = no_owner;
        if (!found.continues) queue_.erase(i);
        return found;
    }
    return std::nullopt;
}

bool BulkWriter::is_sending(std::uint64_t transfer) const noexcept {
    for (std::size_t i = 0; i < queue_.size(); ++i) {
        const BulkHead& head = queue_[i].head;
        if (head.op == BulkOp::put && head.transfer == transfer) return true;
    }
    return false;
}

// The done of a get is right behind its data.
void BulkWriter::revoke(std::uint32_t region) noexcept {
    for (std::size_t i = 0; i < queue_.size();) {
        if (queue_[i].region != region) {
            ++i;
            continue;
        }
        WEFT_ASSERT(i + 1 < queue_.size());
        BulkHead& done = queue_[i + 1].head;
        done.code = static_cast<std::uint8_t>(Code::permission_denied);
        done.why = static_cast<std::uint8_t>(Refusal::revoked);
        if (queue_[i].sent == 0) {
            queue_.erase(i);
        } else {
            queue_[i].body = nullptr;
            queue_[i].region = no_owner;
            ++i;
        }
    }
}

}  // namespace weft::na::tcp
