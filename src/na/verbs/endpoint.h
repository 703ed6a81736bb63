// An endpoint over RDMA verbs (docs/adr/0008-verbs-provider.md). How the parts connect:
//
//   connect()/request -> Connection -> QueuePair (and its rdma_cm connection) -> Device
//   reserve()/commit() -> SendSlot in the peer's backlog -> one list of work requests per turn
//   post() -> RmaOperation -> the peer's other queue pairs, so that a bad access harms no message
//   poll(): completions -> events
//
// endpoint.cc: lifetime and peers. connect.cc: connections of this side. accepting.cc: of others.
// handshake.cc: the hello after that. poll.cc: completions, time. send.cc: messages.
// queue_pairs.cc: those for transfers. memory.cc: exposed memory, transfers.
#pragma once

#include <sys/types.h>

#include <list>
#include <optional>
#include <vector>

#include "base/unique_fd.h"
#include "na/common/descriptor_polls.h"
#include "na/common/event_queue.h"
#include "na/common/peer_slots.h"
#include "na/verbs/cm.h"
#include "na/verbs/connection.h"
#include "na/verbs/door.h"
#include "na/verbs_optimizations.h"

namespace weft::na::verbs {

inline constexpr std::size_t header_room = 1024;
inline constexpr std::size_t eager_bytes = 16 * 1024;
inline constexpr std::size_t message_bytes_wanted = eager_bytes + header_room;
inline constexpr std::uint32_t send_slots = 256;
inline constexpr std::uint32_t control_slots = 16;   // Reserved for handshakes.
inline constexpr std::uint32_t slots_per_peer = 64;  // So that one slow peer can't take them all.
inline constexpr std::uint32_t receive_slots = 512;
// The contexts of a runtime share these numbers of slots; each has at least so many.
inline constexpr std::uint32_t slots_min = 64;
// Those that one peer's messages may use: the more peers, the fewer.
inline constexpr std::uint32_t window_min = 4;
inline constexpr std::uint32_t transfers_max = 256;
inline constexpr std::uint32_t transfers_per_peer = 16;
inline constexpr std::uint32_t signal_every = 16;
inline constexpr std::size_t cache_bytes_max = std::size_t{256} << 20;
// Queue pairs for transfers that are kept though idle, of all peers: a device caches few. Contexts
// share them; each has at least the second number.
inline constexpr std::uint32_t initiator_queue_pairs_max = 256;
inline constexpr std::uint32_t initiator_queue_pairs_min = 32;
inline constexpr std::uint32_t queue_pair_slots_max = 1u << 16;
inline constexpr std::uint32_t pending_peers_max = 64;
// Below the promise of 3 s for a peer that does not answer.
inline constexpr Duration handshake_max = 2500ms;
inline constexpr Duration linger = 200ms;
inline constexpr Duration flush_max = 10ms;  // A queue pair in its error state is destroyed then.
inline constexpr std::uint32_t transfers_per_queue_pair = transfers_per_peer;
static_assert(transfers_per_queue_pair <= transfer_depth_per_queue_pair);

class VerbsEndpoint final : public Endpoint {
  public:
    // Errors: as Provider::open().
    static Result<std::unique_ptr<Endpoint>> open(SharedDevices& devices, const Address* listen,
                                                  EndpointParts parts, TimePoint now);
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
        const Connection* connection = peers_.find(peer);
        return connection ? connection->why_waiting : std::string();
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
        if (handshakes_.all == 0) return schedule_.next();
        return std::min(schedule_.next(), descriptor_polls_.next_during_handshake());
    }

    const DeviceCounters& counters() const { return device_->counters; }

  private:
    struct Cm {
        std::shared_ptr<VerbsDoor> door;        // nullptr: it does not listen.
        Owned<rdma_event_channel> own_channel;  // Without a door.
        rdma_event_channel* channel = nullptr;  // Of the connections.
        int listener_fd = -1;                   // Of the door, if it is that of several contexts.
        AcceptDuty duty;                        // Then: whether this one accepts.
    };
    struct QueuePairs {
        QueuePairTable table{queue_pair_slots_max};
        std::vector<QueuePairEntry*> draining;
        std::list<StuckQueuePair> stuck;
        TimePoint stuck_due = never;  // When to retry.
        bool stuck_logged = false;
        base::IntrusiveList<QueuePair> initiators;  // The longest unused first.
        std::uint32_t initiator_count = 0;
    };
    struct Handshakes {
        std::uint32_t all = 0;       // Peers that are not up.
        std::uint32_t incoming = 0;  // Of those, the incoming ones.
    };
    struct Receives {
        std::vector<std::uint32_t> idle;        // To be posted again.
        std::vector<std::uint32_t> handed_out;  // Messages of the last poll.
    };
    VerbsEndpoint(EndpointParts parts, TimePoint now);
    Status open_cm(const Address* listen);
    Status open_device(SharedDevices& devices, const VerbsOptimizations& optimizations);
    Status watch_descriptors();

    // endpoint.cc: lifetime and peers.
    bool has_slot() const {
        return peers_.size() < limits_.peers_max && peers_.taken() < indices_max;
    }
    Connection* add_peer();  // nullptr: no memory.
    QueuePairEntry* take_queue_pair(const Connection& owner);
    void flush_queue_pair(QueuePairEntry& queue_pair);
    StuckQueuePair* drop_queue_pair(QueuePairEntry& queue_pair);
    StuckQueuePair* destroy(Owned<ibv_qp>& qp);
    void free_queue_pair(QueuePairEntry& queue_pair);
    void serve_stuck();
    void leak_stuck();
    void release_in_child();
    void take_down(Connection& peer, Code code, std::string why);
    void remove(Connection& peer, Code transfers_end, bool in_order);
    void detach(Connection& peer, Code transfers_end, bool in_order);

    // connect.cc.
    void start_resolving(Connection& peer, const Address& to);
    void start_connecting(Connection& peer);
    void serve_resolving(Connection& peer);
    void poll_cm_events();
    void on_cm_event(const CmEvent& cm_event);
    void give_up_attempt(Connection& peer);
    void retry_connect(Connection& peer, std::string why);
    void on_hang_up(Connection& peer, std::string why);
    void on_route(Connection& peer);
    void on_response(Connection& peer, const CmEvent& cm_event);
    void on_rejected(Connection& peer, const CmEvent& cm_event);
    Status connect_queue_pair(QueuePair& queue_pair, Route& route);
    ConnectData own_connect_data(const Connection& peer) const;
    void apply_connect_data(Connection& peer, const ConnectData& connect_data);
    rdma_conn_param offer(const QueuePair& queue_pair, ByteView words) const;
    std::uint32_t window_for_next_peer() const;

    // accepting.cc.
    void poll_listener();
    void watch_listener();
    void on_request(const CmEvent& event);
    void pass_on(ConnectRequest request);
    void admit(ConnectRequest request);
    Status accept(Connection& peer, const ConnectData& connect_data);
    bool drop_oldest_pending();

    // handshake.cc.
    void send_hello(Connection& peer);
    void on_hello(Connection& peer, ByteView body);
    void bring_up(Connection& peer);

    // poll.cc.
    bool read_completions(bool all = false);
    void on_completion(const ibv_wc& completion);
    void on_message(const ibv_wc& completion);
    void fail_sender(std::uint32_t qp, const std::string& why);
    bool take_credits(Connection& peer, const Immediate& word);
    void on_sent(QueuePairEntry& queue_pair, std::uint32_t sequence);
    void on_queue_pair_error(QueuePairEntry& queue_pair, const ibv_wc& completion);
    void recycle(std::uint32_t slot);
    void post_idle_receives();
    void poll_descriptors();
    void on_async_event(const AsyncEvent& event);
    void check_failure();
    void serve_draining();
    void extend_deadlines(Duration stall);
    void take_down_later(Connection& peer, std::string why);
    void serve_scheduled();

    // send.cc.
    bool has_room(const Connection& peer) const;
    std::uint32_t signal_interval() const {
        return device_->optimizations().selective_signaling ? signal_every : 1;
    }
    bool commit(std::size_t bytes, bool at_once) noexcept;
    void queue_control(Connection& peer, Kind kind, ByteView body);
    void drain(Connection& peer);
    bool post_backlog(Connection& peer);
    bool send_bare(Connection& peer, Kind kind, bool signalled);
    void return_credits(Connection& peer);
    std::uint32_t immediate(Connection& peer, Kind kind) const;
    void release(Connection* peer, SendSlot& slot);

    // queue_pairs.cc.
    void request_queue_pair(Connection& peer, std::uint32_t which);
    void close_idlest_queue_pair();
    void on_queue_pair_failed(Connection& peer, std::uint32_t which, const std::string& why);
    void send_queue_pair_message(Connection& peer, const QueuePairMessage& word);
    void on_queue_pair_message(Connection& peer, ByteView body);
    void on_queue_pair_request(Connection& peer, const QueuePairMessage& word);
    void on_queue_pair_reply(Connection& peer, const QueuePairMessage& word);
    void drop_initiator(Connection& peer, std::uint32_t which);
    void fail_waiting(Connection& peer, Code code, const std::string& why);

    // memory.cc.
    void serve_waiting(Connection& peer);
    std::uint32_t queue_pairs_per_peer() const {
        return device_->optimizations().parallel_queue_pairs ? queue_pairs_max : 1;
    }
    InitiatorQueuePair* least_loaded_queue_pair(Connection& peer,
                                                std::span<const std::uint32_t> loads);
    bool register_local(RmaOperation& transfer);
    void release_local(RmaOperation& transfer);
    void post_transfers(Connection& peer, InitiatorQueuePair& initiator, RmaList& transfers);
    void on_transferred(QueuePairEntry& queue_pair, std::uint32_t sequence);
    void on_transfer_error(QueuePairEntry& queue_pair, const ibv_wc& completion);
    void finish(RmaOperation& transfer, Code code, std::string why);
    void end_transfers(Connection& peer, Code code, const std::string& why);

    // Constant once the device is open.
    const EndpointParts parts_;
    const pid_t owner_;
    Limits limits_;
    base::UniqueFd epoll_;
    std::unique_ptr<Device> device_;
    Cm cm_;
    std::string device_error_;  // Why the device is unusable; empty: it is not.

    // Peers.
    PeerSlots<Connection> peers_;
    Handshakes handshakes_;
    QueuePairs queue_pairs_;

    // Messages.
    SlotPool<SendSlot> slots_;
    SendBacklog<Connection, SendSlot> backlog_;
    Receives receives_;
    EventQueue events_;

    // Regions and transfers.
    std::vector<SharedDevice::Region*> regions_;  // By their numbers.
    RmaTable transfers_{transfers_max};
    std::optional<RegistrationCache> cache_;

    // Time.
    TimePoint now_;
    Schedule<Connection> schedule_;
    DescriptorPolls descriptor_polls_;
};

// The number of a work request, which its completion returns.
enum class Work : std::uint8_t { receive = 0, message = 1, transfer = 2 };
std::uint64_t number_of(Work work, base::SlotId queue_pair, std::uint32_t sequence);
// The number holds only the last bits of the sequence; the result is at most the last one posted.
std::uint32_t sequence_of(std::uint64_t number, const QueuePair& queue_pair);

}  // namespace weft::na::verbs
