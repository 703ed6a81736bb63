// Which bulk lanes of an endpoint are written and read in a turn, and how much each may move.
#pragma once

#include <memory>

#include "na/tcp/bulk_throttle.h"
#include "na/tcp/connection.h"

namespace weft::na::tcp {

class BulkSchedule {
  public:
    using Pumping = base::IntrusiveList<Bulk, PumpNode>;

    void begin_turn() { bytes_left_ = BulkThrottle::turn_bytes; }
    // Bulk waits for the answers to the messages of a poll, but not for two polls.
    bool may_move(bool had_messages) {
        awaits_replies_ = had_messages && !awaits_replies_;
        return !awaits_replies_;
    }
    void on_messages(TimePoint now) { throttle_.on_messages(now, is_moving(now)); }

    // Writes: in this turn's flush and then with each poll.
    Pumping& pumping() { return pumping_; }
    void schedule(Bulk& bulk) {
        if (bulk.PumpNode::is_linked()) return;
        pumping_.push_back(bulk);
        pumped_turn_ = 0;
    }
    bool must_pump(std::uint64_t turn) const { return !pumping_.empty() && pumped_turn_ != turn; }
    void begin_pump(std::uint64_t turn) { pumped_turn_ = turn; }
    FairShare& pump_share() { return pump_share_; }

    // Reads: bytes that the lanes may still receive in this turn.
    std::size_t bytes_left() const { return bytes_left_; }
    void on_received(std::size_t bytes) { bytes_left_ -= std::min(bytes_left_, bytes); }

    // How many of the bytes left in a turn one lane may move.
    std::size_t slice(const FairShare& share, std::size_t left, TimePoint now) const {
        const std::size_t part = share.of(throttle_.slice_bytes(now));
        return std::min(left, std::max(part, BulkThrottle::slice_bytes_busy));
    }
    void note_moved(Bulk& bulk, std::size_t bytes, TimePoint now);
    // Target of discarded bodies.
    Bytes discarded() const { return {discard_buffer_.get(), discard_buffer_bytes}; }

  private:
    static constexpr std::size_t discard_buffer_bytes = 64 * 1024;
    static constexpr Duration stands_still_after = 50ms;

    // Whether bulk is in progress. A transfer on which a peer stalls does not count, so that it
    // slows down no other peer.
    bool is_moving(TimePoint now);

    base::IntrusiveList<Bulk, UnderWayNode> under_way_;  // In the order of their last progress.
    Pumping pumping_;
    FairShare pump_share_;
    BulkThrottle throttle_;
    std::size_t bytes_left_ = 0;
    bool awaits_replies_ = false;    // Until the messages of the last poll are answered.
    std::uint64_t pumped_turn_ = 0;  // The last turn in which lanes were written.
    std::unique_ptr<std::byte[]> discard_buffer_{new std::byte[discard_buffer_bytes]};
};

}  // namespace weft::na::tcp
