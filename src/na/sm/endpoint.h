// An endpoint of the sm transport.
//
// endpoint.cc: messages, the hot path, of which only the wake-up of a sleeping peer is a system
// call. control.cc: opening, connecting, and the poll of the sockets. accepting.cc: incoming
// connections. ending.cc: how connections end. access.cc: exposed regions, fences and transfers.
#pragma once

#include <bitset>
#include <unordered_map>
#include <vector>

#include "na/acceptor.h"
#include "na/common/event_queue.h"
#include "na/common/peer_slots.h"
#include "na/connect_pacer.h"
#include "na/exposures.h"
#include "na/sm/connection.h"
#include "na/sm/door.h"
#include "na/sm/rma_queue.h"
#include "na/sm/watchlist.h"

namespace weft::na::sm {

class SmEndpoint final : public Endpoint, private Exposures::Reader {
  public:
    // Errors: as Provider::open().
    static Result<std::unique_ptr<Endpoint>> open(std::shared_ptr<ArenaViews> arenas,
                                                  const Address* listen, EndpointParts parts,
                                                  TimePoint now);
    ~SmEndpoint() override;

    std::string_view scheme() const override { return "sm"; }
    std::string address() const override;
    Caps caps() const override;
    const Limits& limits() const override { return limits_; }

    Result<PeerId> connect(const Address& to, TimePoint now) override;
    const PeerInfo* info(PeerId peer) const override;
    void close(PeerId peer) override;
    std::string error() const override { return events_.error; }
    std::string why_waiting(PeerId peer) const override;

    std::byte* reserve(PeerId peer, std::size_t bytes) noexcept override;
    void copy_out(std::byte* to, ByteView body) noexcept override;
    bool commit(std::size_t bytes) noexcept override;
    void flush() noexcept override;
    std::size_t unsent(PeerId peer) const override;
    std::size_t poll(std::span<Event> events, TimePoint now) noexcept override;

    Result<FabricKey> expose(const Exposure& exposure) override;
    void fence(std::uint32_t region, Holders holders) override;
    std::size_t post(std::span<const RmaItem> items) noexcept override;

    int wait_fd() const override { return epoll_.get(); }
    bool arm() override;
    TimePoint next_deadline() const override;

  private:
    using Regions = std::bitset<regions_max>;
    struct Listener {
        std::shared_ptr<SmDoor> door;  // nullptr: it does not listen.
        Acceptor acceptor;
    };
    struct Control {
        TimePoint now;  // Of the last poll.
        // Until then a poll only takes messages. No later than `at`, and in the past while there
        // are events, ending connections, waiting writers, fences or transfers to serve.
        TimePoint messages_only_until = TimePoint::min();
        std::uint32_t empty_polls = 0;
        bool armed = false;
        TimePoint last;
        TimePoint at;  // The next control(), at the latest.
    };
    // Messages are copied out of the ring, which keeps their bytes private until the next poll.
    struct Received {
        std::unique_ptr<std::byte[]> memory;
        std::size_t bytes = 0;
    };
    struct Sends {
        Connection* claimed = nullptr;    // By reserve().
        Connection* committed = nullptr;  // Since the last flush; a list through next_committed.
        // The draft of a large message, and its place in the ring; nullptr: the claim is in the
        // ring already. If copy_out() has written the body, only drafted_bytes are copied.
        std::byte* streamed_to = nullptr;
        std::size_t drafted_bytes = 0;
        std::unique_ptr<std::byte[]> draft;
        std::uint32_t waiters = 0;    // Connections that wait for a `writable`.
        std::size_t next_waiter = 0;  // Where the search for them starts.
    };
    struct Events {
        WaitingEvents waiting;
        std::string error;
        bool was_full = false;  // After a full batch, other events precede messages.
    };
    struct Fences {
        std::vector<std::uint32_t> order;  // In progress; and as a set:
        Regions set;
        std::atomic<std::uint32_t> regions_used{0};  // Highest exposed index + 1.
    };
    struct Transfers {
        RmaQueue queue;
        std::size_t budget = 0;
        TimePoint last_message_at{};  // The last message during a transfer.
    };
    struct Sockets {
        std::unordered_map<std::uint64_t, Connection*> by_serial;
        std::uint64_t serials = 0;
    };
    static constexpr std::size_t received_bytes_max = 256 * 1024;
    static constexpr std::uint64_t listener_serial = 0;
    static constexpr Duration handshake_max = 1s;  // Of an incoming connection.
    // Accepted connections that are not identified yet; more wait in the listener's queue.
    static constexpr std::size_t incoming_max = 32;

    SmEndpoint(std::shared_ptr<ArenaViews> arenas, EndpointParts parts, TimePoint now);

    // Messages (endpoint.cc).
    void want_writable(Connection& connection) noexcept;
    std::byte* reserve_record(Connection& connection, std::size_t bytes) noexcept;
    bool commit_record(Connection& connection, std::size_t bytes) noexcept;
    bool expect_answer(Connection& connection) noexcept;
    void publish(Connection& connection) noexcept;
    void wake_if_asleep(Connection& connection) noexcept;
    void plan_control() noexcept;
    // The next poll does more than messages.
    void request_full_poll() noexcept { control_.messages_only_until = TimePoint::min(); }
    std::size_t poll_messages(std::span<Event> events) noexcept;
    std::size_t poll_everything(std::span<Event> events) noexcept;
    struct TakeResult {
        std::size_t events = 0;
        bool room_left = false;  // For other connections' messages.
        bool is_broken = false;
    };
    TakeResult take_records(Connection& connection, std::span<Event> events) noexcept;
    void emit_message(Connection& connection, Event& event, ByteView message) noexcept;
    void fail_broken(Connection& connection) noexcept;
    bool emit_pending(std::span<Event> events, std::size_t& count) noexcept;
    std::size_t emit_rest(std::span<Event> events) noexcept;
    std::size_t emit_writable(std::span<Event> events) noexcept;
    void unwatch(Connection& connection);

    // Connecting (control.cc), accepting (accepting.cc) and ending (ending.cc).
    void control(TimePoint now);
    void start_attempt(Connection& connection, TimePoint now);
    void retry_later(Connection& connection, TimePoint now);
    void abort_attempt(Connection& connection);
    void on_refusal(Connection& connection, const Status& why, bool hung_up);
    void leave_pacer(Connection& connection);
    void end_handshake(Connection& connection);
    void start_paced_connects(TimePoint now);
    bool evict_oldest_incoming(TimePoint now);
    void start_handshake(Connection& connection);
    void extend_deadlines(Duration stall);
    void accept_some(TimePoint now);
    void on_socket_ready(Connection& connection);
    void on_hello(Connection& connection);
    Status validate_hello(Connection& connection, HelloPacket hello_packet);
    Status listen();
    Connection* add_incoming(base::UniqueFd socket, TimePoint deadline);
    void on_incoming(Connection& connection, Result<std::optional<HelloPacket>> hello_packet);
    Status place(Connection& connection, HelloPacket hello_packet);
    void take_passed(PassedPeer passed);
    Status admit(Connection& connection, HelloPacket hello_packet);
    Status accept_hello(Connection& connection);
    void bring_up(Connection& connection);
    void expire_handshakes(TimePoint now);
    void refuse_incoming(Connection& connection, const Status& why);
    void finish_ending();
    void end(Connection& connection);
    void take_down(Connection& connection, Code code, std::string text);
    bool refers_to(const Connection& connection) const noexcept;
    void retire(std::unique_ptr<Connection> connection);
    void erase_retired(const Connection& connection);
    void unwatch_socket(Connection& connection);
    bool watch_socket(Connection& connection);
    bool has_slot() const;
    std::unique_ptr<Connection> take_incoming(Connection& connection);
    Hello hello() const { return own_hello(parts_, limits_, address()); }
    FilesToSend own_files();

    // Regions and transfers (access.cc).
    void publish(const Exposure& exposure) override;
    void revoke(std::uint32_t region, std::uint32_t generation) noexcept override {
        table_.revoke(region, generation);
    }
    void note_used(std::uint32_t region);
    std::size_t emit_fenced(std::span<Event> events) noexcept;
    Regions accessed_regions() const noexcept;
    std::size_t copy_bytes_per_turn() const;
    std::size_t emit_rma_done(std::span<Event> events) noexcept;

    // Constant.
    const EndpointParts parts_;
    Limits limits_;
    const pid_t owner_;
    base::UniqueFd epoll_;
    Listener listener_;
    RegionTable table_;
    bool is_read_ = false;                      // A peer has the table.
    const std::shared_ptr<ArenaViews> arenas_;  // Of all contexts.

    // Used in every poll and for every message.
    Control control_;
    Watchlist watched_;  // Up or ending.
    Received received_;
    Sends sends_;
    PeerSlots<Connection> peers_;

    // Used rarely.
    Events events_;
    Fences fences_;
    Transfers transfers_{RmaQueue(parts_.arena)};
    std::vector<std::unique_ptr<Connection>> incoming_;  // Before their handshake.
    std::vector<std::unique_ptr<Connection>> retired_;
    Sockets sockets_;
    std::uint32_t handshakes_ = 0;  // In progress, both directions.
    std::uint32_t ending_ = 0;      // Connections.
    ConnectPacer pacer_;
};

}  // namespace weft::na::sm
