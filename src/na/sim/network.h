// What is under way between the endpoints of a World, and who is there.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/slot_table.h"
#include "na/sim/sim.h"

namespace weft::na::sim {

class SimEndpoint;
using NodeId = base::SlotId;
using TransferId = base::SlotId;

// Bytes under way, never moved while a view of them is out.
struct Parcel {
    std::unique_ptr<std::byte[]> bytes;
    std::size_t size = 0;
    std::size_t room = 0;

    static Parcel make(std::size_t size) {
        return {std::make_unique_for_overwrite<std::byte[]>(size), size, size};
    }
    explicit operator bool() const { return bytes != nullptr; }
    ByteView view() const { return {bytes.get(), size}; }
};

enum class Kind : std::uint8_t {
    connect,  // `text`: the name sought; `parcel`: hello.
    accept,   // `parcel`: hello.
    message,  // `parcel`.
    down,     // `code`, `text`. Also answers a refused connect.
    writable,
    rma_request,  // To the owner.
    rma_piece,    // To the owner.
    rma_answer,   // To the initiator: `code`, `text`.
};

// One thing on its way. `to_peer` is what the receiver calls the sender, `from_peer` the reverse.
struct Cargo {
    Kind kind = Kind::message;
    Code code = Code::ok;
    NodeId from;
    NodeId to;
    PeerId from_peer;
    PeerId to_peer;
    TransferId transfer;
    Parcel parcel;
    std::string text;
};

class Network {
  public:
    Network(base::Random& random, WorldOptions options, TimePoint start);

    TimePoint now() const { return now_; }
    TimePoint next_event() const { return heap_.empty() ? never : heap_.front().at; }
    void advance(TimePoint now);
    const WorldOptions& options() const { return options_; }
    std::uint64_t trace_hash() const { return trace_hash_; }
    std::uint64_t events() const { return events_; }
    std::uint64_t late_accesses() const { return late_accesses_; }
    void count_late_access() { ++late_accesses_; }

    // One way from now, with jitter.
    TimePoint arrival();
    // A coin of the seed.
    bool flip() { return (coins_.next() & 1) != 0; }
    void send(TimePoint at, Cargo cargo);
    // Tells the sender of a connect or an accept that there is no connection.
    void refuse(const Cargo& cargo, const Status& why);

    // Errors: ALREADY_EXISTS when a live endpoint has the name. Empty: not listening.
    Result<NodeId> join(SimEndpoint& endpoint, const std::string& name);
    void leave(NodeId node, const std::string& name);
    SimEndpoint* find(NodeId node);
    SimEndpoint* find_listening(std::string_view name);
    SimEndpoint* find_called(std::string_view name);

  private:
    struct Key {
        TimePoint at;
        std::uint64_t sequence;
        std::uint32_t index;                      // Of `cargo_`.
        bool operator<(const Key& other) const {  // For std heaps: the soonest on top.
            return at != other.at ? at > other.at : sequence > other.sequence;
        }
    };

    void deliver(Cargo& cargo);
    void deliver_connect(Cargo& cargo);
    void record(TimePoint at, const Cargo& cargo);

    WorldOptions options_;
    TimePoint now_;
    base::SeededRandom delays_;  // One stream per use: a new draw in one shifts no other.
    base::SeededRandom coins_;
    std::vector<Key> heap_;
    std::vector<Cargo> cargo_;
    std::vector<std::uint32_t> cargo_free_;
    std::uint64_t sequence_ = 0;
    std::uint64_t events_ = 0;
    std::uint64_t trace_hash_ = 0;
    std::uint64_t late_accesses_ = 0;
    base::SlotTable<SimEndpoint*> nodes_;
    std::map<std::string, NodeId, std::less<>> names_;
};

}  // namespace weft::na::sim
