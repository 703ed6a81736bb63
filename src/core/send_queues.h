// The frames that the transport has not accepted: a bounded FIFO for each peer, and a bound for
// all. A frame that does not fit is refused at once.
#pragma once

#include <algorithm>

#include "base/assert.h"
#include "core/budget.h"
#include "core/context_options.h"
#include "core/peer.h"

namespace weft::core {

class SendQueues {
  public:
    explicit SendQueues(const ContextOptions& options)
        : options_(options),
          limit_(budget_of(options.budgets, &Budgets::waiting_frames),
                 options.waiting_bytes_all_max),
          beyond_(budget_of(options.budgets, &Budgets::short_frames),
                  options.waiting_bytes_all_max / 4) {}
    ~SendQueues() { WEFT_DCHECK(bytes_ == 0); }
    SendQueues(const SendQueues&) = delete;
    SendQueues& operator=(const SendQueues&) = delete;

    // Short frames, which report the outcome of a call or transfer, may queue where others may not.
    static constexpr std::size_t short_frame_bytes = 2048;

    // Memory for a frame, for push(). nullptr: refused, or no memory is left.
    QueuedFrame* claim(const Peer& peer, std::size_t bytes);
    void push(Peer& peer, QueuedFrame& queued, std::size_t bytes);
    // Takes a frame out of its peer's FIFO and destroys it.
    void drop(Peer& peer, QueuedFrame& queued);
    void drop_all(Peer& peer);
    // The caller has taken all frames out of the FIFO.
    void on_taken(Peer& peer);
    // Sends what the transport takes. True: nothing waits any more.
    bool flush(Peer& peer);

    // Whether `bytes` more exceed the FIFO of one peer.
    bool has_full_queue(const Peer& peer, std::size_t bytes) const;
    // Data frames leave room for replies.
    bool has_room_for_data(const Peer& peer) const {
        return peer.queue.frames < options_.waiting_data_max;
    }
    std::size_t bytes() const { return bytes_; }  // In all FIFOs.
    bool has_common_limit() const { return !limit_.is_alone(); }
    // As FrameSink::trim_shares().
    bool trim_shares() {
        limit_.trim(bytes_);
        beyond_.trim(bytes_ - std::min<std::uint64_t>(bytes_, limit_.limit()));
        return limit_.has_extra() || beyond_.has_extra();
    }
    std::uint64_t pushed() const { return pushed_; }

    // Sets `direct_body_end`. Call after each change of its inputs.
    static void update_direct(Peer& peer);
    static void destroy(QueuedFrame& queued);

  private:
    bool has_room(std::size_t bytes);

    const ContextOptions& options_;
    Budget::Share limit_;
    Budget::Share beyond_;  // Short frames may exceed the limit by so much.
    std::size_t bytes_ = 0;
    std::uint64_t pushed_ = 0;  // Ever.
};

}  // namespace weft::core
