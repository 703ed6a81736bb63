// Events for the caller of poll(). Events that do not fit into its batch wait here, and an event
// that error() explains ends its batch.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "na/provider.h"

namespace weft::na {

class EventQueue {
  public:
    // Between begin() and end(), pushed events are written to `to` while it has room.
    void begin(std::span<Event> to) {
        out_ = to;
        count_ = 0;
        ended_ = false;
        hand_out();
    }
    // Returns how many events the batch has.
    std::size_t end() {
        hand_out();
        out_ = {};
        return count_;
    }

    // False: an event pushed now would not be in this batch.
    bool has_room() const { return !ended_ && pending_.empty() && count_ < out_.size(); }
    bool empty() const { return pending_.empty(); }

    void push(const Event& event) {
        if (has_room()) {
            out_[count_++] = event;
        } else {
            pending_.push_back({event, {}, false});
        }
    }
    void push(const Event& event, std::string reason) {
        pending_.push_back({event, std::move(reason), true});
    }
    // The reason of the last event of the last batch.
    const std::string& reason() const { return reason_; }

    // Drops the events of a peer that the caller has closed, except the completions of its
    // transfers. Calls `dropped(event)` for each of them.
    template <class Dropped>
    void drop_events_of(PeerId peer, Dropped&& dropped) {
        std::erase_if(pending_, [&](const Pending& pending) {
            const Event& event = pending.event;
            if (event.peer != peer || event.kind == EventKind::rma_done ||
                event.kind == EventKind::region_fenced) {
                return false;
            }
            dropped(event);
            return true;
        });
    }

  private:
    struct Pending {
        Event event;
        std::string reason;
        bool has_reason;
    };

    void hand_out() {
        std::size_t done = 0;
        while (done < pending_.size() && !ended_ && count_ < out_.size()) {
            Pending& pending = pending_[done++];
            out_[count_++] = pending.event;
            if (!pending.has_reason) continue;
            reason_ = std::move(pending.reason);
            ended_ = true;
        }
        pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(done));
    }

    std::vector<Pending> pending_;
    std::span<Event> out_;
    std::size_t count_ = 0;
    bool ended_ = false;
    std::string reason_;
};

}  // namespace weft::na
