// One direction of a connection: a byte ring between exactly one writer and one reader.
//
// The bytes are mapped twice in a row, so that a record that wraps is contiguous for both sides.
// A record is an 8-byte header {bytes, kind} and the message, rounded up to 16. Writer and reader
// keep their own position and what they last saw of the other's in private memory; the shared words
// are only looked at when these do not suffice.
//
// Publishing is one exchange of `tail`: it is also the full barrier between the record and the look
// at whether the reader sleeps. The reader frees space by quarters: a writer can be short of space
// only while more than three quarters are unread, or an unfreed quarter is, and as no message is
// longer than half of the ring, an empty ring always has room.
//
// Everything shared may be scribbled over by the other process at any time: each word is read once
// into private memory and judged there.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <weft/bytes.h>

#include "base/assert.h"

namespace weft::na::sm {

inline constexpr std::size_t ring_bytes = 256 * 1024;
inline constexpr std::size_t record_unit = 16;
inline constexpr std::size_t header_bytes = 8;
inline constexpr std::size_t free_unit = ring_bytes / 4;
// 64 KiB of payload and what core, rpc and protobuf put round it.
inline constexpr std::size_t message_bytes_max = 65 * 1024;
inline constexpr std::size_t eager_bytes_max = 64 * 1024;
inline constexpr std::uint32_t message_kind = 0x6d736721;  // Catches a writer out of step.

static_assert((ring_bytes & (ring_bytes - 1)) == 0);
static_assert(message_bytes_max + header_bytes + record_unit <= ring_bytes - free_unit);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// 128: a pair of cache lines, which processors fetch together.
struct RingWords {
    alignas(128) std::atomic<std::uint64_t> tail;        // Writer's: bytes published.
    alignas(128) std::atomic<std::uint64_t> head;        // Reader's: bytes freed.
    alignas(128) std::atomic<std::uint32_t> want_space;  // Writer's: wake me when you free some.
    alignas(128) std::atomic<std::uint32_t> accessing;   // Writer's: region_table.h, Access.
};
static_assert(sizeof(RingWords) == 512);

constexpr std::size_t record_bytes(std::size_t message_bytes) {
    return (header_bytes + message_bytes + record_unit - 1) / record_unit * record_unit;
}

class RingWriter {
  public:
    RingWriter() = default;
    RingWriter(RingWords* words, std::byte* data) : words_(words), data_(data) {}

    // Where the next message of up to `bytes` goes, or nullptr: full (the reader is asked to wake
    // us) or the reader broke the ring: is_broken().
    std::byte* claim(std::size_t bytes) noexcept {
        const std::size_t record = record_bytes(bytes);
        if (tail_ - head_seen_ > ring_bytes - record && !look_for_space(record)) [[unlikely]] {
            return nullptr;
        }
        return data_ + (tail_ & (ring_bytes - 1)) + header_bytes;
    }

    // Completes the claimed record, not visible yet.
    void commit(std::size_t bytes) noexcept {
        const std::uint64_t header = bytes | std::uint64_t{message_kind} << 32;
        std::memcpy(data_ + (tail_ & (ring_bytes - 1)), &header, sizeof header);
        tail_ += record_bytes(bytes);
    }

    // Makes everything committed visible; a full barrier.
    void publish() noexcept { words_->tail.exchange(tail_, std::memory_order_seq_cst); }

    // Whether a message that was refused may fit now.
    bool has_space() noexcept {
        return read_head() && tail_ - head_seen_ <= ring_bytes - record_bytes(message_bytes_max);
    }
    bool is_broken() const { return broken_; }
    RingWords& words() const { return *words_; }

  private:
    bool read_head() noexcept {
        const std::uint64_t head = words_->head.load(std::memory_order_acquire);
        if (head % record_unit != 0 || head - head_seen_ > tail_ - head_seen_) {
            broken_ = true;
            return false;
        }
        head_seen_ = head;
        return true;
    }

    // Dekker with RingReader::free(): either we see the space or the reader sees the wish.
    [[gnu::noinline, gnu::cold]] bool look_for_space(std::size_t record) noexcept {
        if (!read_head()) return false;
        if (tail_ - head_seen_ <= ring_bytes - record) return true;
        words_->want_space.exchange(1, std::memory_order_seq_cst);
        return read_head() && tail_ - head_seen_ <= ring_bytes - record;
    }

    RingWords* words_ = nullptr;
    std::byte* data_ = nullptr;
    std::uint64_t tail_ = 0;
    std::uint64_t head_seen_ = 0;
    bool broken_ = false;
};

class RingReader {
  public:
    RingReader() = default;
    RingReader(RingWords* words, const std::byte* data)
        : words_(words), tail_(&words->tail), data_(data) {}

    // Whether records are published that were not taken. Cost: one load.
    bool has_records() const noexcept { return tail_->load(std::memory_order_acquire) != head_; }

    // Ends what can be taken at what is published now, whatever the writer does. `copy` must
    // outlive the reader.
    void freeze(std::atomic<std::uint64_t>& copy) noexcept {
        copy.store(tail_->load(std::memory_order_acquire), std::memory_order_relaxed);
        tail_ = &copy;
    }

    enum class Take : std::uint8_t { empty, no_room, message, broken };

    // Copies the next message to the front of `into` and says how long it is. `no_room`: it needs
    // more than into.size(), later calls will give it.
    Take take(Bytes into, std::size_t* bytes) noexcept {
        if (tail_seen_ == head_) {
            const std::uint64_t tail = tail_->load(std::memory_order_acquire);
            if (tail == head_) return Take::empty;
            if (tail - head_ > ring_bytes || tail % record_unit != 0) return Take::broken;
            tail_seen_ = tail;
        }
        const std::byte* record = data_ + (head_ & (ring_bytes - 1));
        std::uint64_t header;
        std::memcpy(&header, record, sizeof header);
        std::atomic_signal_fence(
            std::memory_order_seq_cst);  // Read once: the writer may change it.
        const std::size_t length = header & 0xffff'ffff;
        if (header >> 32 != message_kind || length > message_bytes_max ||
            record_bytes(length) > tail_seen_ - head_) {
            return Take::broken;
        }
        if (length > into.size()) return Take::no_room;
        std::memcpy(into.data(), record + header_bytes, length);
        head_ += record_bytes(length);
        *bytes = length;
        return Take::message;
    }

    // Frees what was taken, if it is worth it. True: the writer asked to be woken.
    bool free() noexcept {
        if (head_ - head_freed_ < free_unit) [[likely]]
            return false;
        head_freed_ = head_;
        words_->head.exchange(head_, std::memory_order_seq_cst);
        return words_->want_space.load(std::memory_order_relaxed) != 0 &&
               words_->want_space.exchange(0, std::memory_order_seq_cst) != 0;
    }

    RingWords& words() const { return *words_; }

  private:
    RingWords* words_ = nullptr;
    const std::atomic<std::uint64_t>* tail_ = nullptr;
    const std::byte* data_ = nullptr;
    std::uint64_t head_ = 0;
    std::uint64_t tail_seen_ = 0;
    std::uint64_t head_freed_ = 0;
};

}  // namespace weft::na::sm
