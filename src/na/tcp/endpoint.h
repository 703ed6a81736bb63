// An endpoint of the tcp transport.
//
// endpoint.cc: messages, the hot path. lanes.cc: which sockets are looked at, and when. control.cc:
// connecting. accepting.cc: strangers that connect. ending.cc: how connections end. bulk_lane.cc:
// the second socket of a peer. access.cc: exposed regions and transfers.
#pragma once

#include <vector>

#include "na/admission.h"
#include "na/connect_pacer.h"
#include "na/named_socket.h"
#include "na/tcp/connection.h"
#include "na/tcp/pace.h"
#include "na/tcp/socket.h"

namespace weft::na::tcp {

inline constexpr std::size_t eager_bytes_max = 128 * 1024;
inline constexpr std::size_t rma_bytes_max = 1 << 20;
inline constexpr std::uint32_t rma_share = 64;
// Records of some words: for more peers than would all be silent at once.
inline constexpr std::uint32_t rma_depth = 256 * rma_share;

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
    // An event that waits for the next poll, and its words.
    struct Notice {
        Event event;
        std::string text;
    };
    // Where a body goes that nobody wants.
    static constexpr std::size_t waste_bytes = 64 * 1024;
    // A transfer of ours.
    struct Transfer {
        RmaItem item;
        Connection* connection = nullptr;
        std::uint32_t received = 0;    // get: of its data, announced.
        const char* failed = nullptr;  // What is wrong with the local memory.
    };
    using TransferEntry = base::SlotTable<Transfer>::Entry;

    TcpEndpoint(std::string_view scheme, EndpointParts parts, TimePoint now);
    bool is_local() const { return scheme_ == "unix"; }
    std::string form() const;  // Of its addresses.
    Status listen(const Address& at);
    Status listen_at_path(const Address& at);
    int listener() const { return is_local() ? path_.get() : port_.get(); }
    void notify(Notice notice) { notices_.push(std::move(notice)); }

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
    void read_talk(Connection& connection, std::span<Event> events, std::size_t& count) noexcept;
    bool give_notices(std::span<Event> events, std::size_t& count) noexcept;
    bool give_rest(std::span<Event> events, std::size_t& count) noexcept;
    void give_writable(std::span<Event> events, std::size_t& count) noexcept;
    void want_writable(Connection& connection) noexcept;

    // Sockets (lanes.cc).
    bool watch(Lane& lane, bool for_writing);
    bool watch_listener();
    void unwatch(Lane& lane);
    void want_room(Lane& lane, bool wanted);
    bool may_try_again(Lane& lane) const noexcept;
    void heat(Lane& lane);
    void add_hot(Lane& lane);
    bool cool_an_idle_one();
    void cool(Lane& lane);
    void close_lane(Lane& lane);
    void hand_over(Lane& from, Lane& to);
    bool may_read(Lane::Kind kind, std::span<Event> events, std::size_t count) const noexcept;
    void read_hot(Lane::Kind kind, std::span<Event> events, std::size_t& count) noexcept;
    void read(Lane& lane, std::span<Event> events, std::size_t& count) noexcept;
    void brought(Lane& lane, bool all) noexcept;
    void missed(Lane& lane) noexcept;
    void cool_in_crowd(Lane& lane) noexcept;
    bool is_time_to_look(bool busy) noexcept;
    void look(std::span<Event> events, std::size_t& count) noexcept;
    void handle(Lane& lane, std::uint32_t ready, std::span<Event> events,
                std::size_t& count) noexcept;

    // Connecting (control.cc) and accepting (accepting.cc).
    void enter(Connection& connection);
    void start(Connection& connection);
    void start_over(Connection& connection);
    void fail_to_connect(Connection& connection, Code code, std::string why, bool silent = false);
    void try_again(Connection& connection, std::string why);
    void on_hang_up(Connection& connection);
    void end_handshake(Connection& connection);
    void give_turns();
    void serve_handshake(Connection& connection);
    void on_connected(Connection& connection);
    void read_welcome(Connection& connection);
    void go_up(Connection& connection);
    void accept_some();
    void read_stranger(Stranger& stranger);
    Status welcome(Stranger& stranger, const Hello& theirs);
    void refuse(Stranger& stranger, const Status& why);
    void drop(Stranger& stranger);
    bool make_room();
    void serve_handshakes();
    void forgive(Duration stall);
    Hello hello(int socket) const;
    Slot* take_slot();
    void release(PeerId peer);

    // Ending (ending.cc).
    void end(Connection& connection, Code code, const std::string& why);
    void take_down(Connection& connection, Code code, std::string text);
    void lose(Connection& connection, int error);
    void say_bye(Connection& connection);

    // Bulk lanes (bulk_lane.cc).
    Bulk& bulk_of(Connection& connection);
    void open_bulk(Connection& connection);
    void try_opening_bulk(Connection& connection);
    void rest_bulk(Bulk& bulk);
    void try_bulk_again(Connection& connection);
    void on_bulk_hang_up(Connection& connection);
    void on_bulk_connected(Connection& connection);
    void read_joined(Connection& connection);
    Status join(Stranger& stranger, const Ticket& ticket);
    void bulk_up(Connection& connection);
    void lose_bulk(Connection& connection, const std::string& why);
    void close_bulk(Connection& connection, Code code, const std::string& why);
    void serve_bulk_handshake(Connection& connection);
    bool is_moving_bulk();
    void note_moved(Bulk& bulk, std::size_t bytes);
    void pump(Connection& connection) noexcept;
    void pump_all() noexcept;
    std::size_t write_bulk(Connection& connection, std::size_t bytes_max) noexcept;
    std::size_t bulk_slice(const Share& share, std::size_t left) const noexcept;
    void read_bulk(Connection& connection) noexcept;

    // Regions and transfers (access.cc).
    const char* take_steps(Connection& connection) noexcept;
    const char* on_head(Connection& connection) noexcept;
    const char* on_done(Connection& connection, const BulkHead& head) noexcept;
    void on_body_end(Connection& connection) noexcept;
    bool drop_unreadable(Connection& connection, std::size_t bytes_max) noexcept;
    Refusal judge(const BulkHead& head, Access access) const noexcept;
    void ask(Connection& connection, const TransferEntry& entry) noexcept;
    TransferEntry* transfer_of(Connection& connection, std::uint64_t name) noexcept;
    void finish(TransferEntry& entry, Code code, const std::string& why);
    bool give_finished(std::span<Event> events, std::size_t& count) noexcept;

    const std::string_view scheme_;
    EndpointParts parts_;
    Limits limits_;
    base::UniqueFd epoll_;
    base::UniqueFd port_;  // What we listen at: one of the two, or none.
    NamedSocket path_;
    Admission admission_;
    SocketName name_;  // That we listen at.
    pid_t owner_ = 0;

    base::IntrusiveList<Bulk, UnderWayNode> under_way_;  // Those that moved last at the end.
    std::vector<Slot> slots_;
    std::vector<std::uint32_t> free_slots_;
    std::vector<std::unique_ptr<Stranger>> strangers_;  // Oldest first.
    std::uint32_t handshakes_ = 0;  // Connections and bulk lanes that are not up yet.
    ConnectPacer pacer_;

    base::SlotTable<Lane*> lanes_;  // By what epoll calls them.
    // Those that a turn has no room for come first in the next.
    using HotLanes = base::IntrusiveList<Lane, Listed>;
    HotLanes hot_talk_;
    HotLanes hot_bulk_;
    std::uint32_t hot_count_ = 0;
    Share talk_share_;
    Share bulk_share_;
    Share pump_share_;
    std::size_t bulk_left_ = 0;  // Bytes that bulk lanes may still bring in this turn.
    bool look_now_ = true;
    std::uint32_t polls_unlooked_ = 0;
    TimePoint looked_at_;

    ChunkPool chunks_;
    Slab slab_;
    Connection* claimed_ = nullptr;                          // By reserve().
    base::IntrusiveList<Connection, FlushNode> committed_;   // Since the last flush.
    base::IntrusiveList<Connection, WritableNode> refused_;  // Want a `writable`.
    base::IntrusiveList<Bulk, PumpNode> pumping_;
    bool was_full_ = false;  // The last batch: what is not a message comes first in the next.

    std::vector<Exposure> regions_;  // By index; access none: not exposed.
    std::vector<std::uint32_t> fenced_;
    base::SlotTable<Transfer> transfers_;
    base::Fifo<Notice> finished_;  // rma_done.
    std::unique_ptr<std::byte[]> waste_;

    base::Fifo<Notice> notices_;
    std::string error_;
    std::uint64_t turn_ = 1;
    bool bulk_waits_ = false;        // Since the last poll, for the answers to its messages.
    std::uint64_t pumped_turn_ = 0;  // The last one in which bulk lanes were written to.
    TimePoint now_;
    Pace pace_;
};

}  // namespace weft::na::tcp
