// A broadcast over many ranks in one process: each is a production coll::Part, what they say goes
// through the production encoding, and a discrete-event network of the one-port LogP model
// (broadcast_model.h) lies between them. No runtimes, no sockets: a rank costs a few hundred bytes.
//
// A rank may die. Whoever waits for something of it hears that it failed, and whoever it had asked
// that it has left, `detection` later.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/trace_hash.h"
#include "coll/costs.h"
#include "coll/part.h"
#include "sim/broadcast_model.h"

namespace weft::tool {

struct Death {
    std::uint32_t rank = 0;
    TimePoint at{};
};

// What became of one rank.
struct RankStory {
    std::uint32_t runs = 0;  // How often its method ran.
    TimePoint died = never;
    TimePoint answered = never;     // Its first answer had left it.
    std::uint32_t state_bytes = 0;  // Of its part, at most.
};

class BroadcastNet final : private coll::Part::Port {
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

    // From the root's first step until nothing is under way any more.
    void run();

    static constexpr TimePoint start{};
    Duration told() const { return told_ - start; }  // Until the last one that was.
    Duration acknowledged() const { return acknowledged_ - start; }
    Duration ended() const { return now_ - start; }
    std::uint64_t messages() const { return messages_; }
    std::uint64_t questions() const { return questions_; }
    std::uint64_t malformed() const { return malformed_; }
    std::uint32_t tells() const { return tells_; }  // How often the root had its outcomes: once.
    bool is_over() const { return running_ == 0; }
    // What the root learnt of costs.
    coll::Cost measured() const;
    // By position.
    const std::vector<coll::Outcome>& outcomes() const { return outcomes_; }
    RankStory story(std::uint32_t rank) const;
    std::uint64_t trace_hash() const { return trace_.value(); }

  private:
    // Of a part's question, at whoever is asked.
    struct Asker {
        std::uint32_t id = 0;
        std::uint32_t from = 0;
        std::uint32_t ask = 0;       // At `from`.
        std::uint32_t position = 0;  // As ForwardHeader::asker.
    };
    struct Question {
        std::uint32_t ask = 0;
        std::uint32_t to = 0;
        bool is_leaf = false;  // As coll::Operation's.
    };
    struct Node {
        std::unique_ptr<coll::Part> part;
        std::vector<Asker> askers;
        std::vector<Question> questions;
        TimePoint sends_at{};     // When its port is free.
        TimePoint receives_at{};  // Likewise, for what comes in.
        TimePoint wakes_at = never;
        coll::Measured measured;
        RankStory story;
        std::uint32_t next_asker = 1;
        bool wants_to_run = false;
        bool begins = false;
    };
    enum class Kind : std::uint8_t { request, answer, cancel, failure, kill, wake };
    struct Message {
        std::uint32_t from = 0;
        std::uint32_t to = 0;
        std::uint32_t ask = 0;            // Of whoever asked.
        bool is_received = false;         // It has passed the receiver's port.
        Effect effect = Effect::unknown;  // Of a failure.
        TimePoint sent{};
        TimePoint deadline = never;
        std::vector<std::byte> bytes;
    };
    struct Event {
        TimePoint at;
        std::uint64_t order;  // Those of one moment come in the order in which they were planned.
        Kind kind;
        std::uint32_t what;  // A message; of `kill` and `wake`: the rank.
    };
    static bool is_later(const Event& a, const Event& b) {
        return a.at != b.at ? a.at > b.at : a.order > b.order;
    }

    void ask(coll::Part& part, const coll::Part::Ask& ask) override;
    void give_up(coll::Part& part, const coll::Part::Ask& ask, bool stop) override;
    void run(coll::Part& part) override;
    void stop_running(coll::Part& part) override;
    void reply_to(coll::Part& part, std::uint32_t asker, coll::Answer::Kind kind) override;
    void refresh(coll::Part& part, std::uint32_t position, std::uint64_t epoch) override;
    void tell(coll::Part& part) override;
    void done(coll::Part& part) override;

    void plan(TimePoint at, Kind kind, std::uint32_t what);
    void handle(const Event& event);
    void send(Kind kind, Message message);
    void report(Kind kind, Message message, TimePoint at);  // By the network, not by a peer.
    void receive(Kind kind, std::uint32_t index);
    void arrive(Kind kind, Message& message);
    void be_lost(Kind kind, const Message& message);
    void on_request(const Message& message);
    void on_answer(const Message& message);
    void on_failure(const Message& message);
    void on_cancel(const Message& message);
    void kill(std::uint32_t rank);
    void begin(std::uint32_t rank, const coll::Part::Role& role, const Asker* asker,
               Duration patience);
    void look_after(std::uint32_t rank);
    bool is_dead(std::uint32_t rank) const { return nodes_[rank].story.died <= now_; }
    std::uint32_t rank_of(const coll::Part& part) const;
    // Nothing: it is not waited for.
    std::optional<Question> take_question(Node& node, std::uint32_t ask);
    coll::ForwardHeader header_for(const coll::Part& part, const coll::Part::Ask& ask) const;

    const Setup setup_;
    std::vector<Node> nodes_;
    std::vector<Event> events_;  // A heap.
    std::vector<Message> messages_under_way_;
    std::vector<std::uint32_t> free_messages_;
    std::uint64_t next_order_ = 0;
    std::uint64_t under_way_ = 0;
    std::uint64_t running_ = 0;  // Parts of the living that are not over.
    TimePoint now_ = start;
    TimePoint told_ = start;
    TimePoint acknowledged_ = start;
    std::uint64_t messages_ = 0;
    std::uint64_t questions_ = 0;
    std::uint64_t malformed_ = 0;
    std::uint32_t tells_ = 0;
    std::vector<coll::Outcome> outcomes_;
    base::TraceHash trace_;
};

}  // namespace weft::tool
