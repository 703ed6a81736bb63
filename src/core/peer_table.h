// The peers of a context, and their connections: connecting by the addresses of each, its end, and
// the close of a silent one.
#pragma once

#include <atomic>
#include <vector>

#include <weft/function.h>

#include "base/flight_recorder.h"
#include "base/log.h"
#include "core/frame_router.h"
#include "core/lingering_connections.h"
#include "core/liveness.h"
#include "core/send_queues.h"
#include "core/turn_loop.h"

namespace weft::core {

// Thread: the context's. Notifies the watchers of the router with all tables consistent.
class PeerTable final : private PeerOwner {
  public:
    PeerTable(const ContextOptions& options, TurnLoop& loop, FrameRouter& router,
              base::FlightRecorder& recorder, base::Log& log);
    ~PeerTable() { clear(); }
    // Frees the frames and stops the timers of all peers.
    void clear();

    // Errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNAVAILABLE (after shutdown()).
    Result<PeerRef> add(std::vector<na::Address> addresses, WantedContext wanted = {});
    void remove(Peer& peer, const Status& why);
    // RESOURCE_EXHAUSTED: the table had no room.
    Status why_full() const;
    // Adds an endpoint for an address that no endpoint can reach, or returns why it can't.
    void set_opener(Function<Status(const na::Address&)> opener) { opener_ = std::move(opener); }

    static bool is_current(PeerRef ref) {
        return base::SlotTable<Peer>::entry_of(*ref.at).generation == ref.generation;
    }
    static Peer* find(PeerRef ref) { return ref.at && is_current(ref) ? ref.at : nullptr; }

    // Starts connecting an idle peer, once `deferred_connect` runs.
    void connect(Peer& peer);
    // Closes the peer's connection and notifies every watcher.
    void drop_connection(Peer& peer, const Status& why);
    void add_interest(Peer& peer) {
        ++peer.interest;
        // Continues for a while after the last interest, so it is usually armed.
        if (!peer.heartbeat.is_linked()) [[unlikely]] {
            liveness_.start(peer, loop_.now());
        }
    }

    // Events of an endpoint.
    void on_up(EndpointSlot& slot, const na::Event& event);
    void on_down(EndpointSlot& slot, Peer& peer, Status why);
    void on_room(Peer& peer);

    // Closes every connection in order. No peer connects again.
    void shutdown(const Status& why) noexcept;
    bool is_closed() const { return closed_; }
    bool has_lingering_connections() const { return !lingering_.empty(); }
    void close_lingering() noexcept { lingering_.close_all(); }
    std::uint64_t undelivered() { return liveness_.undelivered(peers_, loop_.now()); }

    template <class Visit>
    void for_each(Visit&& visit) {
        peers_.for_each([&](auto& entry) { visit(entry.value); });
    }
    std::uint32_t size() const { return peers_.taken(); }
    // Peers that are up. Thread: any.
    std::uint32_t connections() const { return connections_.load(std::memory_order_relaxed); }
    // Connections that this side has made so far.
    std::uint64_t connects() const { return connects_; }
    SendQueues& queues() { return queues_; }
    const SendQueues& queues() const { return queues_; }
    const Liveness& liveness() const { return liveness_; }

  private:
    // What is in use now may be released when no peer is needed any more, or connected.
    void trim_later();
    void trim_shares();
    void on_heartbeat(Peer& peer) override;
    void start_connecting(Peer& peer) override;

    Peer& begin_life(base::SlotTable<Peer>::Entry& entry, bool incoming);
    void advance_connection(Peer& peer, AddressSelector::Step step, Status why);
    bool try_endpoints(Peer& peer, Status& why);
    static void bind(Peer& peer, const PeerConnection& connection);
    static PeerConnection unbind(Peer& peer);
    void close_gracefully(Peer& peer);
    bool activate(Peer& peer);
    void on_connection_lost(Peer& peer, Status why);
    void disconnect(Peer& peer);
    void check_attempt(Peer& peer);
    static Status why_elsewhere(Peer& peer, const na::PeerInfo& info);
    static void report_contexts(const Peer& peer, std::uint16_t contexts);

    struct TrimTimer final : base::Timer {
        PeerTable* table = nullptr;
    };

    // ---- of the context
    TurnLoop& loop_;
    FrameRouter& router_;
    base::FlightRecorder& recorder_;
    base::Log& log_;

    // ---- peers
    base::SlotTable<Peer> peers_;
    SendQueues queues_;
    TrimTimer trim_timer_;
    Liveness liveness_;
    LingeringConnections lingering_;
    Function<Status(const na::Address&)> opener_;
    bool closed_ = false;
    std::atomic<std::uint32_t> connections_{0};
    std::uint64_t connects_ = 0;
};

}  // namespace weft::core
