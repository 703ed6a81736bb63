// Connections that a context has ended in order, and that are closed when their last frames have
// left: without these the peer treats the end as a loss.
#pragma once

#include <list>

#include "base/intrusive_list.h"
#include "base/timer_wheel.h"
#include "core/peer.h"

namespace weft::core {

class LingeringConnections : base::Timer {
  public:
    explicit LingeringConnections(base::TimerWheel& timers) : timers_(timers) {}
    LingeringConnections(const LingeringConnections&) = delete;
    LingeringConnections& operator=(const LingeringConnections&) = delete;
    ~LingeringConnections() { discard_all(); }

    // Takes both: sends the frames, in order, and closes the connection when all have left, at
    // `close_by` at the latest. False: no memory, and nothing is taken. Requires: the connection is
    // up and bound to no peer, with Caps::sent_survives.
    bool add(const PeerConnection& connection, base::IntrusiveList<QueuedFrame>& frames,
             TimePoint now, TimePoint close_by);
    bool empty() const { return all_.empty(); }
    // Closes all of them now.
    void close_all() noexcept;

  private:
    struct LingeringConnection {
        PeerConnection connection;
        base::IntrusiveList<QueuedFrame> frames;
        TimePoint close_by;
    };
    static bool flush_connection(LingeringConnection& one);
    void check_all(TimePoint now);
    void discard_all() noexcept;

    base::TimerWheel& timers_;
    std::list<LingeringConnection> all_;
};

}  // namespace weft::core
