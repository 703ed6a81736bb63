// An endpoint of the tcp transport.
//
// endpoint.cc: messages, the hot path. polling.cc: which sockets are polled, and when. control.cc:
// connecting. accepting.cc: pending peers. ending.cc: how connections end. bulk_socket.cc: the
// second socket of a peer. access.cc: exposed regions and transfers.
#pragma once

#include <vector>

#include "na/acceptor.h"
#include "na/common/descriptor_polls.h"
#include "na/common/event_queue.h"
#include "na/common/peer_slots.h"
#include "na/connect_pacer.h"
#include "na/tcp/bulk_schedule.h"
#include "na/tcp/connection.h"
#include "na/tcp/door.h"
#include "na/tcp/exposed_regions.h"
#include "na/tcp/hot_sockets.h"
#include "na/tcp/socket.h"

namespace weft::na::tcp {

inline constexpr std::size_t eager_bytes_max = 128 * 1024;
inline constexpr std::size_t rma_bytes_max = 1 << 20;
inline constexpr std::uint32_t rma_per_peer_max = 64;
inline constexpr std::size_t pending_peers_max = 64;  // Accepted, and not identified yet.
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
    std::string error() const override { return events_.error; }
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
    struct Listener {
        std::shared_ptr<TcpDoor> door;  // nullptr: it does not listen.
        Acceptor acceptor;
    };
    struct Sends {
        ChunkPool chunks;
        Connection* claimed = nullptr;                          // By reserve().
        base::IntrusiveList<Connection, FlushNode> committed;   // Since the last flush.
        base::IntrusiveList<Connection, WritableNode> refused;  // Wait for a `writable`.
    };
    struct Events {
        WaitingEvents waiting;
        WaitingEvents finished;  // rma_done.
        std::string error;
        bool was_full = false;  // After a full batch, other events precede messages.
    };
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
    Status listen();
    const SocketName& own_name() const;  // Of the listener; empty: there is none.

    // Messages (endpoint.cc).
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
    void close_socket(PolledSocket& polled);
    void move_socket(PolledSocket& from, PolledSocket& to);
    bool may_read(PolledSocket::Kind kind, std::span<Event> events,
                  std::size_t count) const noexcept;
    void read_hot(PolledSocket::Kind kind, std::span<Event> events, std::size_t& count) noexcept;
    void read(PolledSocket& polled, std::span<Event> events, std::size_t& count) noexcept;
    void on_read(PolledSocket& polled, bool all) noexcept;
    void on_empty_read(PolledSocket& polled) noexcept;
    void evict_when_crowded(PolledSocket& polled) noexcept;
    void poll_descriptors(std::span<Event> events, std::size_t& count) noexcept;
    void handle(PolledSocket& polled, std::uint32_t ready, std::span<Event> events,
                std::size_t& count) noexcept;

    // Connecting (control.cc) and accepting (accepting.cc).
    void enqueue_connect(Connection& connection);
    void leave_pacer(Connection& connection);
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
    PendingPeer* add_pending(base::UniqueFd socket, TimePoint deadline);
    void read_pending_peer(PendingPeer& pending_peer);
    Status place(PendingPeer& pending_peer);
    Status admit(PendingPeer& pending_peer);
    Status pass_on(PendingPeer& pending_peer, std::uint16_t context);
    void take_passed(PassedPeer passed);
    Status welcome(PendingPeer& pending_peer, const Hello& theirs);
    void refuse(PendingPeer& pending_peer, const Status& why);
    void drop_pending(PendingPeer& pending_peer);
    bool evict_oldest_pending();
    void serve_handshakes();
    void extend_deadlines(Duration stall);
    Hello hello(int socket) const;
    bool has_slot() const { return peers_.size() < parts_.peers_max; }
    Connection* add_peer();  // nullptr: no memory.

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
    void pump(Connection& connection) noexcept;
    void pump_all() noexcept;
    std::size_t write_bulk(Connection& connection, std::size_t bytes_max) noexcept;
    void read_bulk(Connection& connection) noexcept;

    // Regions and transfers (access.cc).
    const char* process_bulk(Connection& connection) noexcept;
    const char* on_head(Connection& connection) noexcept;
    const char* on_done(Connection& connection, const BulkHead& head) noexcept;
    void on_body_end(Connection& connection) noexcept;
    bool drop_unreadable(Connection& connection, std::size_t bytes_max) noexcept;
    void send_request(Connection& connection, const RmaEntry& entry) noexcept;
    RmaEntry* transfer_of(Connection& connection, std::uint64_t name) noexcept;
    void finish(RmaEntry& entry, Code code, const std::string& why);

    // Constant.
    const std::string_view scheme_;
    const EndpointParts parts_;
    const Limits limits_;
    const pid_t owner_;
    base::UniqueFd epoll_;
    Listener listener_;

    // Peers and their handshakes.
    PeerSlots<Connection> peers_;
    std::vector<std::unique_ptr<PendingPeer>> pending_peers_;  // Oldest first.
    std::uint32_t handshakes_ = 0;  // Connections and bulk lanes that are not up yet.
    ConnectPacer pacer_;

    // Sockets.
    base::SlotTable<PolledSocket*> sockets_;  // By their ids in epoll.
    HotSockets hot_;
    DescriptorPolls descriptor_polls_;

    // Messages.
    Sends sends_;
    Slab slab_;
    Events events_;

    // Regions and transfers.
    BulkSchedule bulk_;
    ExposedRegions regions_;
    base::SlotTable<RmaOperation> transfers_;

    // Time.
    std::uint64_t turn_ = 1;
    TimePoint now_;
};

}  // namespace weft::na::tcp
