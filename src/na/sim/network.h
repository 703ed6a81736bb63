// The packets in flight between the endpoints of a World, and those endpoints.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/slot_table.h"
#include "base/trace_hash.h"
#include "na/sim/links.h"
#include "na/sim/node.h"
#include "na/sim/packet.h"
#include "na/sim/packet_log.h"
#include "na/sim/resource_faults.h"
#include "na/sim/sim.h"

namespace weft::na::sim {

class Network {
  public:
    Network(base::Random& random, WorldOptions options, TimePoint start);

    TimePoint now() const { return now_; }
    TimePoint next_event() const { return heap_.empty() ? never : heap_.front().at; }
    void advance(TimePoint now);
    const WorldOptions& options() const { return options_; }
    std::uint64_t trace_hash() const { return trace_.value(); }
    std::uint64_t events() const { return events_; }
    // When a packet from host `from` last arrived at an endpoint on host `by`.
    TimePoint last_received(HostId by, HostId from) const;
    const PacketLog& packet_log() const { return packet_log_; }
    std::uint64_t late_accesses() const { return late_accesses_; }
    void count_late_access() { ++late_accesses_; }
    void watch_reads(ReadObserver see) { read_observer_ = std::move(see); }
    // A get of `reader` may read all of `memory` from now on.
    void observe_read(HostId owner, HostId reader, ByteView memory) {
        if (!read_observer_) return;
        read_observer_(links_.name_of(owner), links_.name_of(reader), memory);
    }
    // The pattern that fills a claim until it is written to.
    std::uint64_t poison() const { return poison_; }
    std::uint64_t unwritten_words() const { return unwritten_words_; }
    void count_unwritten(std::uint64_t words) { unwritten_words_ += words; }
    Links& links() { return links_; }
    void set_refused_share(double share) { refused_share_ = share; }
    const NetworkFaults& faults() const { return faults_; }
    NetworkFaults& faults() { return faults_; }

    // A random bit of the seed.
    bool flip() { return (coins_.next() & 1) != 0; }
    base::Random& coins() { return coins_; }
    // Whether a connect of that peer is queued at the listener, and replies can pass.
    bool is_queued(std::string_view name, NodeId from, HostId from_host, PeerId peer);
    // The faults of a host, at a stable address.
    ResourceFaults& resource_faults(HostId host);
    // Whether a claim is refused though there is room.
    bool refuses() { return base::bernoulli(refusals_, refused_share_); }
    // Within a host, or a packet that has passed its link.
    void send(TimePoint at, Packet packet);
    // From one host to another.
    void transmit(Packet packet);
    // Notifies the sender that this connection does not exist.
    void reset(const Packet& packet, std::string_view why);
    // Hands a packet that has arrived to its endpoint.
    void dispatch(Node& to, Packet& packet);
    // Notifies the sender of a connect or an accept that it was refused.
    void refuse(const Packet& packet, const Status& why);

    Result<NodeId> join(Node& node, HostId host);
    // The host of the endpoint that listens under the name, or did so last.
    HostId host_of(std::string_view name);
    void leave(NodeId node);
    Node* find(NodeId node);
    // Errors: ALREADY_EXISTS when a live endpoint has the name.
    Status add(Listener& listener);
    void remove(const Listener& listener) { listeners_.erase(listener.name()); }
    Listener* find_listener(std::string_view name);
    // The endpoints that listen there, or the one that announces that name.
    std::vector<Node*> find_by_name(std::string_view name);
    // Ends every endpoint on the host. Without `notify_peers` the host ends too. False: it has
    // none.
    bool stop_host(HostId host, bool notify_peers);

  private:
    struct Key {
        TimePoint at;
        std::uint64_t sequence;
        std::uint32_t index;                      // Into `packets_`.
        bool operator<(const Key& other) const {  // For std heaps: the earliest on top.
            return at != other.at ? at > other.at : sequence > other.sequence;
        }
    };

    void attempt(Packet packet);
    void resend(Packet packet);
    void fail_connection(const Packet& packet);
    void deliver(Packet& packet);
    void deliver_connect(Packet& packet);
    void record(TimePoint at, const Packet& packet);

    // Links and faults. One random sequence per use: a new draw in one shifts no other.
    WorldOptions options_;
    TimePoint now_;
    Links links_;
    base::SeededRandom coins_;
    base::SeededRandom refusals_;
    double refused_share_ = 0;
    const std::uint64_t resource_faults_seed_;
    std::map<HostId, ResourceFaults> resource_faults_of_host_;
    NetworkFaults faults_;

    // The packets in flight.
    std::vector<Key> heap_;
    std::vector<Packet> packets_;
    std::vector<std::uint32_t> packets_free_;
    std::uint64_t sequence_ = 0;

    // What has arrived, for the checks of a simulation.
    std::uint64_t events_ = 0;
    base::TraceHash trace_;
    PacketLog packet_log_;
    std::map<std::pair<HostId, HostId>, TimePoint> heard_;  // By receiving host, then sending host.
    std::uint64_t late_accesses_ = 0;
    ReadObserver read_observer_;
    const std::uint64_t poison_;
    std::uint64_t unwritten_words_ = 0;

    // The endpoints.
    base::SlotTable<Node*> nodes_;
    std::map<std::string, Listener*, std::less<>> listeners_;  // By their names.
    std::map<std::string, HostId, std::less<>> hosts_;  // Of all names, also of ended endpoints.
};

}  // namespace weft::na::sim
