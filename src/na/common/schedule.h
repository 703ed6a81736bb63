// The peers of an endpoint that are due at some time, and when the first of them is.
#pragma once

#include <algorithm>

#include <weft/time.h>

#include "base/intrusive_list.h"

namespace weft::na {

// Linked: `due` is set.
struct ScheduledNode : base::ListNode {
    TimePoint due = never;
};

// `Peer` derives from ScheduledNode.
template <class Peer>
class Schedule {
  public:
    void add(Peer& peer, TimePoint at) {
        ScheduledNode& node = peer;
        node.due = at;
        if (!node.is_linked()) peers_.push_back(peer);
        note(at);
    }
    void remove(Peer& peer) {
        ScheduledNode& node = peer;
        if (node.is_linked()) node.unlink();
    }
    // Something besides the peers is due then.
    void note(TimePoint at) { next_ = std::min(next_, at); }
    TimePoint next() const { return next_; }

    // Takes the peers that are due off the schedule, and calls `serve(peer)` for each. Serving one
    // may end others.
    template <class Serve>
    void serve_due(TimePoint now, Serve&& serve) {
        next_ = never;
        List round;
        round.splice_back(peers_);
        while (Peer* peer = round.pop_front()) {
            const TimePoint due = static_cast<ScheduledNode*>(peer)->due;
            if (due > now) {
                add(*peer, due);
            } else {
                serve(*peer);
            }
        }
    }
    void clear() {
        while (peers_.pop_front()) continue;
    }

  private:
    using List = base::IntrusiveList<Peer, ScheduledNode>;

    List peers_;
    TimePoint next_ = never;
};

}  // namespace weft::na
