// What is under way between the endpoints of a World, and who is there.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/slot_table.h"
#include "base/trace_hash.h"
#include "na/sim/cargo.h"
#include "na/sim/flight.h"
#include "na/sim/links.h"
#include "na/sim/scarcity.h"
#include "na/sim/sim.h"

namespace weft::na::sim {

class SimEndpoint;

class Network {
  public:
    Network(base::Random& random, WorldOptions options, TimePoint start);

    TimePoint now() const { return now_; }
    TimePoint next_event() const { return heap_.empty() ? never : heap_.front().at; }
    void advance(TimePoint now);
    const WorldOptions& options() const { return options_; }
    std::uint64_t trace_hash() const { return trace_.value(); }
    std::uint64_t events() const { return events_; }
    // When something from one came to an endpoint of the other last.
    TimePoint last_heard(HostId by, HostId from) const;
    const Flight& flight() const { return flight_; }
    std::uint64_t late_accesses() const { return late_accesses_; }
    void count_late_access() { ++late_accesses_; }
    void watch_reads(World::Witness see) { witness_ = std::move(see); }
    // A get of `reader` may read all of `memory` from now on.
    void show(HostId owner, HostId reader, ByteView memory) {
        if (witness_) witness_(links_.name_of(owner), links_.name_of(reader), memory);
    }
    // A claim is full of it until it is written to.
    std::uint64_t poison() const { return poison_; }
    std::uint64_t unwritten_words() const { return unwritten_words_; }
    void count_unwritten(std::uint64_t words) { unwritten_words_ += words; }
    Links& links() { return links_; }
    void set_refused_share(double share) { refused_share_ = share; }
    const World::Faults& faults() const { return faults_; }
    World::Faults& faults() { return faults_; }

    // A coin of the seed.
    bool flip() { return (coins_.next() & 1) != 0; }
    base::Random& coins() { return coins_; }
    // Whether a connect of that endpoint's lies at the listener, and answers get through.
    bool is_queued(std::string_view name, const SimEndpoint& from, PeerId peer);
    // Of a host; stays where it is.
    Scarcity& scarcity(HostId host);
    // Whether a claim is refused though there is room.
    bool refuses() { return base::happens(refusals_, refused_share_); }
    // Within a host, or what the link was judged for before.
    void send(TimePoint at, Cargo cargo);
    // From one host to another.
    void transmit(Cargo cargo);
    // Tells the sender that there is no such connection here.
    void reset(const Cargo& cargo, std::string_view why);
    // What has come through to its endpoint.
    void hand_over(SimEndpoint& to, Cargo& cargo);
    // Tells the sender of a connect or an accept that there is no connection.
    void refuse(const Cargo& cargo, const Status& why);

    // Errors: ALREADY_EXISTS when a live endpoint has the name. Empty: not listening.
    Result<NodeId> join(SimEndpoint& endpoint, const std::string& name, HostId host);
    // Of the endpoint that listens or listened there last.
    HostId host_of(std::string_view name);
    void leave(NodeId node, const std::string& name);
    SimEndpoint* find(NodeId node);
    SimEndpoint* find_listening(std::string_view name);
    SimEndpoint* find_called(std::string_view name);
    // Every endpoint there ends; without telling, the host does. False: there is none.
    bool stop_host(HostId host, bool tells);

  private:
    struct Key {
        TimePoint at;
        std::uint64_t sequence;
        std::uint32_t index;                      // Of `cargo_`.
        bool operator<(const Key& other) const {  // For std heaps: the soonest on top.
            return at != other.at ? at > other.at : sequence > other.sequence;
        }
    };

    void attempt(Cargo cargo);
    void resend(Cargo cargo);
    void give_up(const Cargo& cargo);
    void deliver(Cargo& cargo);
    void deliver_connect(Cargo& cargo);
    void record(TimePoint at, const Cargo& cargo);

    WorldOptions options_;
    TimePoint now_;
    Links links_;  // One stream of chance per use: a new draw in one shifts no other.
    base::SeededRandom coins_;
    base::SeededRandom refusals_;
    double refused_share_ = 0;
    const std::uint64_t scarcity_seed_;
    std::map<HostId, Scarcity> scarcities_;
    World::Faults faults_;
    std::vector<Key> heap_;
    std::vector<Cargo> cargo_;
    std::vector<std::uint32_t> cargo_free_;
    std::uint64_t sequence_ = 0;
    std::uint64_t events_ = 0;
    base::TraceHash trace_;
    Flight flight_;
    std::map<std::pair<HostId, HostId>, TimePoint> heard_;  // By whom, from whom.
    std::uint64_t late_accesses_ = 0;
    World::Witness witness_;
    const std::uint64_t poison_;
    std::uint64_t unwritten_words_ = 0;
    base::SlotTable<SimEndpoint*> nodes_;
    std::map<std::string, NodeId, std::less<>> names_;
    std::map<std::string, HostId, std::less<>> hosts_;  // Of names, also of those that are gone.
};

}  // namespace weft::na::sim
