// One direction of a connection: a byte ring between exactly one writer and one reader, and a
// letter for the small message that finds the reader waiting.
//
// The bytes are mapped twice in a row, so that a record that wraps is contiguous for both sides.
// A record is an 8-byte header {bytes, kind} and the message, rounded up to 16. Writer and reader
// keep their own position and what they last saw of the other's in private memory; the shared words
// are only looked at when these do not suffice.
//
// The letter lies in the very cache lines that the reader watches for `tail`, so that a small
// message crosses between the processors once, not twice (index, then record): a round trip of
// 64 bytes costs 1.2 instead of 2.1 of a bare cache line's. It holds at most one message, which is
// the record at the position it names and takes one unit of the ring there. The writer may write it
// again when it knows that the reader took it: `taken`, which rides on the reader's own messages in
// the other direction. Without answers, or when several messages are under way, the ring is used.
//
// Publishing is a store of `tail` and a full barrier after it, in front of the look at whether the
// reader sleeps; an exchange would lose the line to the reader between the record and the tail.
// The reader frees space by quarters: after a quarter of the ring was taken there is room for the
// largest message again, whatever was taken since.
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
inline constexpr std::size_t letter_near_bytes = 40;
inline constexpr std::size_t letter_bytes_max = letter_near_bytes + 64;

static_assert((ring_bytes & (ring_bytes - 1)) == 0);
static_assert(message_bytes_max + header_bytes + record_unit <= ring_bytes - free_unit);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// 128: a pair of cache lines, which processors fetch together.
struct RingWords {
    // Writer's: bytes published; where the letter's record is << 8 | its bytes + 1; bytes that the
    // writer has taken of the other direction.
    alignas(128) std::atomic<std::uint64_t> tail;
    std::atomic<std::uint64_t> letter;
    std::atomic<std::uint64_t> taken;
    std::byte letter_near[letter_near_bytes];
    std::byte letter_far[64];

    alignas(128) std::atomic<std::uint64_t> head;        // Reader's: bytes freed.
    alignas(128) std::atomic<std::uint32_t> want_space;  // Writer's: wake me when you free some.
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

    // Where the next message of up to `bytes` goes, or nullptr: full (the reader is asked to wake
    // us) or the reader broke the ring: is_broken().
    std::byte* claim(std::size_t bytes) noexcept {
        const std::size_t record = record_bytes(bytes);
        if (tail_ - taken_ > ring_bytes - record && !look_for_space(record)) [[unlikely]] {
            return nullptr;
        }
        // The reader watches the letter's lines: they are written at one go, from a draft.
        drafted_ = bytes <= letter_bytes_max && letter_end_ <= taken_ && tail_ == published_;
        return drafted_ ? draft_ : data_ + (tail_ & (ring_bytes - 1)) + header_bytes;
    }

    // Completes the claimed record, not visible yet.
    void commit(std::size_t bytes) noexcept {
        if (drafted_) return commit_letter(bytes);
        const std::uint64_t header = bytes | std::uint64_t{message_kind} << 32;
        std::memcpy(data_ + (tail_ & (ring_bytes - 1)), &header, sizeof header);
        tail_ += record_bytes(bytes);
    }

    // Makes everything committed visible and tells how much of the other direction we have taken.
    // A full barrier.
    void publish(std::uint64_t taken) noexcept {
        words_->taken.store(taken, std::memory_order_relaxed);
        words_->tail.store(tail_, std::memory_order_release);
        published_ = tail_;
        full_barrier();
    }

    // What the reader says it has taken. Errors: false when it can't have.
    bool acknowledge(std::uint64_t taken) noexcept {
        if (taken % record_unit != 0 || taken > tail_) return false;
        if (taken > taken_) taken_ = taken;
        return true;
    }

    // Whether a message that was refused may fit now.
    bool has_space() noexcept {
        return read_head() && tail_ - taken_ <= ring_bytes - record_bytes(message_bytes_max);
    }
    bool is_broken() const { return broken_; }
    RingWords& words() const { return *words_; }

  private:
    static void full_barrier() noexcept {
#ifdef __SANITIZE_THREAD__  // Knows no fences.
        std::atomic<int> word{0};
        word.exchange(1, std::memory_order_seq_cst);
#else
        std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
    }

    // The far line first: the reader that sees the near one finds the far one on its way. Always
    // whole, because two fixed copies cost less than a length; what else the draft holds was meant
    // for the same reader.
    void commit_letter(std::size_t bytes) noexcept {
        std::memcpy(words_->letter_far, draft_ + letter_near_bytes, sizeof words_->letter_far);
        std::atomic_signal_fence(std::memory_order_seq_cst);
        std::memcpy(words_->letter_near, draft_, letter_near_bytes);
        words_->letter.store(tail_ << 8 | (bytes + 1), std::memory_order_relaxed);
        tail_ += record_unit;
        letter_end_ = tail_;
    }

    bool read_head() noexcept {
        const std::uint64_t head = words_->head.load(std::memory_order_acquire);
        // It goes by quarters, so it may be behind what we know; it can't be ahead of the tail.
        if (!acknowledge(head)) broken_ = true;
        return !broken_;
    }

    // Dekker with RingReader::free(): either we see the space or the reader sees the wish.
    [[gnu::noinline, gnu::cold]] bool look_for_space(std::size_t record) noexcept {
        if (!read_head()) return false;
        if (tail_ - taken_ <= ring_bytes - record) return true;
        words_->want_space.exchange(1, std::memory_order_seq_cst);
        return read_head() && tail_ - taken_ <= ring_bytes - record;
    }

    RingWords* words_ = nullptr;
    std::byte* data_ = nullptr;
    std::uint64_t tail_ = 0;
    std::uint64_t published_ = 0;
    std::uint64_t taken_ = 0;  // By the reader, as far as we know.
    std::uint64_t letter_end_ = 0;
    bool drafted_ = false;
    bool broken_ = false;
    alignas(64) std::byte draft_[letter_bytes_max] = {};
};

class RingReader {
  public:
    RingReader() = default;
    RingReader(RingWords* words, const std::byte* data)
        : words_(words), tail_(&words->tail), data_(data) {}

    // Whether records are published that were not taken. Cost: one load.
    bool has_records() const noexcept {
        // Of the letter: fetched together with the tail, not after it.
        __builtin_prefetch(words_->letter_far);
        return tail_->load(std::memory_order_acquire) != head_;
    }

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
        if (tail_seen_ == head_ && !look_for_records()) return empty_or_broken_;
        if (letter_at_ == head_) return take_letter(into, bytes);
        const std::byte* record = data_ + (head_ & (ring_bytes - 1));
        std::uint64_t header;
        std::memcpy(&header, record, sizeof header);
        std::atomic_signal_fence(std::memory_order_seq_cst);  // Read once: it may change.
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

    // Bytes taken so far, to be told by RingWriter::publish() of the other direction.
    std::uint64_t taken() const { return head_; }
    // What the writer said it had taken of the other direction, when it published what we took.
    std::uint64_t acknowledged() const { return acknowledged_; }

    // Frees what was taken, if it is worth it. True: the writer asked to be woken.
    bool free() noexcept {
        if (head_ - head_freed_ < free_unit) [[likely]] {
            return false;
        }
        head_freed_ = head_;
        words_->head.exchange(head_, std::memory_order_seq_cst);
        return words_->want_space.load(std::memory_order_relaxed) != 0 &&
               words_->want_space.exchange(0, std::memory_order_seq_cst) != 0;
    }

    RingWords& words() const { return *words_; }

  private:
    static constexpr std::uint64_t nowhere = ~std::uint64_t{0};

    bool look_for_records() noexcept {
        const std::uint64_t tail = tail_->load(std::memory_order_acquire);
        const bool good = tail - head_ <= ring_bytes && tail % record_unit == 0;
        empty_or_broken_ = good ? Take::empty : Take::broken;
        if (tail == head_ || !good) return false;
        tail_seen_ = tail;
        const std::uint64_t letter = words_->letter.load(std::memory_order_relaxed);
        letter_bytes_ = (letter & 0xff) - 1;
        letter_at_ = letter_bytes_ <= letter_bytes_max ? letter >> 8 : nowhere;
        acknowledged_ = words_->taken.load(std::memory_order_relaxed);
        return true;
    }

    Take take_letter(Bytes into, std::size_t* bytes) noexcept {
        if (into.size() < letter_bytes_max) return Take::no_room;
        std::memcpy(into.data(), words_->letter_near, letter_near_bytes);
        std::memcpy(into.data() + letter_near_bytes, words_->letter_far, sizeof words_->letter_far);
        letter_at_ = nowhere;
        head_ += record_unit;
        *bytes = letter_bytes_;
        return Take::message;
    }

    RingWords* words_ = nullptr;
    const std::atomic<std::uint64_t>* tail_ = nullptr;
    const std::byte* data_ = nullptr;
    std::uint64_t head_ = 0;
    std::uint64_t tail_seen_ = 0;
    std::uint64_t head_freed_ = 0;
    std::uint64_t letter_at_ = nowhere;
    std::uint64_t letter_bytes_ = 0;
    std::uint64_t acknowledged_ = 0;
    Take empty_or_broken_ = Take::empty;
};

}  // namespace weft::na::sm
