// sim://: a network inside one process, with a virtual clock and an order that a seed decides.
//
// A World holds what is under way between its endpoints, ordered by (virtual time, sequence), and
// moves only when advance() or an endpoint's poll() gives it a later instant: the same seed and the
// same calls give the same trace. Private memory can be exposed; put and get are cut into pieces
// of at most 4 KiB that travel, are judged and land one by one, so that a region can be revoked,
// or a host go, between two of them. Commits of one turn are joined, so that receivers walk joined
// frames here too.
//
// Between hosts lie links (weft/sim/link.h) that may be slow, lossy and cut. A connection over them
// is what tcp makes of such a network: whole messages in order, or its end, which the two sides
// may learn at different times, or only when they say something. The pieces of transfers are in
// order among themselves, not with messages.
//
// What a peer does not read fills the connection: first what the hosts hold for it, then the
// sender's own queue, which ends with the endpoint. A poll hands out a bounded number of bytes and
// serves the peers in rotation.
//
// Connects wait at their listener, as in a kernel's queue, until its process polls; beyond
// WorldOptions::listen_backlog they are told that it is busy, and come again.
//
// Not modelled: acknowledgements (room for more is given back at once, also across a cut).
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
class Scarcity;

struct WorldOptions {
    weft::sim::Link link{};       // Between all hosts.
    Duration piece_time = 500ns;  // Between two pieces of one transfer that leave, at least.
    // Where each access is judged: how long a fence waits at most for those under way.
    Duration fence_patience = 1ms;
    std::size_t message_bytes_max = 68 * 1024;
    std::size_t eager_bytes_max = 64 * 1024;
    // From one endpoint to another, in its own queue and under way.
    std::size_t link_bytes_max = 256 * 1024;
    std::uint32_t link_messages_max = 256;
    // An attempt that reaches no listener within it fails; 0: never.
    Duration connect_timeout = 0ns;
    std::uint32_t listen_backlog = 128;  // Connects that a listener has not taken yet.
    bool joins_commits = true;
    // False: like a fabric that enforces only key and bounds, so that owners must grant ranges.
    bool rma_checked = true;
    bool fences_region = true;  // As the capability, and nothing else.
    // Of link_bytes_max what the hosts hold, of one message at least. What is there when an
    // endpoint ends still arrives; what waits behind it in the endpoint's own queue does not.
    std::size_t socket_bytes_max = 64 * 1024;
    // What one poll() hands out, and what it hands out of one peer before the others have their
    // turn; of one message at least.
    std::size_t poll_bytes_max = 256 * 1024;
    std::size_t poll_share = 64 * 1024;
};

// Shared by every endpoint of one simulation. Thread: one.
class World {
  public:
    static constexpr std::size_t piece_bytes_max = 4096;

    // Draws a few numbers from `random` now and none later.
    explicit World(base::Random& random, WorldOptions options = {},
                   TimePoint start = TimePoint(1s));
    ~World();

    // The latest instant that anyone told the world.
    TimePoint now() const;
    // When the next thing under way arrives; `never` when nothing is.
    TimePoint next_event() const;
    // Brings everything due at or before `now` to the inboxes of the endpoints. An earlier instant
    // than the world's own moves nothing.
    void advance(TimePoint now);

    // The process of sim://name ends without a word: its endpoint does nothing more, its name is
    // free, peers get peer_down. Also finds endpoints that do not listen by their public_uri.
    // False: nobody has that name.
    bool kill(std::string_view name);
    // Everything on the host of that name ends. `tells`: the processes died, and the host tells
    // their peers. Else the host stopped: what is sent there gets lost, until another endpoint
    // opens on a host of that name. False: nothing was there.
    bool stop_host(std::string_view host, bool tells);

    // Links by the names of hosts: that of the provider, else of the endpoint.
    void set_links(const weft::sim::Link& all);
    void set_link(std::string_view from, std::string_view to, const weft::sim::Link& link);
    // Nothing gets from one to the other, one way.
    void cut(std::string_view from, std::string_view to);
    void mend(std::string_view from, std::string_view to);
    void mend_all();
    // Share of reserve()s that are refused although there is room.
    void refuse(double share);
    // What endpoints on that host can't have (na/sim/scarcity.h).
    Scarcity& scarcity(std::string_view host);

    // From here on sim://name answers no put and no get, and does everything else. False: as above.
    bool silence(std::string_view name);

    // `see` is shown all the memory that a get may read, as it is when the get is admitted:
    // whatever lies there, its reader can have. Hosts by name: the owner, then the reader.
    using Witness = Callback<void(const std::string&, const std::string&, ByteView)>;
    void watch_reads(Witness see);
    // Words of 8 bytes that left in messages and that nothing had written: always 0, or a layer
    // above is wrong.
    std::uint64_t unwritten_words() const;

    // Hash of everything that arrived so far: equal seeds and calls give equal hashes.
    std::uint64_t trace_hash() const;
    std::uint64_t events() const;  // That many things arrived so far.
    // When something from one host came to an endpoint on another last; TimePoint::min(): never.
    TimePoint last_heard(std::string_view by, std::string_view from) const;
    // The last packets, a line each, in order.
    std::vector<std::pair<TimePoint, std::string>> last_events(std::size_t most) const;
    // Pieces that reached for memory after its fence: always 0, or a layer above is wrong.
    std::uint64_t late_accesses() const;
    // What became of packets: repeated ones that were dropped, lost or cut off ones that were sent
    // again, damaged ones, and connections that ended for want of an answer.
    struct Faults {
        std::uint64_t repeated = 0;
        std::uint64_t resent = 0;
        std::uint64_t damaged = 0;
        std::uint64_t given_up = 0;
        std::uint64_t refused = 0;
        std::uint64_t hung_up = 0;  // Connections that ended with their first message.
    };
    const Faults& faults() const;

    Network& network() { return *network_; }

  private:
    std::unique_ptr<Network> network_;
};

// The endpoints it makes keep the world, and are on the host of this name; without one each has a
// host of its own.
std::unique_ptr<Provider> make_sim_provider(std::shared_ptr<World> world, std::string host = "");

}  // namespace weft::na::sim
