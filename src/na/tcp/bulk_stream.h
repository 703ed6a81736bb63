// The two halves of a bulk lane as state machines without a socket. The reader splits the stream
// into heads and bodies; the writer sends heads and bodies without copying.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <optional>
#include <span>

#include "base/fifo.h"
#include "na/arena.h"
#include "na/tcp/wire.h"

namespace weft::na::tcp {

// Bodies are read straight into the memory given to expect(); heads into a small buffer, sometimes
// with the start of a body.
class BulkReader {
  public:
    // Memory for the next bytes, at most `bytes_max` of them in a body; returns the number of
    // pieces. A discarded body goes to `discard_buffer`.
    std::size_t room(std::size_t bytes_max, Bytes discard_buffer, iovec* pieces) noexcept;
    void on_read(std::size_t bytes) noexcept;

    enum class Step : std::uint8_t {
        more,      // More bytes are needed.
        head,      // head() is complete. If it has a body, expect() must follow.
        body_end,  // The body of head() is complete.
    };
    // `arena`: its memory is written without a system call.
    Step step(const Arena* arena = nullptr) noexcept;

    const BulkHead& head() const { return head_; }
    // The body of head() goes to `to`; nullptr: it is discarded.
    void expect(std::byte* to) noexcept {
        to_ = to;
        left_ = head_.length;
        write_failed_ = false;
    }
    // Discards the rest of the body.
    void discard() noexcept { to_ = nullptr; }
    // As discard(), after a write of the body failed. False: it is discarded already.
    bool on_write_failed() noexcept {
        if (!to_) return false;
        to_ = nullptr;
        return write_failed_ = true;
    }
    // Whether a write of the body of head() failed.
    bool has_write_failed() const { return write_failed_; }
    bool in_body() const { return left_ > 0; }

  private:
    static constexpr std::size_t buffer_bytes = 32 * sizeof(BulkHead);

    BulkHead head_;
    std::byte* to_ = nullptr;
    std::uint32_t left_ = 0;  // Of the body.
    bool ended_ = false;      // A body is complete, and step() has not returned body_end yet.
    bool write_failed_ = false;
    std::size_t begin_ = 0, end_ = 0;  // The unread bytes in the buffer.
    std::byte buffer_[buffer_bytes];
};

class BulkWriter {
  public:
    bool empty() const { return queue_.empty(); }
    std::size_t size() const { return queue_.size(); }

    void push(const BulkHead& head) { queue_.push({head, nullptr, no_owner, 0}); }
    // `body`: head.length bytes, valid until they are sent, cancelled or revoked.
    // `region`: the local region that holds them, or none.
    void push(const BulkHead& head, const std::byte* body, std::uint32_t region = no_owner) {
        queue_.push({head, body, region, 0});
    }
    static constexpr std::uint32_t no_owner = ~0u;

    // The next bytes to send, at most about `bytes_max` of bodies; returns the number of pieces.
    std::size_t gather(std::span<iovec> pieces, std::size_t bytes_max) noexcept;
    void sent(std::size_t bytes) noexcept;

    // Finds the first item of gather(), with the same `bytes_max`, that has an unreadable body. The
    // item is dropped or, if a part of it was sent, continues as zeroes; the done behind the data
    // of a get then carries the error.
    struct Unreadable {
        BulkHead head;
        bool continues = false;
    };
    std::optional<Unreadable> drop_unreadable(std::size_t bytes_max) noexcept;
    // Whether the body of the local put `transfer` is not completely sent.
    bool is_sending(std::uint64_t transfer) const noexcept;
    // Stops reading from the region: a body in progress ends in zeroes, and its done carries the
    // error.
    void revoke(std::uint32_t region) noexcept;
    void clear() noexcept { queue_.clear(); }

  private:
    struct Item {
        BulkHead head;
        const std::byte* body = nullptr;  // nullptr: zeroes, when the head announces a body.
        std::uint32_t region = no_owner;
        std::uint32_t sent = 0;  // Of head and body.
    };
    static std::size_t bytes_of(const Item& item);
    base::Fifo<Item> queue_;
};

}  // namespace weft::na::tcp
