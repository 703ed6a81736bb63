// An endpoint over libfabric's reliable datagrams. How the pieces hang together:
//
//   connect()/hello -> Peer -> Link (address in libfabric's table) -> Fabric
//   reserve()/commit() -> SendSlot in the peer's backlog -> libfabric -> completion -> free slot
//   poll(): completions -> events; what does not fit or has a reason waits in pending_
//
// libfabric never tells that a connection broke, so this is inferred: error completions, "try
// again" that lasts, a gap in the sequence, a bye, and a plain TCP probe that is refused.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <vector>

#include "base/fifo.h"
#include "base/unique_fd.h"
#include "na/ofi/fabric.h"
#include "na/ofi/peer.h"

namespace weft::na::ofi {

inline constexpr std::size_t header_room = 1024;
inline constexpr std::size_t message_bytes_wanted = 128 * 1024 + header_room;
static_assert(message_bytes_wanted <= pieces_max * piece_bytes_max);
inline constexpr std::size_t joined_kept_max = 32;
// With pieces and transfers 1128 operations at most: libfabric takes 2048 of an endpoint, and
// settings.cc counts on it.
inline constexpr std::uint32_t send_slots = 256;
inline constexpr std::uint32_t control_slots = 8;  // Kept back for handshakes.
inline constexpr std::uint32_t receive_buffers = 256;
// With libfabric for one peer, when what the caller commits waits: pings and pongs go ahead of
// that, and behind these. A socket that takes them brings the next in the same turn.
inline constexpr std::size_t bytes_under_way_max = 256 * 1024;
inline constexpr std::size_t completions_per_read = 64;
inline constexpr std::uint32_t transfer_depth = 128;
inline constexpr std::uint32_t transfers_per_peer = 16;
inline constexpr std::uint32_t accepting_max = 64;
inline constexpr std::uint32_t accepting_share = 16;  // Of one address.
// The oldest gives way to the next after this: the welcome to a client that is there leaves at
// once, on the connection that brought its hello.
inline constexpr Duration accepting_least = 50ms;
inline constexpr std::size_t gone_max = 1024;
inline constexpr Duration connect_timeout = 2s;
inline constexpr Duration probe_after = 30ms;   // An answered hello takes less.
inline constexpr Duration hello_again = 200ms;  // The peer may have cut an old connection under it.
inline constexpr Duration lost_after = 50ms;
inline constexpr Duration linger = 100ms;
// Within this after a bye the answers to our gets have begun to come, or failed.
inline constexpr Duration answers_begin = 2 * linger;

class OfiEndpoint final : public Endpoint {
  public:
    OfiEndpoint(const Row& row, EndpointParts parts, TimePoint now);
    ~OfiEndpoint() override;

    // Errors: as Provider::open().
    Status listen(const Address& at);

    std::string_view scheme() const override { return row_.scheme; }
    std::string address() const override;
    Caps caps() const override;
    const Limits& limits() const override { return limits_; }

    Result<PeerId> connect(const Address& to, TimePoint now) override;
    const PeerInfo* info(PeerId peer) const override;
    void close(PeerId peer) override;
    std::string error() const override { return error_; }

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
    TimePoint next_deadline() const override { return attention_at_; }

  private:
    struct PendingEvent {
        Event event;
        std::string reason;
        bool forgotten = false;
    };
    struct Region {
        Exposure exposure;
        FabricKey fabric;
        FidPtr<fid_mr> memory;
        bool taken = false;
        std::uint32_t fenced_by = 0;  // Links whose removal the fence waits for.
    };
    struct Claim {
        SendSlot* slot = nullptr;
        base::SlotId peer;
        std::uint32_t offset = 0;
        bool fresh = false;  // Not in a backlog yet.
    };
    enum class Sent : std::uint8_t { ok, again, failed };

    // endpoint.cc: life and peers.
    Status open_fabric(const SocketName& source);
    Status open_for_keys();
    PeerEntry* find(PeerId peer) const;
    PeerEntry* find_up(PeerId peer) const;
    PeerEntry* take_peer(TimePoint now);
    void bring_down(PeerEntry& entry, Code code, std::string why);
    void retire(PeerEntry& entry, Code transfers_end);

    // link.cc.
    Link* link_to(const SocketName& name);
    bool is_awaited(const Link& link) const;
    bool is_going(const SocketName& name) const;
    bool has_link(const SocketName& name) const;
    void mark_sockets_later();
    void mark_sockets();
    void leave_link(Link& link, bool at_once);
    void let_linger(Link& link);
    void look_at(Link& link, TimePoint at);
    void serve_links();
    bool cut(Link& link, const std::string& why);
    bool may_be_removed(Link& link);
    bool remove(Link& link);
    void end_fences(Link& link);

    // poll.cc: completions, events, time.
    void emit(const Event& event);
    void emit(const Event& event, std::string reason);
    bool hand_out_pending();
    void forget_events(PeerId peer);
    void post_receives();
    void read_completions();
    void on_completion(Operation& operation, std::size_t bytes);
    void on_error();
    void on_message(ReceiveBuffer& buffer, std::size_t bytes);
    void on_peer_message(PeerEntry& entry, const Prefix& prefix, ByteView body);
    void on_piece(PeerEntry& entry, const Prefix& prefix, ByteView body);
    void take_back(const std::byte* message);
    void wake_writers();
    void attend(PeerEntry& entry, TimePoint at);
    void serve_attention();
    void forgive(Duration stall);
    void serve(PeerEntry& entry);
    void serve_up(PeerEntry& entry);
    bool blocked(PeerEntry& entry);
    bool is_busy(Link& link);

    // handshake.cc.
    void start_connecting(PeerEntry& entry);
    bool take_link(PeerEntry& entry);
    void serve_resolving(PeerEntry& entry);
    void serve_connecting(PeerEntry& entry);
    void serve_accepting(PeerEntry& entry);
    void on_hello(ByteView body);
    bool make_room();
    void leave_accepting(Peer& peer);
    bool takes_addresses() const { return links_.size() < limits_.peers_max + accepting_max; }
    void on_welcome(PeerEntry& entry, ByteView body);
    void on_refusal(PeerEntry& entry, ByteView body);
    void refuse(const HelloBody& hello, const Status& why);
    Sent send_control(Link& link, ByteView message);
    Hello own_hello() const;
    SocketName own_name_for(const SocketName& peer) const;

    // send.cc.
    Sent send_slot(Peer& peer, SendSlot& slot);
    void on_sent(SendSlot& slot);
    void release(SendSlot& slot);
    void drop(SendSlot& slot);
    bool drain(PeerEntry& entry);
    void say_bye(Peer& peer);
    bool has_room(const Peer& peer) const;
    bool commit(std::size_t bytes, bool at_once) noexcept;

    // memory.cc.
    Status register_region(Region& region);
    bool exposes() const;
    bool withdraw(Region& region);
    void cut_lost_peers(std::uint32_t region);
    void emit_fenced(std::uint32_t region);
    Sent post_transfer(Peer& peer, Transfer& transfer);
    bool start_waiting_transfers(PeerEntry& entry);
    void finish(Transfer& transfer, Code code, std::string why);
    void end_transfers(PeerEntry& entry, Code code);
    bool is_arriving(const Transfer& transfer) const;
    bool is_asking(const Link* link) const;
    bool is_reading(const Link* link) const;
    void drop_completions();
    bool finish_reading();

    const Row& row_;
    EndpointParts parts_;
    Limits limits_;
    std::uint32_t piece_bytes_ = piece_bytes_max;
    bool listening_ = false;
    bool fences_;
    TimePoint now_;
    std::uint64_t turn_ = 1;

    base::UniqueFd wait_fd_;  // An epoll over the fabric's, which may be opened later.
    SendSlots sends_;
    ReceiveBuffers receives_;
    std::vector<const std::byte*> handed_out_;  // Messages of the last poll.
    MessagePool pool_{message_bytes_wanted, joined_kept_max};
    base::Fifo<MessagePool::Buffer> joined_;  // Told, in that order, and not yet taken back.
    std::array<Transfer, transfer_depth> transfers_;
    std::vector<Transfer*> transfers_free_;
    std::vector<Region> regions_;
    const std::array<std::uint64_t, 2> unread_;  // What a get's memory begins with until it comes.

    mutable PeerTable peers_;
    std::vector<PeerEntry*> by_index_;
    std::map<std::string, Link> links_;  // By the bytes of the name.
    bool reading_ = false;               // One of them is cut when the answers on it have come.
    // Removed since memory is exposed, and Link::may_return: a fence cuts what libfabric may have
    // connected there since. Bounded: the oldest are forgotten.
    std::vector<SocketName> gone_;
    base::IntrusiveList<Peer, AcceptingNode> accepting_;  // Oldest first;
    std::uint32_t accepting_count_ = 0;                   // so many.
    std::uint64_t dropped_ = 0;  // Messages that no peer of ours can have sent.
    base::IntrusiveList<Peer, AttentionNode> attention_;
    TimePoint attention_at_ = never;
    TimePoint marking_at_ = never;  // libfabric has opened sockets: mark_sockets().
    TimePoint unmarked_until_{};    // Not before.
    TimePoint links_at_ = never;
    TimePoint polled_at_;
    TimePoint opened_at_ = never;  // Libfabric; until time has gone on.
    base::IntrusiveList<Peer, FlushNode> unflushed_;
    base::IntrusiveList<Peer, WritableNode> want_writable_;
    Claim claim_;

    std::vector<PendingEvent> pending_;
    std::size_t pending_at_ = 0;
    std::span<Event> out_;
    std::size_t out_count_ = 0;
    std::string error_;

    // After all memory that libfabric may touch, so that it is closed before.
    std::unique_ptr<Fabric> fabric_;
};

}  // namespace weft::na::ofi
