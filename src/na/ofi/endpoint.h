// An endpoint over libfabric's reliable datagrams. How the parts connect:
//
//   connect()/hello -> Connection -> AvEntry (address in libfabric's table) -> Fabric
//   reserve()/commit() -> SendSlot in the peer's backlog -> libfabric -> completion -> free slot
//   poll(): completions -> events; an event without room, or with a reason, waits in events_
//
// libfabric never reports a broken connection, so the endpoint infers it: from error completions,
// "try again" that lasts, a gap in the sequence, a bye, and a plain TCP probe that is refused.
#pragma once

#include <map>
#include <vector>

#include "base/unique_fd.h"
#include "na/common/event_queue.h"
#include "na/common/peer_slots.h"
#include "na/ofi/connection.h"
#include "na/ofi/fabric.h"
#include "na/ofi/received_messages.h"
#include "na/ofi/transfers.h"

namespace weft::na::ofi {

inline constexpr std::size_t header_room = 1024;
inline constexpr std::size_t message_bytes_wanted = 128 * 1024 + header_room;
static_assert(message_bytes_wanted <= pieces_max * piece_bytes_max);
// With pieces and transfers at most 1128 operations: libfabric takes 2048 of an endpoint, and
// settings.cc relies on that.
inline constexpr std::uint32_t send_slots = 256;
inline constexpr std::uint32_t control_slots = 8;  // Reserved for handshakes.
inline constexpr std::uint32_t receive_buffers = 256;
// Bytes of one peer that libfabric may hold before the caller's commits wait. Pings and pongs
// overtake waiting commits, but not these bytes. A socket that accepts them takes more in the same
// turn.
inline constexpr std::size_t bytes_under_way_max = 256 * 1024;
inline constexpr std::size_t completions_per_read = 64;
inline constexpr std::uint32_t transfers_per_peer = 16;
inline constexpr std::uint32_t accepting_max = 64;
inline constexpr std::uint32_t accepting_share = 16;  // With one address.
// After this time the oldest accepting peer may be evicted for a new one: the welcome to a live
// client leaves at once, on the connection that brought its hello.
inline constexpr Duration accepting_min = 50ms;
inline constexpr std::size_t removed_max = 1024;
inline constexpr Duration connect_timeout = 2s;
inline constexpr Duration probe_after = 30ms;  // An answered hello takes less.
inline constexpr Duration hello_resend_interval =
    200ms;  // The peer may have cut the old connection that carried it.
inline constexpr Duration lost_after = 50ms;
inline constexpr Duration linger = 100ms;
// Within this time after a bye the replies to gets of this side begin to arrive, or the gets fail.
inline constexpr Duration replies_begin_within = 2 * linger;

class OfiEndpoint final : public Endpoint {
  public:
    OfiEndpoint(const FabricTraits& traits, EndpointParts parts, TimePoint now);
    ~OfiEndpoint() override;

    // Errors: as Provider::open().
    Status listen(const Address& at);

    std::string_view scheme() const override { return traits_.scheme; }
    std::string address() const override;
    Caps caps() const override;
    const Limits& limits() const override { return limits_; }

    Result<PeerId> connect(const Address& to, TimePoint now) override;
    const PeerInfo* info(PeerId peer) const override;
    void close(PeerId peer) override;
    std::string error() const override { return events_.reason(); }

    std::byte* reserve(PeerId peer, std::size_t bytes) noexcept override;
    bool commit(std::size_t bytes) noexcept override { return commit(bytes, true); }
    bool commit_later(std::size_t bytes) noexcept override { return commit(bytes, false); }
    void flush() noexcept override;
    std::size_t unsent(PeerId peer) const override;
    std::size_t poll(std::span<Event> events, TimePoint now) noexcept override;

    Result<FabricKey> expose(const Exposure& exposure) override;
    void fence(std::uint32_t region, Holders holders) override;
    std::size_t post(std::span<const RmaItem> items) noexcept override;

    int wait_fd() const override { return wait_fd_.get(); }
    bool arm() override;
    TimePoint next_deadline() const override { return schedule_.next(); }

  private:
    struct Region {
        Exposure exposure;
        FabricKey fabric;
        FidPtr<fid_mr> memory;
        bool taken = false;
        std::uint32_t fenced_by = 0;  // Address entries that the fence waits for.
    };
    struct AvTable {
        std::map<std::string, AvEntry> entries;  // By the bytes of the name.
        bool reading = false;  // An entry is to be cut when the replies on it have arrived.
        // Addresses removed while memory is exposed, with AvEntry::may_reconnect: libfabric may
        // have connected there since, and a fence cuts that. Bounded: the oldest are dropped.
        std::vector<SocketName> removed;
        TimePoint check_at = never;
    };
    struct AcceptingPeers {
        base::IntrusiveList<Connection, AcceptingNode> list;  // Oldest first.
        std::uint32_t count = 0;
    };
    struct Clock {
        TimePoint now;
        TimePoint polled_at;
        TimePoint opened_at = never;  // When libfabric was opened; `never` after a later poll.
    };
    struct CloseOnExec {
        TimePoint at = never;  // libfabric opened sockets: set_close_on_exec() is due.
        TimePoint not_before{};
    };
    enum class Sent : std::uint8_t { ok, retry, failed };

    // endpoint.cc: lifetime and peers.
    Status open_fabric(const SocketName& source);
    Status open_for_keys();
    bool has_slot() const { return peers_.size() < limits_.peers_max; }
    Connection* add_peer();  // nullptr: no memory.
    void take_down(Connection& peer, Code code, std::string why);
    void remove(Connection& peer, Code transfers_end);
    void detach(Connection& peer, Code transfers_end);

    // av_entry.cc.
    AvEntry* find_or_add_av_entry(const SocketName& name);
    bool is_removal_awaited(const AvEntry& av_entry) const;
    bool is_being_removed(const SocketName& name) const;
    bool has_av_entry(const SocketName& name) const;
    void schedule_close_on_exec();
    void set_close_on_exec();
    void release_av_entry(AvEntry& av_entry, bool at_once);
    void start_lingering(AvEntry& av_entry);
    void check_at(AvEntry& av_entry, TimePoint at);
    void serve_av_entries();
    bool cut(AvEntry& av_entry, const std::string& why);
    bool may_be_removed(AvEntry& av_entry);
    bool remove(AvEntry& av_entry);
    void end_fences(AvEntry& av_entry);

    // poll.cc: completions, events, time.
    void post_receives();
    void read_completions();
    void on_completion(OperationContext& operation, std::size_t bytes);
    void on_error();
    void on_message(ReceiveBuffer& buffer, std::size_t bytes);
    void on_peer_message(Connection& peer, const Prefix& prefix, ByteView body);
    void on_piece(Connection& peer, const Prefix& prefix, ByteView body);
    void serve_scheduled();
    void extend_deadlines(Duration stall);
    void serve(Connection& peer);
    void serve_up(Connection& peer);
    bool blocked(Connection& peer);
    bool is_busy(AvEntry& av_entry);

    // handshake.cc.
    void start_resolving(Connection& peer, const Address& to);
    void start_connecting(Connection& peer);
    bool assign_av_entry(Connection& peer);
    void serve_resolving(Connection& peer);
    void serve_connecting(Connection& peer);
    void serve_accepting(Connection& peer);
    void on_hello(ByteView body);
    bool evict_oldest_accepting();
    void unlink_accepting(Connection& peer);
    bool has_av_room() const { return av_.entries.size() < limits_.peers_max + accepting_max; }
    void on_welcome(Connection& peer, ByteView body);
    void on_refusal(Connection& peer, ByteView body);
    void refuse(const HelloBody& hello, const Status& why);
    Sent send_control(AvEntry& av_entry, ByteView message);
    Hello our_hello() const { return own_hello(parts_, limits_, address()); }
    SocketName own_name_for(const SocketName& peer) const;

    // send.cc.
    Sent send_slot(Connection& peer, SendSlot& slot);
    void on_sent(SendSlot& slot);
    void release(SendSlot& slot);
    void drop(SendSlot& slot);
    bool drain(Connection& peer);
    void send_bye(Connection& peer);
    bool has_room(const Connection& peer) const;
    bool commit(std::size_t bytes, bool at_once) noexcept;

    // memory.cc.
    Status register_region(Region& region);
    bool exposes() const;
    bool withdraw(Region& region);
    void cut_lost_peers(std::uint32_t region);
    Sent post_transfer(Connection& peer, RmaOperation& transfer);
    bool start_waiting_transfers(Connection& peer);
    void finish(RmaOperation& transfer, Code code, std::string why);
    void end_transfers(Connection& peer, Code code);
    bool has_pending_rma(const AvEntry* av_entry) const;
    bool has_pending_gets(const AvEntry* av_entry) const;
    void drop_completions();
    bool finish_reading();

    // Constant once libfabric is open.
    const FabricTraits& traits_;
    const EndpointParts parts_;
    Limits limits_;
    std::uint32_t piece_bytes_ = piece_bytes_max;
    bool listening_ = false;
    bool fences_;
    base::UniqueFd wait_fd_;  // An epoll over that of the fabric, which may be opened later.

    // Peers, and the connections beneath them.
    PeerSlots<Connection> peers_;
    AvTable av_;
    AcceptingPeers accepting_;

    // Messages.
    const MessageMemory send_memory_;
    SlotPool<SendSlot> sends_;
    SendBacklog<Connection, SendSlot> backlog_;
    ReceivedMessages received_;
    EventQueue events_;

    // Regions and transfers.
    std::vector<Region> regions_;
    Transfers transfers_;

    // Time.
    Clock clock_;
    Schedule<Connection> schedule_;
    CloseOnExec close_on_exec_;

    // Behind all memory that libfabric may touch, so that it is closed before that is freed.
    std::unique_ptr<Fabric> fabric_;
};

}  // namespace weft::na::ofi
