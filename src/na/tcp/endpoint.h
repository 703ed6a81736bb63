// An endpoint of the tcp transport.
//
// endpoint.cc: messages, the hot path. polling.cc: which sockets are polled, and when. control.cc:
// connecting. accepting.cc: pending peers. ending.cc: how connections end. bulk_socket.cc: the
// second socket of a peer. access.cc: exposed regions and transfers.
#pragma once

#include <vector>

#include "na/acceptor.h"
#include "na/connect_pacer.h"
#include "na/named_socket.h"
#include "na/tcp/bulk_throttle.h"
#include "na/tcp/connection.h"
#include "na/tcp/socket.h"

namespace weft::na::tcp {

inline constexpr std::size_t eager_bytes_max = 128 * 1024;
inline constexpr std::size_t rma_bytes_max = 1 << 20;
inline constexpr std::uint32_t rma_per_peer_max = 64;
// Small records: enough for 256 peers that all stop answering.
inline constexpr std::uint32_t rma_depth = 256 * rma_per_peer_max;

class TcpEndpoint final : public Endpoint {
  public:
    // Errors: as Provider::open().
    // `scheme`: "tcp" or "unix".
    static Result<std::unique_ptr<Endpoint>> open(std::string_view scheme, const Address* listen,
                                                  EndpointParts parts, TimePoint now);
    ~TcpEndpoint() override;

    std::string_view scheme() const override { return scheme_; }
    std::string address() const override;
    Caps caps() const override;
    const Limits& limits() const override { return limits_; }

    Result<PeerId> connect(const Address& to, TimePoint now) override;
    const PeerInfo* info(PeerId peer) const override;
    void close(PeerId peer) override;
    std::string error() const override { return error_; }
    std::string why_waiting(PeerId peer) const override;

    std::byte* reserve(PeerId peer, std::size_t bytes) noexcept override;
    bool commit(std::size_t bytes) noexcept override { return commit(bytes, true); }
    bool commit_later(std::size_t bytes) noexcept override { return commit(bytes, false); }
    void flush() noexcept override;
    std::size_t unsent(PeerId peer) const override;
    bool has_left(PeerId peer) const override;
    bool has_arrived(PeerId peer) override;
    std::size_t poll(std::span<Event> events, TimePoint now) noexcept override;

    Result<FabricKey> expose(const Exposure& exposure) override;
    void fence(std::uint32_t region, Holders holders) override;
    std::size_t post(std::span<const RmaItem> items) noexcept override;

    int wait_fd() const override { return epoll_.get(); }
    bool arm() override;
    TimePoint next_deadline() const override;

  private:
    struct Slot {
        std::unique_ptr<Connection> connection;
        std::uint32_t generation = 1;
    };
    // An event for the next poll, and its error text.
    struct PendingEvent {
        Event event;
        std::string text;
    };
    // Target of discarded bodies.
    static constexpr std::size_t discard_buffer_bytes = 64 * 1024;
    // A transfer that this side initiated.
    struct RmaOperation {
        RmaItem item;
        Connection* connection = nullptr;
        std::uint32_t received = 0;    // get: announced bytes of its data.
        const char* failed = nullptr;  // The fault of the local memory.
    };
    using RmaEntry = base::SlotTable<RmaOperation>::Entry;

    TcpEndpoint(std::string_view scheme, EndpointParts parts, TimePoint now);
    bool is_local() const { return scheme_ == "unix"; }
    std::string form() const;  // The form of its addresses.
    Status listen(const Address& at);
    Status listen_at_path(const Address& at);
    int listener() const { return is_local() ? path_.get() : port_.get(); }
    void notify(PendingEvent pending) { pending_events_.push(std::move(pending)); }

    // Messages (endpoint.cc).
    Connection* find(PeerId peer) const {
        if (peer.index >= slots_.size()) return nullptr;
        const Slot& slot = slots_[peer.index];
        return slot.generation == peer.generation ? slot.connection.get() : nullptr;
    }
    bool commit(std::size_t bytes, bool at_once) noexcept;
    void send_committed() noexcept;
    void flush_later(Connection& connection) noexcept;
    void send_now(Connection& connection) noexcept;
    void read_messages(Connection& connection, std::span<Event> events,
                       std::size_t& count) noexcept;
    bool emit_pending(std::span<Event> events, std::size_t& count) noexcept;
    bool emit_rest(std::span<Event> events, std::size_t& count) noexcept;
    void emit_writable(std::span<Event> events, std::size_t& count) noexcept;
    void want_writable(Connection& connection) noexcept;

    // Sockets (polling.cc).
    bool watch(PolledSocket& polled, bool for_writing);
    bool watch_listener();
    void unwatch(PolledSocket& polled);
    void watch_writable(PolledSocket& polled, bool wanted);
    bool may_retry(PolledSocket& polled) const noexcept;
    void mark_hot(PolledSocket& polled);
    void add_hot(PolledSocket& polled);
    bool evict_idle_hot();
    void mark_cold(PolledSocket& polled);
    void close_socket(PolledSocket& polled);
    void move_socket(PolledSocket& from, PolledSocket& to);
    bool may_read(PolledSocket::Kind kind, std::span<Event> events,
                  std::size_t count) const noexcept;
    void read_hot(PolledSocket::Kind kind, std::span<Event> events, std::size_t& count) noexcept;
    void read(PolledSocket& polled, std::span<Event> events, std::size_t& count) noexcept;
    void on_read(PolledSocket& polled, bool all) noexcept;
    void on_empty_read(PolledSocket& polled) noexcept;
    void evict_when_crowded(PolledSocket& polled) noexcept;
    bool must_poll_descriptors(bool busy) noexcept;
    void poll_descriptors(std::span<Event> events, std::size_t& count) noexcept;
    void handle(PolledSocket& polled, std::uint32_t ready, std::span<Event> events,
                std::size_t& count) noexcept;

    // Connecting (control.cc) and accepting (accepting.cc).
    void enqueue_connect(Connection& connection);
    void start(Connection& connection);
    void restart_connect(Connection& connection);
    void fail_to_connect(Connection& connection, Code code, std::string why,
                         bool timed_out = false);
    void retry_connect(Connection& connection, std::string why);
    void on_hang_up(Connection& connection);
    void end_handshake(Connection& connection);
    void start_paced_connects();
    void serve_handshake(Connection& connection);
    void on_connected(Connection& connection);
    void read_welcome(Connection& connection);
    void bring_up(Connection& connection);
    void accept_some();
    void read_pending_peer(PendingPeer& pending_peer);
    Status welcome(PendingPeer& pending_peer, const Hello& theirs);
    void refuse(PendingPeer& pending_peer, const Status& why);
    void drop_pending(PendingPeer& pending_peer);
    bool evict_oldest_pending();
    void serve_handshakes();
    void extend_deadlines(Duration stall);
    Hello hello(int socket) const;
    Slot* take_slot();
    void release(PeerId peer);

    // Ending (ending.cc).
    void end(Connection& connection, Code code, const std::string& why);
    void take_down(Connection& connection, Code code, std::string text);
    void on_connection_lost(Connection& connection, int error);
    void send_bye(Connection& connection);

    // Bulk lanes (bulk_socket.cc).
    Bulk& bulk_of(Connection& connection);
    void open_bulk(Connection& connection);
    void start_bulk_connect(Connection& connection);
    void back_off_bulk(Bulk& bulk);
    void retry_bulk(Connection& connection);
    void on_bulk_hang_up(Connection& connection);
    void on_bulk_connected(Connection& connection);
    void read_joined(Connection& connection);
    Status join(PendingPeer& pending_peer, const Ticket& ticket);
    void bring_up_bulk(Connection& connection);
    void on_bulk_lost(Connection& connection, const std::string& why);
    void close_bulk(Connection& connection, Code code, const std::string& why);
    void serve_bulk_handshake(Connection& connection);
    bool is_moving_bulk();
    void note_moved(Bulk& bulk, std::size_t bytes);
    void pump(Connection& connection) noexcept;
    void pump_all() noexcept;
    std::size_t write_bulk(Connection& connection, std::size_t bytes_max) noexcept;
    std::size_t bulk_slice(const FairShare& share, std::size_t left) const noexcept;
    void read_bulk(Connection& connection) noexcept;

    // Regions and transfers (access.cc).
    const char* process_bulk(Connection& connection) noexcept;
    const char* on_head(Connection& connection) noexcept;
    const char* on_done(Connection& connection, const BulkHead& head) noexcept;
    void on_body_end(Connection& connection) noexcept;
    bool drop_unreadable(Connection& connection, std::size_t bytes_max) noexcept;
    Refusal validate(const BulkHead& head, Access access) const noexcept;
    void send_request(Connection& connection, const RmaEntry& entry) noexcept;
    RmaEntry* transfer_of(Connection& connection, std::uint64_t name) noexcept;
    void finish(RmaEntry& entry, Code code, const std::string& why);
    bool emit_rma_done(std::span<Event> events, std::size_t& count) noexcept;

    const std::string_view scheme_;
    EndpointParts parts_;
    Limits limits_;
    base::UniqueFd epoll_;
    base::UniqueFd port_;  // The listener: this or path_, or none.
    NamedSocket path_;
    Acceptor acceptor_;
    SocketName name_;  // The address of the listener.
    pid_t owner_ = 0;

    base::IntrusiveList<Bulk, UnderWayNode> under_way_;  // In the order of their last progress.
    std::vector<Slot> slots_;
    std::vector<std::uint32_t> free_slots_;
    std::vector<std::unique_ptr<PendingPeer>> pending_peers_;  // Oldest first.
    std::uint32_t handshakes_ = 0;  // Connections and bulk lanes that are not up yet.
    ConnectPacer pacer_;

    base::SlotTable<PolledSocket*> sockets_;  // By their ids in epoll.
    // Sockets for which a turn has no room are first in the next.
    using HotSockets = base::IntrusiveList<PolledSocket, Listed>;
    HotSockets hot_message_sockets_;
    HotSockets hot_bulk_sockets_;
    std::uint32_t hot_count_ = 0;
    FairShare message_share_;
    FairShare bulk_share_;
    FairShare pump_share_;
    std::size_t bulk_bytes_left_ = 0;  // Bytes that bulk lanes may still receive in this turn.
    bool poll_descriptors_now_ = true;
    std::uint32_t polls_since_descriptors_ = 0;
    TimePoint descriptors_polled_at_;

    ChunkPool chunks_;
    Slab slab_;
    Connection* claimed_ = nullptr;                          // By reserve().
    base::IntrusiveList<Connection, FlushNode> committed_;   // Since the last flush.
    base::IntrusiveList<Connection, WritableNode> refused_;  // Wait for a `writable`.
    base::IntrusiveList<Bulk, PumpNode> pumping_;
    bool was_full_ = false;  // After a full batch, other events precede messages.

    std::vector<Exposure> regions_;  // By index; access none: not exposed.
    std::vector<std::uint32_t> fenced_;
    base::SlotTable<RmaOperation> transfers_;
    base::Fifo<PendingEvent> finished_;  // rma_done.
    std::unique_ptr<std::byte[]> discard_buffer_;

    base::Fifo<PendingEvent> pending_events_;
    std::string error_;
    std::uint64_t turn_ = 1;
    bool bulk_awaits_replies_ = false;  // Until the messages of the last poll are answered.
    std::uint64_t pumped_turn_ = 0;     // The last turn in which bulk lanes were written.
    TimePoint now_;
    BulkThrottle throttle_;
};

}  // namespace weft::na::tcp
