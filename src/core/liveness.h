// Whether peers are alive, by pings and their answers; and what has arrived there at an orderly
// end.
//
// Ticks are counted, not time: after this process was stopped, the first tick counts as one miss
// and not as many, so that a local stall times out no peer.
#pragma once

#include "base/assert.h"
#include "base/slot_table.h"
#include "base/timer_wheel.h"
#include "core/context_options.h"
#include "core/frame.h"
#include "core/peer.h"

namespace weft::core {

class Liveness {
  public:
    Liveness(const ContextOptions& options, base::TimerWheel& timers)
        : options_(options), timers_(timers) {}

    Duration interval() const { return options_.heartbeat_interval; }
    // A silent peer times out after this time at the latest.
    Duration peer_timeout() const {
        return (options_.heartbeats_missed_max + 2) * options_.heartbeat_interval;
    }
    // A call needs the peer alive, or an orderly end waits for it.
    bool is_needed(const Peer& peer) const;
    void start(Peer& peer, TimePoint now);
    void arm(Peer& peer, TimePoint now) {
        timers_.arm(peer.heartbeat, saturating_add(now, options_.heartbeat_interval));
    }
    void stop(Peer& peer) { timers_.cancel(peer.heartbeat); }

    // A connection begins.
    void on_up(Peer& peer) const;
    // A heartbeat of a connected peer. False: the peer has been silent for too long.
    [[nodiscard]] bool beat(Peer& peer);
    // A heartbeat of a connecting peer. True: the listener has not answered for as long.
    bool has_waited(Peer& peer) const {
        WEFT_DCHECK(peer.state == PeerState::connecting);
        return ++peer.pulse.missed_heartbeats > options_.heartbeats_missed_max;
    }
    Duration silence(const Peer& peer) const {
        return peer.pulse.missed_heartbeats * options_.heartbeat_interval;
    }
    // Before its connection ends: an upper bound of its silence, since the heartbeat before the
    // last one with an answer of the peer.
    void record_silence(Peer& peer) const;

    // A ping or pong of the peer.
    static void on_frame(Peer& peer, FrameHead head);
    // The transport has room for the pings and pongs that had none.
    static void on_room(Peer& peer);

    // For an orderly end, after the last send: how much may be lost if the endpoints closed now. To
    // be called repeatedly, in turns: it pings the peers over transports that do not report
    // arrival. Cost: a walk over all peers.
    std::uint64_t undelivered(base::SlotTable<Peer>& peers, TimePoint now);
    std::uint64_t timed_out() const { return timed_out_; }

  private:
    std::uint64_t count_undelivered(base::SlotTable<Peer>& peers, TimePoint now,
                                    std::uint64_t& unproven);

    const ContextOptions& options_;
    base::TimerWheel& timers_;
    std::uint64_t timed_out_ = 0;  // Peers.
    bool is_ending_ = false;       // undelivered() was called.
    TimePoint final_pings_due_{};  // During the end: the next final pings,
    TimePoint final_pings_end_{};  // and the time limit of their pongs.
};

}  // namespace weft::core
