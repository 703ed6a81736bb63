// An endpoint over RDMA verbs (docs/adr/0008-verbs-provider.md). How the pieces hang together:
//
//   connect()/request -> Peer -> Lane (queue pair, rdma_cm connection) -> Card
//   reserve()/commit() -> SendSlot in the peer's backlog -> one list of work requests per turn
//   post() -> Transfer -> the peer's second lane, so that a bad access harms no message
//   poll(): completions -> events
//
// endpoint.cc: life and peers. connect.cc: connections. greet.cc: the first words behind them.
// poll.cc: completions, time. send.cc: messages. lane.cc: the lanes of transfers. memory.cc:
// exposed memory, transfers.
#pragma once

#include <sys/types.h>

#include <list>
#include <optional>
#include <vector>

#include "base/unique_fd.h"
#include "na/event_queue.h"
#include "na/own_stall.h"
#include "na/verbs/peer.h"

namespace weft::na::verbs {

inline constexpr std::size_t header_room = 1024;
inline constexpr std::size_t eager_bytes = 16 * 1024;
inline constexpr std::size_t message_bytes_wanted = eager_bytes + header_room;
inline constexpr std::uint32_t send_slots = 256;
inline constexpr std::uint32_t control_slots = 16;   // Kept back for handshakes.
inline constexpr std::uint32_t slots_per_peer = 64;  // So that one slow peer can't take them all.
inline constexpr std::uint32_t receive_slots = 512;
// Of those, what a peer may have under way: less, the more peers there are.
inline constexpr std::uint32_t credits_least = 4;
inline constexpr std::uint32_t transfers_max = 256;
inline constexpr std::uint32_t transfers_per_peer = 16;
inline constexpr std::uint32_t signal_every = 16;
inline constexpr std::size_t cache_bytes_max = std::size_t{256} << 20;
// Queue pairs for transfers that are kept though idle, of all peers: a card remembers few.
inline constexpr std::uint32_t hot_lanes_max = 256;
inline constexpr std::uint32_t strangers_max = 64;
// Below the promise of 3 s for a peer that does not answer.
inline constexpr Duration handshake_max = 2500ms;
inline constexpr Duration linger = 200ms;
inline constexpr Duration flush_max = 10ms;  // Of a queue pair in its error state.
inline constexpr std::uint32_t transfers_per_lane = transfers_per_peer;
static_assert(transfers_per_lane <= transfer_depth_of_lane);

class VerbsEndpoint final : public Endpoint {
  public:
    // Errors: as Provider::open().
    static Result<std::unique_ptr<Endpoint>> open(const Address* listen, EndpointParts parts,
                                                  TimePoint now);
    ~VerbsEndpoint() override;

    std::string_view scheme() const override { return "verbs"; }
    std::string address() const override;
    Caps caps() const override;
    const Limits& limits() const override { return limits_; }

    Result<PeerId> connect(const Address& to, TimePoint now) override;
    const PeerInfo* info(PeerId peer) const override;
    void close(PeerId peer) override;
    std::string error() const override { return events_.reason(); }
    std::string why_waiting(PeerId peer) const override {
        PeerEntry* entry = find(peer);
        return entry ? entry->value.why_waiting : std::string();
    }

    std::byte* reserve(PeerId peer, std::size_t bytes) noexcept override;
    bool commit(std::size_t bytes) noexcept override { return commit(bytes, true); }
    bool commit_later(std::size_t bytes) noexcept override { return commit(bytes, false); }
    void flush() noexcept override;
    std::size_t unsent(PeerId peer) const override;
    std::size_t poll(std::span<Event> events, TimePoint now) noexcept override;

    Result<FabricKey> expose(const Exposure& exposure) override;
    void fence(std::uint32_t region, Holders holders) override;
    std::size_t post(std::span<const RmaItem> items) noexcept override;

    int wait_fd() const override { return parts_.sleeps ? epoll_.get() : -1; }
    bool arm() override;
    TimePoint next_deadline() const override {
        if (handshakes_ == 0) return attention_at_;
        return std::min(attention_at_, looked_at_ + handshake_look_every);
    }

    const Ledger& ledger() const { return card_->ledger; }

  private:
    struct Claim {
        SendSlot* slot = nullptr;
        base::SlotId peer;
        std::uint32_t offset = 0;
        bool fresh = false;  // Not in a backlog yet.
    };
    // An event of rdma_cm, copied, so that it is acknowledged before anything is done about it.
    struct Happening {
        rdma_cm_event_type type{};
        int status = 0;
        std::byte words[256]{};
        std::size_t words_bytes = 0;
    };

    VerbsEndpoint(EndpointParts parts, TimePoint now);
    Status open_card(const Address* listen);
    Status listen_at(const Address& listen);

    // endpoint.cc: life and peers.
    PeerEntry* find(PeerId peer) const { return peers_.find({peer.index, peer.generation}); }
    PeerEntry* find_up(PeerId peer) const;
    PeerEntry* take_peer();
    LaneEntry* take_lane(const PeerEntry& owner);
    void end_talk(LaneEntry& lane);
    StuckPair* drop_lane(LaneEntry& lane);
    StuckPair* destroy(Owned<ibv_qp>& pair);
    void free_lane(LaneEntry& lane);
    void serve_stuck();
    void keep_stuck();
    void forget_in_child();
    void bring_down(PeerEntry& entry, Code code, std::string why);
    void retire(PeerEntry& entry, Code transfers_end, bool in_order);

    // connect.cc.
    void start_connecting(PeerEntry& entry);
    void serve_resolving(PeerEntry& entry);
    void look_at_connections();
    void on_happening(rdma_cm_id* connection, Happening& what);
    void on_request(rdma_cm_id* connection, const Happening& what);
    bool drop_oldest_stranger();
    void try_again(PeerEntry& entry, std::string why);
    void on_hang_up(PeerEntry& entry, std::string why);
    void on_route(PeerEntry& entry);
    void on_response(PeerEntry& entry, const Happening& what);
    void on_rejected(PeerEntry& entry, const Happening& what);
    Status accept(PeerEntry& entry, const Opening& opening);
    Status bring_into_use(Lane& lane, Route& route);
    void take_opening(Peer& peer, const Opening& opening);
    rdma_conn_param offer(const Lane& lane, ByteView words) const;
    std::uint32_t credits_for_one_more() const;

    // greet.cc.
    void say_hello(PeerEntry& entry);
    void on_hello(PeerEntry& entry, ByteView body);
    void go_up(PeerEntry& entry);

    // poll.cc.
    bool read_completions(bool all = false);
    void on_completion(const ibv_wc& completion);
    void on_message(const ibv_wc& completion);
    void blame(std::uint32_t pair, const std::string& why);
    bool take_credits(PeerEntry& entry, const Immediate& word);
    void on_sent(LaneEntry& lane, std::uint32_t sequence);
    void on_lane_error(LaneEntry& lane, const ibv_wc& completion);
    void take_back(std::uint32_t slot);
    void give_receives();
    void look();
    void on_trouble(const Trouble& trouble);
    void give_up(const std::string& why);
    void serve_leaving();
    bool is_time_to_look(bool busy);
    void attend(PeerEntry& entry, TimePoint at);
    void forgive(Duration stall);
    void break_off(PeerEntry& entry, std::string why);
    void serve_attention();
    void wake_writers();

    // send.cc.
    bool has_room(const Peer& peer) const;
    bool commit(std::size_t bytes, bool at_once) noexcept;
    void queue_control(PeerEntry& entry, Kind kind, ByteView body);
    void drain(PeerEntry& entry);
    bool post_backlog(PeerEntry& entry);
    bool send_bare(PeerEntry& entry, Kind kind, bool signalled);
    void give_credits_back(PeerEntry& entry);
    std::uint32_t immediate(Peer& peer, Kind kind) const;
    void release(Peer* peer, SendSlot& slot);
    SendSlot* take_slot(std::uint32_t keep);

    // lane.cc.
    void ask_for_lane(PeerEntry& entry, std::uint32_t which);
    void close_coldest_lane();
    void lane_failed(PeerEntry& entry, std::uint32_t which, const std::string& why);
    void say_of_lane(PeerEntry& entry, const LaneWord& word);
    void on_lane_word(PeerEntry& entry, ByteView body);
    void on_asked(PeerEntry& entry, const LaneWord& word);
    void on_answer(PeerEntry& entry, const LaneWord& word);
    void drop_asking(PeerEntry& entry, std::uint32_t which);
    void fail_waiting(PeerEntry& entry, Code code, const std::string& why);

    // memory.cc.
    void emit_fenced(std::uint32_t region);
    void serve_waiting(PeerEntry& entry);
    Asking* freest_lane(Peer& peer, std::span<const std::uint32_t> loads);
    bool bring_memory(Transfer& transfer);
    void drop_memory(Transfer& transfer);
    void post_transfers(PeerEntry& entry, Asking& asking, TransferQueue& transfers);
    void on_transferred(LaneEntry& lane, std::uint32_t sequence);
    void on_transfer_error(LaneEntry& lane, const ibv_wc& completion);
    void finish(Transfer& transfer, Code code, std::string why);
    void end_transfers(PeerEntry& entry, Code code, const std::string& why);

    EndpointParts parts_;
    const pid_t owner_;
    Limits limits_;
    TimePoint now_;
    std::uint64_t turn_ = 1;
    base::UniqueFd epoll_;
    Owned<rdma_event_channel> channel_;
    std::unique_ptr<Card> card_;
    Owned<rdma_cm_id> listener_;
    SocketName name_;  // That we listen at.

    std::vector<SendSlot> slots_;
    std::vector<SendSlot*> slots_free_;
    std::string dead_;                          // Why the card is of no use any more.
    std::vector<std::uint32_t> receives_idle_;  // To be given to the card.
    std::vector<std::uint32_t> handed_out_;     // Messages of the last poll.

    mutable PeerTable peers_;
    std::vector<PeerEntry*> by_index_;
    LaneTable lanes_;
    std::vector<LaneEntry*> leaving_;
    std::list<StuckPair> stuck_;
    TimePoint stuck_due_ = never;  // Then the card is asked again.
    bool stuck_told_ = false;
    std::uint32_t strangers_ = 0;   // Incoming peers that are not up.
    std::uint32_t handshakes_ = 0;  // All that are not up.
    base::IntrusiveList<Peer, AttentionNode> attention_;
    TimePoint attention_at_ = never;
    base::IntrusiveList<Peer, FlushNode> unflushed_;
    base::IntrusiveList<Peer, WritableNode> want_writable_;
    Claim claim_;

    std::vector<Owned<ibv_mr>> regions_;
    TransferTable transfers_{transfers_max};
    std::optional<RegistrationCache> cache_;
    std::uint32_t lanes_per_peer_ = lanes_most;
    std::uint32_t signal_every_ = signal_every;
    base::IntrusiveList<Lane> asking_lanes_;  // The longest unused first.
    std::uint32_t asking_count_ = 0;

    bool look_now_ = true;
    std::uint32_t polls_unlooked_ = 0;
    TimePoint looked_at_;
    EventQueue events_;
};

// A lane's id as what rdma_cm and completions hand back.
enum class Work : std::uint8_t { receive = 0, message = 1, transfer = 2 };
std::uint64_t number_of(Work work, base::SlotId lane, std::uint32_t sequence);
// Of the lane's sequence only the last bits travel; it is at most the lane's last one.
std::uint32_t sequence_of(std::uint64_t number, const Lane& lane);

}  // namespace weft::na::verbs
