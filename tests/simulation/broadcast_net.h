// A broadcast over many ranks in one process. Each rank is a production coll::CollectiveState, its
// messages have the production encoding, and a discrete-event network of the one-port LogP model
// (broadcast_model.h) carries them. No runtimes, no sockets: a rank costs a few hundred bytes.
//
// A rank may die. `detection` later the requests to it fail, and its children are notified that
// their parent disconnected.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/trace_hash.h"
#include "coll/costs.h"
#include "coll/state_driver.h"
#include "simulation/broadcast_model.h"

namespace weft::scenarios {

struct Death {
    std::uint32_t rank = 0;
    TimePoint at{};
};

// The history of one rank.
struct RankHistory {
    std::uint32_t runs = 0;  // How often its method ran.
    TimePoint died = never;
    TimePoint answered = never;     // When its first reply was sent.
    std::uint32_t state_bytes = 0;  // Of its CollectiveState, at most.
};

class BroadcastNet {
  public:
    struct Setup {
        std::shared_ptr<const coll::Plan> plan;
        LinkCost cost;
        Duration detection{};
        std::vector<Death> deaths;  // Not of the root's rank.
        Duration timeout{};
    };
    explicit BroadcastNet(Setup setup);
    ~BroadcastNet();
    BroadcastNet(const BroadcastNet&) = delete;
    BroadcastNet& operator=(const BroadcastNet&) = delete;

    // From the root's first step until no message is under way.
    void run();

    static constexpr TimePoint start{};
    Duration delivered() const { return delivered_ - start; }  // Until the last delivery.
    Duration acknowledged() const { return acknowledged_ - start; }
    Duration ended() const { return now_ - start; }
    std::uint64_t messages() const { return messages_; }
    std::uint64_t requests() const { return requests_; }
    std::uint64_t malformed() const { return malformed_; }
    std::uint32_t reports() const {
        return reports_;
    }  // How often the root reported its outcomes: once.
    bool is_over() const { return running_ == 0; }
    // The costs that the root measured.
    coll::Cost measured() const;
    // By position.
    const std::vector<coll::Outcome>& outcomes() const { return outcomes_; }
    RankHistory history(std::uint32_t rank) const;
    std::uint64_t trace_hash() const { return trace_.value(); }

  private:
    // A parent's request, at the child.
    struct ParentRequest {
        std::uint32_t id = 0;
        std::uint32_t from = 0;
        std::uint32_t request = 0;   // Its number at `from`.
        std::uint32_t position = 0;  // As ForwardHeader::parent.
    };
    struct ChildCall {
        std::uint32_t request = 0;
        std::uint32_t to = 0;
        bool is_leaf = false;  // As coll::CollectiveDriver's.
    };
    // Of one rank; its effects are messages of the net.
    class Driver;
    struct Node {
        std::unique_ptr<Driver> driver;  // nullptr: not reached, or dead.
        std::vector<ParentRequest> parent_requests;
        std::vector<ChildCall> child_calls;
        TimePoint sends_at{};     // When its port is free.
        TimePoint receives_at{};  // Likewise, for incoming messages.
        TimePoint wakes_at = never;
        coll::CostMeter cost_meter;
        RankHistory history;
        std::uint32_t next_request = 1;
        bool run_pending = false;
        bool in_begin = false;
    };
    enum class Kind : std::uint8_t { request, answer, cancel, failure, kill, wake };
    struct Message {
        std::uint32_t from = 0;
        std::uint32_t to = 0;
        std::uint32_t request = 0;        // Its number at its sender.
        bool is_received = false;         // It has passed the receiver's port.
        Effect effect = Effect::unknown;  // Of a failure.
        TimePoint sent{};
        TimePoint deadline = never;
        std::vector<std::byte> bytes;
    };
    struct Event {
        TimePoint at;
        std::uint64_t order;  // Events of one moment happen in the order of planning.
        Kind kind;
        std::uint32_t what;  // A message; of `kill` and `wake`: the rank.
    };
    static bool is_later(const Event& a, const Event& b) {
        return a.at != b.at ? a.at > b.at : a.order > b.order;
    }

    void plan(TimePoint at, Kind kind, std::uint32_t what);
    void handle(const Event& event);
    void send(Kind kind, Message message);
    void deliver_at(Kind kind, Message message, TimePoint at);  // By the network, not by a peer.
    void receive(Kind kind, std::uint32_t index);
    void arrive(Kind kind, Message& message);
    void on_lost(Kind kind, const Message& message);
    void on_request(const Message& message);
    void on_reply(const Message& message);
    void on_failure(const Message& message);
    void on_cancel(const Message& message);
    void kill(std::uint32_t rank);
    void begin(std::uint32_t rank, const coll::CollectiveState::Role& role,
               const ParentRequest* parent, Duration progress_interval);
    void after_step(std::uint32_t rank);
    bool is_dead(std::uint32_t rank) const { return nodes_[rank].history.died <= now_; }
    void reply(std::uint32_t rank, const coll::Ready::Reply& reply);
    void send_request(std::uint32_t rank, const coll::ChildRequest& request);
    void cancel_request(std::uint32_t rank, const coll::Ready::Cancel& cancelled);
    void report(const coll::CollectiveState& state);
    // nullopt: no such call is open.
    std::optional<ChildCall> take_child_call(Node& node, std::uint32_t request);
    static std::vector<std::byte> encode(const coll::ForwardHeader& header);

    const Setup setup_;
    std::vector<Node> nodes_;
    std::vector<Event> events_;  // A heap.
    std::vector<Message> messages_under_way_;
    std::vector<std::uint32_t> free_messages_;
    std::uint64_t next_order_ = 0;
    std::uint64_t under_way_ = 0;
    std::uint64_t running_ = 0;  // Live states that have not completed.
    TimePoint now_ = start;
    TimePoint delivered_ = start;
    TimePoint acknowledged_ = start;
    std::uint64_t messages_ = 0;
    std::uint64_t requests_ = 0;
    std::uint64_t malformed_ = 0;
    std::uint32_t reports_ = 0;
    std::vector<coll::Outcome> outcomes_;
    base::TraceHash trace_;
};

}  // namespace weft::scenarios
