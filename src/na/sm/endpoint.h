// An endpoint of the sm transport.
//
// endpoint.cc: messages, the hot path. control.cc: connecting and accepting, all the system calls.
// ending.cc: how connections end. access.cc: exposed regions, fences and transfers.
#pragma once

#include <bitset>
#include <deque>
#include <unordered_map>
#include <vector>

#include "na/acceptor.h"
#include "na/connect_pacer.h"
#include "na/sm/connection.h"
#include "na/sm/names.h"
#include "na/sm/rma_queue.h"
#include "na/sm/watchlist.h"

namespace weft::na::sm {

class SmEndpoint final : public Endpoint {
  public:
    // Errors: as Provider::open().
    static Result<std::unique_ptr<Endpoint>> open(const Address* listen, EndpointParts parts,
                                                  TimePoint now);
    ~SmEndpoint() override;

    std::string_view scheme() const override { return "sm"; }
    std::string address() const override;
    Caps caps() const override;
    const Limits& limits() const override { return limits_; }

    Result<PeerId> connect(const Address& to, TimePoint now) override;
    const PeerInfo* info(PeerId peer) const override;
    void close(PeerId peer) override;
    std::string error() const override { return error_; }
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
    struct Slot {
        std::unique_ptr<Connection> connection;
        std::uint32_t generation = 1;
    };
    // An event for the next poll, and its error text.
    struct PendingEvent {
        Event event;
        std::string text;
    };

    SmEndpoint(EndpointParts parts, TimePoint now);

    // Messages (endpoint.cc).
    // nullptr for a stale or made-up id.
    Connection* find(PeerId peer) const {
        if (peer.index >= slots_made_) return nullptr;
        const Slot& slot = slots_[peer.index];
        return slot.generation == peer.generation ? slot.connection.get() : nullptr;
    }
    void want_writable(Connection& connection) noexcept;
    std::byte* reserve_record(Connection& connection, std::size_t bytes) noexcept;
    bool commit_record(Connection& connection, std::size_t bytes) noexcept;
    bool expect_answer(Connection& connection) noexcept;
    void publish(Connection& connection) noexcept;
    void wake_if_dozing(Connection& connection) noexcept;
    void plan_control() noexcept;
    // The next poll does more than messages.
    void request_full_poll() noexcept { messages_only_until_ = TimePoint::min(); }
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

    // Connecting (control.cc) and ending (ending.cc).
    void control(TimePoint now);
    void start_attempt(Connection& connection, TimePoint now);
    void retry_later(Connection& connection, TimePoint now);
    void abort_attempt(Connection& connection);
    void on_refusal(Connection& connection, const Status& why, bool hung_up);
    void end_handshake(Connection& connection);
    void start_paced_connects(TimePoint now);
    bool evict_oldest_incoming(TimePoint now);
    void start_handshake(Connection& connection);
    void extend_deadlines(Duration stall);
    void accept_some(TimePoint now);
    void on_socket_ready(Connection& connection);
    void on_hello(Connection& connection);
    Status validate_hello(Connection& connection, HelloPacket hello_packet);
    Status welcome(Connection& connection);
    void bring_up(Connection& connection);
    void expire_handshakes(TimePoint now);
    void refuse_incoming(Connection& connection, const Status& why);
    void finish_ending();
    void end(Connection& connection);
    void notify(PendingEvent pending);
    void take_down(Connection& connection, Code code, std::string text);
    bool refers_to(const Connection& connection) const noexcept;
    void retire(std::unique_ptr<Connection> connection);
    void erase_retired(const Connection& connection);
    void unwatch_socket(Connection& connection);
    bool watch_socket(Connection& connection);
    Slot* take_slot();
    std::unique_ptr<Connection> release(PeerId peer);
    std::unique_ptr<Connection> take_incoming(Connection& connection);
    Hello hello() const;
    FilesToSend own_files() const;

    // Regions and transfers (access.cc).
    std::size_t emit_fenced(std::span<Event> events) noexcept;
    using Regions = std::bitset<regions_max>;
    Regions accessed_regions() const noexcept;
    std::size_t copy_bytes_per_turn() const;
    std::size_t emit_rma_done(std::span<Event> events) noexcept;

    EndpointParts parts_;
    Limits limits_;
    Listening listening_;
    base::UniqueFd epoll_;
    Acceptor acceptor_;
    RegionTable table_;
    ArenaViews arenas_;
    pid_t owner_ = 0;

    std::vector<Slot> slots_;
    std::uint32_t slots_made_ = 0;  // slots_.size(), in one instruction.
    std::vector<std::uint32_t> free_slots_;
    std::vector<std::unique_ptr<Connection>> incoming_;  // Before their handshake.
    std::vector<std::unique_ptr<Connection>> retired_;
    std::unordered_map<std::uint64_t, Connection*> by_serial_;
    std::uint64_t serials_ = 0;
    std::uint32_t handshakes_ = 0;  // In progress, both directions.
    ConnectPacer pacer_;
    std::uint32_t ending_ = 0;

    Watchlist watched_;                   // Up or ending.
    Connection* claimed_ = nullptr;       // By reserve().
    Connection* committed_ = nullptr;     // Since the last flush; a list through next_committed.
    std::uint32_t writable_waiters_ = 0;  // Connections that wait for a `writable`.
    std::size_t next_writable_ = 0;       // Where the search for them starts.
    bool was_full_ = false;               // After a full batch, other events precede messages.
    // The draft of a large message, and its place in the ring; nullptr: the claim is in the ring
    // already. If copy_out() has written the body, only drafted_bytes_ of the draft are copied.
    std::unique_ptr<std::byte[]> draft_;
    std::byte* streamed_to_ = nullptr;
    std::size_t drafted_bytes_ = 0;
    // Messages are copied out of the ring, which keeps their bytes private until the next poll.
    static constexpr std::size_t received_bytes_max = 256 * 1024;
    std::unique_ptr<std::byte[]> received_;
    std::size_t received_bytes_ = 0;

    std::deque<PendingEvent> pending_events_;
    std::vector<std::uint32_t> fencing_;  // In order; and as a set:
    Regions is_fencing_;
    RmaQueue rma_queue_{parts_.arena};
    std::size_t copy_budget_ = 0;
    TimePoint last_message_at_;       // The last message during a transfer.
    std::uint32_t regions_used_ = 0;  // Highest exposed index + 1.
    std::string error_;

    bool armed_ = false;
    std::uint32_t empty_polls_ = 0;
    TimePoint last_control_;
    TimePoint control_at_;  // The next control(), at the latest.
    // Until then a poll only takes messages. No later than control_at_, and in the past while there
    // are pending_events_, ending_, writable_waiters_, fencing_ or rma_queue_ to serve.
    TimePoint messages_only_until_ = TimePoint::min();
    TimePoint now_;  // Of the last poll.
};

}  // namespace weft::na::sm
