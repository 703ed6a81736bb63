// Connections that a context has ended in order and that are closed when what was sent last has
// left: without it the peer takes the end for a loss.
#pragma once

#include <list>

#include "base/intrusive_list.h"
#include "base/timer_wheel.h"
#include "core/peer.h"

namespace weft::core {

class Departures : base::Timer {
  public:
    explicit Departures(base::TimerWheel& timers) : timers_(timers) {}
    Departures(const Departures&) = delete;
    Departures& operator=(const Departures&) = delete;
    ~Departures() { forget_all(); }

    // Takes both: sends the frames, in order, and closes the connection when all has left, at
    // `until` at the latest. False: no memory, and nothing is taken. Requires: the connection is
    // up, belongs to no peer any more, and what its transport has sent survives (Caps).
    bool add(const Peer::Connection& connection, base::IntrusiveList<QueuedFrame>& frames,
             TimePoint now, TimePoint until);
    bool empty() const { return all_.empty(); }
    // Closes all of them now.
    void end() noexcept;

  private:
    struct Departure {
        Peer::Connection connection;
        base::IntrusiveList<QueuedFrame> frames;
        TimePoint until;
    };
    static bool has_left(Departure& one);
    void look(TimePoint now);
    void forget_all() noexcept;

    base::TimerWheel& timers_;
    std::list<Departure> all_;
};

}  // namespace weft::core
