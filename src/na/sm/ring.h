// One direction of a connection: a byte ring between exactly one writer and one reader, and an
// inline slot for a small message to a reader that waits.
//
// The bytes are mapped twice in a row, so that a record that wraps is contiguous for both sides. A
// record is an 8-byte header {bytes, kind} and the message, rounded up to 16. Writer and reader
// keep their own position and the other's, as last seen, in private memory; they load the shared
// words only when these do not suffice.
//
// The inline slot lies in the very cache lines that the reader polls for `tail`, so that a small
// message crosses between the processors once, not twice (index, then record): a round trip of 64
// bytes costs 1.2 instead of 2.1 of a bare cache line's. It holds at most one message, which is the
// record at the position it names and takes one unit of the ring there. The writer may overwrite
// the slot once it has seen that the reader took the message: by `taken`, which travels with the
// reader's own messages in the other direction. Without such messages, or when several messages are
// in flight, the ring is used.
//
// Publishing is a store of `tail` and a full barrier after it, before the check whether the reader
// sleeps; an exchange would lose the line to the reader between the record and the tail. The reader
// frees space by quarters: after a quarter of the ring was taken there is room for the largest
// message again, whatever was taken since.
//
// The other process may overwrite everything shared at any time: each word is read once into
// private memory and validated there.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <weft/bytes.h>

#include "base/assert.h"
#include "na/sm/dekker.h"

namespace weft::na::sm {

// Another size, here or in the structs below, is another layout: raise layout_version of
// handshake.cc, and mend docs/wire-format.md.
inline constexpr std::size_t ring_bytes = 256 * 1024;
inline constexpr std::size_t record_unit = 16;
inline constexpr std::size_t header_bytes = 8;
inline constexpr std::size_t free_unit = ring_bytes / 4;
// 64 KiB of payload and the headers of core, rpc and protobuf.
inline constexpr std::size_t message_bytes_max = 65 * 1024;
inline constexpr std::size_t eager_bytes_max = 64 * 1024;
inline constexpr std::uint32_t message_kind = 0x6d736721;  // Detects a writer out of step.
inline constexpr std::size_t inline_near_bytes = 40;
inline constexpr std::size_t inline_bytes_max = inline_near_bytes + 64;

static_assert((ring_bytes & (ring_bytes - 1)) == 0);
static_assert(message_bytes_max + header_bytes + record_unit <= ring_bytes - free_unit);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// 128: a pair of cache lines, which processors fetch together.
struct RingWords {
    // Writer's: bytes published; the position of the inline record << 8 | its bytes + 1; bytes that
    // the writer has taken from the other direction.
    alignas(128) std::atomic<std::uint64_t> tail;
    std::atomic<std::uint64_t> inline_slot;
    std::atomic<std::uint64_t> taken;
    std::byte inline_near[inline_near_bytes];
    std::byte inline_far[64];

    alignas(128) std::atomic<std::uint64_t> head;        // Reader's: bytes freed.
    alignas(128) std::atomic<std::uint32_t> want_space;  // Writer's: requests a wake-up when space
                                                         // is freed.
    alignas(128) std::atomic<std::uint32_t> accessing;   // Writer's: see region_table.h.
};
static_assert(sizeof(RingWords) == 512);

constexpr std::size_t record_bytes(std::size_t message_bytes) {
    return (header_bytes + message_bytes + record_unit - 1) / record_unit * record_unit;
}

class RingWriter {
  public:
    RingWriter() = default;
    RingWriter(RingWords* words, std::byte* data) : words_(words), data_(data) {}

    // A draft for the next message of up to `bytes` that uses the inline slot: it is copied to the
    // slot at one go, since the reader polls the slot's lines. nullptr: not inline.
    std::byte* claim_inline(std::size_t bytes) noexcept {
        is_inline_ = tail_ == taken_ && bytes <= inline_bytes_max;
        return is_inline_ ? draft_ : nullptr;
    }

    // Whether the last claim is inline.
    bool is_inline() const { return is_inline_; }

    // Sends the claimed message and stores `taken`, the bytes taken from the other direction. A
    // full barrier.
    void send_inline(std::size_t bytes, std::uint64_t taken) noexcept {
        WEFT_DCHECK(is_inline_ && bytes <= inline_bytes_max);
        RingWords* const words = words_;
        const std::uint64_t tail = tail_;
        // The far line first: a reader that sees the near line finds the far one in transfer
        // already. Always whole, because two fixed copies cost less than a length; the other bytes
        // of the draft were meant for the same reader.
        std::memcpy(words->inline_far, draft_ + inline_near_bytes, sizeof words->inline_far);
        std::atomic_signal_fence(std::memory_order_seq_cst);
        std::memcpy(words->inline_near, draft_, inline_near_bytes);
        words->inline_slot.store(tail << 8 | (bytes + 1), std::memory_order_relaxed);
        words->taken.store(taken, std::memory_order_release);
        publish_up_to(words->tail, tail + record_unit);
        tail_ = tail + record_unit;
    }

    // Memory in the ring for the next message of up to `bytes`. nullptr: the ring is full, and the
    // reader wakes this side when it frees some; or the reader broke the ring: is_broken().
    std::byte* claim(std::size_t bytes) noexcept {
        const std::size_t record = record_bytes(bytes);
        WEFT_DCHECK(bytes <= message_bytes_max);
        if (tail_ - taken_ > ring_bytes - record && !refresh_space(record)) [[unlikely]] {
            return nullptr;
        }
        return data_ + (tail_ & (ring_bytes - 1)) + header_bytes;
    }

    // Completes the claimed record, not visible yet.
    void commit(std::size_t bytes) noexcept {
        WEFT_DCHECK(tail_ - taken_ <= ring_bytes - record_bytes(bytes));
        const std::uint64_t header = bytes | std::uint64_t{message_kind} << 32;
        std::memcpy(data_ + (tail_ & (ring_bytes - 1)), &header, sizeof header);
        tail_ += record_bytes(bytes);
    }

    // Makes everything committed visible and stores `taken`, the bytes taken from the other
    // direction. A full barrier.
    void publish(std::uint64_t taken) noexcept {
        words_->taken.store(taken, std::memory_order_release);
        publish_up_to(words_->tail, tail_);
    }

    // Applies the reader's `taken`. False: an impossible value.
    bool acknowledge(std::uint64_t taken) noexcept {
        if (taken == tail_) [[likely]] {
            taken_ = taken;
            return true;
        }
        if (taken % record_unit != 0 || taken > tail_) return false;
        if (taken > taken_) taken_ = taken;
        return true;
    }

    // Whether a message that was refused may fit now. If not, requests a wake-up again: the reader
    // clears the request with the first quarter that it frees.
    bool has_space() noexcept { return refresh_space(record_bytes(message_bytes_max)); }
    bool is_broken() const { return broken_; }
    RingWords& words() const { return *words_; }

  private:
    bool take_head(std::uint64_t head) noexcept {
        // The head moves by quarters, so it may be behind taken_; it can't be ahead of the tail.
        if (!acknowledge(head)) broken_ = true;
        return !broken_;
    }

    // Either this side sees the space or the reader sees the request.
    [[gnu::noinline, gnu::cold]] bool refresh_space(std::size_t record) noexcept {
        WEFT_DCHECK(record <= ring_bytes - free_unit);
        if (!take_head(words_->head.load(std::memory_order_acquire))) return false;
        if (tail_ - taken_ <= ring_bytes - record) return true;
        return take_head(request_space(words_->want_space, words_->head)) &&
               tail_ - taken_ <= ring_bytes - record;
    }

    RingWords* words_ = nullptr;
    std::byte* data_ = nullptr;
    std::uint64_t tail_ = 0;
    std::uint64_t taken_ = 0;  // By the reader, as last seen.
    bool is_inline_ = false;
    bool broken_ = false;
    alignas(64) std::byte draft_[inline_bytes_max] = {};
};

class RingReader {
  public:
    RingReader() = default;
    RingReader(RingWords* words, const std::byte* data)
        : words_(words), tail_(&words->tail), data_(data) {}

    // The end of the published bytes: has_records() when it is not taken(). Cost: one load.
    std::uint64_t published() const noexcept {
        // The far line of the inline slot is fetched together with the tail, not after it.
        __builtin_prefetch(words_->inline_far);
        return tail_->load(std::memory_order_acquire);
    }
    bool has_records() const noexcept { return published() != head_; }

    // The common case: if one inline message is all that is published, copies it to `into`, which
    // has room for inline_bytes_max whatever its length.
    bool take_single_inline(std::uint64_t published, std::byte* into, std::size_t* bytes,
                            std::uint64_t* acknowledged) noexcept {
        const RingWords* const words = words_;
        *bytes = words->inline_slot.load(std::memory_order_relaxed) - (head_ << 8) - 1;
        if (published - head_ != record_unit || *bytes > inline_bytes_max) return false;
        *acknowledged = words->taken.load(std::memory_order_acquire);
        tail_seen_ = head_ = published;
        copy_inline(*words, into);
        return true;
    }

    // Makes the published records ready for take().
    void refresh() noexcept {
        tail_seen_ = tail_->load(std::memory_order_acquire);
        const std::uint64_t inline_message = words_->inline_slot.load(std::memory_order_relaxed);
        inline_bytes_ = (inline_message & 0xff) - 1;
        inline_at_ = inline_message >> 8;
        acknowledged_ = words_->taken.load(std::memory_order_acquire);
    }

    // Limits take() to the records that are published now, whatever the writer does. `copy` must
    // outlive the reader.
    void freeze(std::atomic<std::uint64_t>& copy) noexcept {
        copy.store(tail_->load(std::memory_order_acquire), std::memory_order_relaxed);
        tail_ = &copy;
    }

    enum class Take : std::uint8_t { message, no_room, broken };

    // Copies the next message to the front of `into` and stores its length; the bytes behind it may
    // be overwritten, up to inline_bytes_max in all. `no_room`: `into` is shorter than that or than
    // the message, which a later call returns.
    Take take(Bytes into, std::size_t* bytes) noexcept {
        if (inline_at_ != head_ || inline_bytes_ > inline_bytes_max) {
            return take_record(into, bytes);
        }
        if (!covers(record_unit)) return Take::broken;
        if (into.size() < inline_bytes_max) return Take::no_room;
        copy_inline(*words_, into.data());
        head_ += record_unit;
        *bytes = inline_bytes_;
        return Take::message;
    }

    // Whether take() has more without loading the shared words.
    bool has_more() const { return tail_seen_ != head_; }

    // Bytes taken so far, for RingWriter::publish() of the other direction.
    std::uint64_t taken() const { return head_; }
    // The writer's `taken` of the other direction, as published with the taken records.
    std::uint64_t acknowledged() const { return acknowledged_; }

    // Frees the taken records, if they are a quarter of the ring. True: the writer requested a
    // wake-up.
    bool free() noexcept {
        WEFT_DCHECK(head_freed_ <= head_);
        if (head_ - head_freed_ < free_unit) [[likely]] {
            return false;
        }
        head_freed_ = head_;
        return free_up_to(words_->head, head_, words_->want_space);
    }

    RingWords& words() const { return *words_; }

  private:
    // Whether the tail, as seen, is possible and covers a record of that size.
    bool covers(std::size_t record) const noexcept {
        const std::uint64_t seen = tail_seen_ - head_;
        return seen <= ring_bytes && seen % record_unit == 0 && record <= seen;
    }

    // Always whole, as it was written.
    static void copy_inline(const RingWords& words, std::byte* into) noexcept {
        std::memcpy(into, words.inline_near, inline_near_bytes);
        std::memcpy(into + inline_near_bytes, words.inline_far, sizeof words.inline_far);
    }

    Take take_record(Bytes into, std::size_t* bytes) noexcept {
        const std::byte* record = data_ + (head_ & (ring_bytes - 1));
        std::uint64_t header;
        std::memcpy(&header, record, sizeof header);
        std::atomic_signal_fence(std::memory_order_seq_cst);  // Read once: it may change.
        const std::size_t length = header & 0xffff'ffff;
        if (header >> 32 != message_kind || length > message_bytes_max ||
            !covers(record_bytes(length))) [[unlikely]] {
            return Take::broken;
        }
        if (length > into.size()) return Take::no_room;
        std::memcpy(into.data(), record + header_bytes, length);
        head_ += record_bytes(length);
        *bytes = length;
        return Take::message;
    }

    RingWords* words_ = nullptr;
    const std::atomic<std::uint64_t>* tail_ = nullptr;
    const std::byte* data_ = nullptr;
    std::uint64_t head_ = 0;
    std::uint64_t tail_seen_ = 0;
    std::uint64_t head_freed_ = 0;
    std::uint64_t inline_at_ = 0;
    std::uint64_t inline_bytes_ = 0;
    std::uint64_t acknowledged_ = 0;
};

}  // namespace weft::na::sm
