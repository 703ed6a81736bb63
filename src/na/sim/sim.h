// sim://: a network inside one process, with a virtual clock and an order that a seed decides.
//
// A World holds the packets in flight between its endpoints, ordered by (virtual time, sequence).
// It moves only when advance() or an endpoint's poll() gives it a later instant: the same seed and
// the same calls give the same trace. Private memory can be exposed. Put and get are cut into
// pieces of at most 4 KiB that travel, are checked and land one by one, so that a region can be
// revoked, or a host end, between two of them. Commits of one turn are joined, so that receivers
// also walk joined frames.
//
// Links (weft/sim/link.h) between hosts may be slow, lossy and cut. A connection over them behaves
// as tcp does on such a network: it delivers whole messages in order, or ends. Its two sides may
// detect the end at different times, or only when they send. The pieces of transfers are in order
// among themselves, not with messages.
//
// Messages that a peer does not read fill the connection: first the room of the hosts, then the
// sender's own queue, which ends with the endpoint. A poll hands out a bounded number of bytes and
// serves the peers in rotation.
//
// Connects wait at their listener, as in a kernel's queue, until its process polls. Beyond
// WorldOptions::listen_backlog they are refused as busy, and retried.
//
// Not modelled: acknowledgements (room is given back at once, also across a cut).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <weft/callback.h>
#include <weft/sim/link.h>

#include "na/provider.h"

namespace weft::na::sim {

class Network;
class ResourceFaults;

struct WorldOptions {
    weft::sim::Link link{};       // Between all hosts.
    Duration piece_time = 500ns;  // Between two pieces of one transfer that leave, at least.
    // With rma_checked: how long a fence waits at most for accesses in flight.
    Duration fence_timeout = 1ms;
    std::size_t message_bytes_max = 68 * 1024;
    std::size_t eager_bytes_max = 64 * 1024;

    // Queues. From one endpoint to another, in its own queue and in flight:
    std::size_t connection_bytes_max = 256 * 1024;
    std::uint32_t connection_messages_max = 256;
    // A connect that reaches no listener within this time fails; 0: never.
    Duration connect_timeout = 0ns;
    std::uint32_t listen_backlog = 128;  // Connects that a listener has not taken yet.
    bool joins_commits = true;

    // Capabilities. False: like a fabric that enforces only key and bounds, so that owners must
    // grant ranges.
    bool rma_checked = true;
    bool fences_region = true;  // Sets the capability, and nothing else.

    // Shares. The part of connection_bytes_max that the hosts hold, at least one message. What the
    // hosts hold when an endpoint ends still arrives; what waits in the endpoint's own queue does
    // not.
    std::size_t socket_bytes_max = 64 * 1024;
    // Bytes that one poll() hands out, and those of one peer before the others have their turn; at
    // least one message each.
    std::size_t poll_bytes_max = 256 * 1024;
    std::size_t poll_share = 64 * 1024;
};

struct NetworkFaults {
    std::uint64_t repeated = 0;  // Packets that arrived again, and were dropped.
    std::uint64_t resent = 0;    // Packets that were lost or cut off.
    std::uint64_t damaged = 0;   // Packets.
    std::uint64_t given_up = 0;  // Connections that ended without an answer.
    std::uint64_t refused = 0;   // Claims for messages that were refused though there was room.
    std::uint64_t hung_up = 0;   // Connections that ended with their first message.
};

// Called when a get is admitted: the owner's host, the reader's host, and all memory of the region,
// which the reader could obtain.
using ReadObserver = Callback<void(const std::string&, const std::string&, ByteView)>;

// Shared by every endpoint of one simulation. Thread: one.
class World {
  public:
    static constexpr std::size_t piece_bytes_max = 4096;

    // Draws a few numbers from `random` now and none later.
    explicit World(base::Random& random, WorldOptions options = {},
                   TimePoint start = TimePoint(1s));
    ~World();

    // The latest instant that the world was given.
    TimePoint now() const;
    // When the next packet in flight arrives; `never` without one.
    TimePoint next_event() const;
    // Delivers everything due at or before `now` to the inboxes of the endpoints. An earlier
    // instant than the world's own has no effect.
    void advance(TimePoint now);

    // Ends the process of sim://name abruptly: its endpoint does nothing more, its name is free,
    // peers get peer_down. Also finds endpoints that do not listen by their public_uri. False: no
    // endpoint has that name.
    bool kill(std::string_view name);
    // Ends everything on the host of that name. `notify_peers`: the processes died, and the host
    // notifies their peers. Otherwise the host stopped: packets to it are lost until another
    // endpoint opens on a host of that name. False: it had no endpoint.
    bool stop_host(std::string_view host, bool notify_peers);

    // Links by the names of hosts: the provider's host, else the endpoint's name.
    void set_links(const weft::sim::Link& all);
    void set_link(std::string_view from, std::string_view to, const weft::sim::Link& link);
    // Blocks packets from one to the other, one way.
    void cut(std::string_view from, std::string_view to);
    void heal(std::string_view from, std::string_view to);
    void mend_all();
    // Share of reserve()s that are refused although there is room.
    void refuse(double share);
    // The resource faults of endpoints on that host (na/sim/resource_faults.h).
    ResourceFaults& resource_faults(std::string_view host);

    // From here on sim://name does not reply to puts and gets; all else works. False: no
    // endpoint has that name.
    bool ignore_rma(std::string_view name);

    void watch_reads(ReadObserver see);
    // Words of 8 bytes that were sent in messages without having been written: always 0, or a layer
    // above is wrong.
    std::uint64_t unwritten_words() const;

    // Hash of everything that arrived so far: equal seeds and calls give equal hashes.
    std::uint64_t trace_hash() const;
    std::uint64_t events() const;  // Number of arrivals so far.
    // When a packet from one host last arrived on another; TimePoint::min(): never.
    TimePoint last_received(std::string_view by, std::string_view from) const;
    // The last packets, a line each, in order.
    std::vector<std::pair<TimePoint, std::string>> last_events(std::size_t most) const;
    // Transfers that would have accessed memory after its fence, and were refused: always 0, or a
    // layer above is wrong. Counted without rma_checked.
    std::uint64_t late_accesses() const;
    const NetworkFaults& faults() const;

    Network& network() { return *network_; }

  private:
    std::unique_ptr<Network> network_;
};

// Its endpoints keep the world, and are on the host of this name; without a name each has a host of
// its own.
std::unique_ptr<Provider> make_sim_provider(std::shared_ptr<World> world, std::string host = "");

}  // namespace weft::na::sim
