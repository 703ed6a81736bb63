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
#include "na/sm/dekker.h"

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

    // Where the next message of up to `bytes` goes as a letter: it is sent from there at one go,
    // since the reader watches the letter's lines. nullptr: not by letter.
    std::byte* claim_letter(std::size_t bytes) noexcept {
        is_letter_ = tail_ == taken_ && bytes <= letter_bytes_max;
        return is_letter_ ? draft_ : nullptr;
    }

    // Whether what was claimed last is a letter.
    bool is_letter() const { return is_letter_; }

    // Sends the claimed letter and says what we took of the other direction. A full barrier.
    void send_letter(std::size_t bytes, std::uint64_t taken) noexcept {
        RingWords* const words = words_;
        const std::uint64_t tail = tail_;
        // The far line first: the reader that sees the near one finds the far one on its way.
        // Always whole, because two fixed copies cost less than a length; what else the draft
        // holds was meant for the same reader.
        std::memcpy(words->letter_far, draft_ + letter_near_bytes, sizeof words->letter_far);
        std::atomic_signal_fence(std::memory_order_seq_cst);
        std::memcpy(words->letter_near, draft_, letter_near_bytes);
        words->letter.store(tail << 8 | (bytes + 1), std::memory_order_relaxed);
        words->taken.store(taken, std::memory_order_release);
        publish_up_to(words->tail, tail + record_unit);
        tail_ = tail + record_unit;
    }

    // Where the next message of up to `bytes` goes in the ring, or nullptr: full (the reader is
    // asked to wake us) or the reader broke the ring: is_broken().
    std::byte* claim(std::size_t bytes) noexcept {
        const std::size_t record = record_bytes(bytes);
        if (tail_ - taken_ > ring_bytes - record && !look_for_space(record)) [[unlikely]] {
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

    // Makes everything committed visible and tells how much of the other direction we have taken.
    // A full barrier.
    void publish(std::uint64_t taken) noexcept {
        words_->taken.store(taken, std::memory_order_release);
        publish_up_to(words_->tail, tail_);
    }

    // What the reader says it has taken. Errors: false when it can't have.
    bool acknowledge(std::uint64_t taken) noexcept {
        if (taken == tail_) [[likely]] {
            taken_ = taken;
            return true;
        }
        if (taken % record_unit != 0 || taken > tail_) return false;
        if (taken > taken_) taken_ = taken;
        return true;
    }

    // Whether a message that was refused may fit now. If not, the reader is asked again to wake us:
    // it forgets the wish with the first quarter that it frees.
    bool has_space() noexcept { return look_for_space(record_bytes(message_bytes_max)); }
    bool is_broken() const { return broken_; }
    RingWords& words() const { return *words_; }

  private:
    bool take_head(std::uint64_t head) noexcept {
        // It goes by quarters, so it may be behind what we know; it can't be ahead of the tail.
        if (!acknowledge(head)) broken_ = true;
        return !broken_;
    }

    // Either we see the space or the reader sees the wish.
    [[gnu::noinline, gnu::cold]] bool look_for_space(std::size_t record) noexcept {
        if (!take_head(words_->head.load(std::memory_order_acquire))) return false;
        if (tail_ - taken_ <= ring_bytes - record) return true;
        return take_head(wish_for_space(words_->want_space, words_->head)) &&
               tail_ - taken_ <= ring_bytes - record;
    }

    RingWords* words_ = nullptr;
    std::byte* data_ = nullptr;
    std::uint64_t tail_ = 0;
    std::uint64_t taken_ = 0;  // By the reader, as far as we know.
    bool is_letter_ = false;
    bool broken_ = false;
    alignas(64) std::byte draft_[letter_bytes_max] = {};
};

class RingReader {
  public:
    RingReader() = default;
    RingReader(RingWords* words, const std::byte* data)
        : words_(words), tail_(&words->tail), data_(data) {}

    // The end of what is published: has_records() when it is not taken(). Cost: one load.
    std::uint64_t published() const noexcept {
        // Of the letter: fetched together with the tail, not after it.
        __builtin_prefetch(words_->letter_far);
        return tail_->load(std::memory_order_acquire);
    }
    bool has_records() const noexcept { return published() != head_; }

    // The common case in short: when all that is published is one letter, copies it to `into`,
    // which has room for letter_bytes_max whatever its length.
    bool take_lone_letter(std::uint64_t published, std::byte* into, std::size_t* bytes,
                          std::uint64_t* acknowledged) noexcept {
        const RingWords* const words = words_;
        *bytes = words->letter.load(std::memory_order_relaxed) - (head_ << 8) - 1;
        if (published - head_ != record_unit || *bytes > letter_bytes_max) return false;
        *acknowledged = words->taken.load(std::memory_order_acquire);
        tail_seen_ = head_ = published;
        copy_letter(*words, into);
        return true;
    }

    // Makes what is published ready for take().
    void look() noexcept {
        tail_seen_ = tail_->load(std::memory_order_acquire);
        const std::uint64_t letter = words_->letter.load(std::memory_order_relaxed);
        letter_bytes_ = (letter & 0xff) - 1;
        letter_at_ = letter >> 8;
        acknowledged_ = words_->taken.load(std::memory_order_acquire);
    }

    // Ends what can be taken at what is published now, whatever the writer does. `copy` must
    // outlive the reader.
    void freeze(std::atomic<std::uint64_t>& copy) noexcept {
        copy.store(tail_->load(std::memory_order_acquire), std::memory_order_relaxed);
        tail_ = &copy;
    }

    enum class Take : std::uint8_t { message, no_room, broken };

    // Copies the next message to the front of `into` and says how long it is; what follows it there
    // may be overwritten, up to letter_bytes_max in all. `no_room`: `into` is shorter than that or
    // than the message, later calls will give it. Requires: has_seen_more().
    Take take(Bytes into, std::size_t* bytes) noexcept {
        if (letter_at_ != head_ || letter_bytes_ > letter_bytes_max) {
            return take_record(into, bytes);
        }
        if (!holds(record_unit)) return Take::broken;
        if (into.size() < letter_bytes_max) return Take::no_room;
        copy_letter(*words_, into.data());
        head_ += record_unit;
        *bytes = letter_bytes_;
        return Take::message;
    }

    // Whether take() has more without looking at the shared words.
    bool has_seen_more() const { return tail_seen_ != head_; }

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
        return free_up_to(words_->head, head_, words_->want_space);
    }

    RingWords& words() const { return *words_; }

  private:
    // Whether the tail that was seen covers a record of that size and is one that can be.
    bool holds(std::size_t record) const noexcept {
        const std::uint64_t seen = tail_seen_ - head_;
        return seen <= ring_bytes && seen % record_unit == 0 && record <= seen;
    }

    // Always whole, as it was written.
    static void copy_letter(const RingWords& words, std::byte* into) noexcept {
        std::memcpy(into, words.letter_near, letter_near_bytes);
        std::memcpy(into + letter_near_bytes, words.letter_far, sizeof words.letter_far);
    }

    Take take_record(Bytes into, std::size_t* bytes) noexcept {
        const std::byte* record = data_ + (head_ & (ring_bytes - 1));
        std::uint64_t header;
        std::memcpy(&header, record, sizeof header);
        std::atomic_signal_fence(std::memory_order_seq_cst);  // Read once: it may change.
        const std::size_t length = header & 0xffff'ffff;
        if (header >> 32 != message_kind || length > message_bytes_max ||
            !holds(record_bytes(length))) [[unlikely]] {
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
    std::uint64_t letter_at_ = 0;
    std::uint64_t letter_bytes_ = 0;
    std::uint64_t acknowledged_ = 0;
};

}  // namespace weft::na::sm
