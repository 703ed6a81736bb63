// The two halves of a bulk lane as machines without a socket: what came is cut into heads and
// bodies, what goes is heads, bodies and nothing copied.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <optional>
#include <span>

#include "base/fifo.h"
#include "na/arena.h"
#include "na/tcp/wire.h"

namespace weft::na::tcp {

// Bodies go straight where expect() says; heads into a small buffer, and with them the start of a
// body now and then.
class BulkReader {
  public:
    // Where the next bytes go, at most `bytes_max` of them in a body; returns how many pieces. A
    // body that is discarded goes to `waste`.
    std::size_t room(std::size_t bytes_max, Bytes waste, iovec* pieces) noexcept;
    void took(std::size_t bytes) noexcept;

    enum class Step : std::uint8_t {
        more,      // Read on.
        head,      // head() has come. With a body: expect() is to follow.
        body_end,  // The body of head() is complete.
    };
    // `arena`: what is in it can be written without a system call.
    Step step(const Arena* arena = nullptr) noexcept;

    const BulkHead& head() const { return head_; }
    // The body of head() goes to `to`; nullptr: nowhere.
    void expect(std::byte* to) noexcept {
        to_ = to;
        left_ = head_.length;
        faulted_ = false;
    }
    // From now on nothing is written to where the body goes.
    void discard() noexcept { to_ = nullptr; }
    // The same, since an attempt to write there failed. False: it goes nowhere already.
    bool fault() noexcept {
        if (!to_) return false;
        to_ = nullptr;
        return faulted_ = true;
    }
    // Whether that happened to the body of head().
    bool has_faulted() const { return faulted_; }
    bool in_body() const { return left_ > 0; }

  private:
    static constexpr std::size_t buffer_bytes = 32 * sizeof(BulkHead);

    BulkHead head_;
    std::byte* to_ = nullptr;
    std::uint32_t left_ = 0;  // Of the body.
    bool ended_ = false;      // A body has, and step() has not said so.
    bool faulted_ = false;
    std::size_t begin_ = 0, end_ = 0;  // Of what is in the buffer and unread.
    std::byte buffer_[buffer_bytes];
};

class BulkWriter {
  public:
    bool empty() const { return queue_.empty(); }
    std::size_t size() const { return queue_.size(); }

    void push(const BulkHead& head) { queue_.push({head, nullptr, no_owner, 0}); }
    // `body`: head.length bytes, valid until they are sent, cancelled or revoked.
    // `region`: ours that it lies in, or none.
    void push(const BulkHead& head, const std::byte* body, std::uint32_t region = no_owner) {
        queue_.push({head, body, region, 0});
    }
    static constexpr std::uint32_t no_owner = ~0u;

    // What is to be sent, at most about `bytes_max` of bodies; returns how many pieces.
    std::size_t gather(std::span<iovec> pieces, std::size_t bytes_max) noexcept;
    void sent(std::size_t bytes) noexcept;

    // Of what gather() gave, with the same `bytes_max`, the first whose body can't be read. It
    // leaves the queue, or, when some of it was sent, goes on as zeroes; of the data of a get the
    // done behind it says so.
    struct Unreadable {
        BulkHead head;
        bool goes_on = false;
    };
    std::optional<Unreadable> drop_unreadable(std::size_t bytes_max) noexcept;
    // Whether the body of our put by that name has not left whole.
    bool is_sending(std::uint64_t transfer) const noexcept;
    // Nothing is read from the region any more: what is under way ends in zeroes, and its done says
    // so.
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
