// One node of a simulated network.
//
// What arrives goes through an inbox of its connection in order of arrival, so that peer_down
// follows the messages that came before it. An idle endpoint holds a few hundred bytes; everything
// else grows on use.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "na/arena.h"
#include "na/sim/fifo.h"
#include "na/sim/network.h"

namespace weft::na::sim {

class SimEndpoint final : public Endpoint {
  public:
    SimEndpoint(std::shared_ptr<World> world, std::string name, std::string_view host,
                const EndpointParts& parts);
    ~SimEndpoint() override;

    // Errors: ALREADY_EXISTS.
    Status join();
    // Ends as a killed process does, whose host tells the peers, or with its host, which doesn't.
    void die(bool tells);
    // Answers no transfer any more.
    void fall_silent() { silent_ = true; }
    const std::string& public_uri() const { return public_uri_; }
    HostId host() const { return host_; }
    NodeId node() const { return node_; }
    // A connect of that peer waits here to be taken.
    bool has_queued(NodeId from, PeerId peer) const;

    std::string_view scheme() const override { return "sim"; }
    std::string address() const override { return name_.empty() ? "" : "sim://" + name_; }
    Caps caps() const override;
    const Limits& limits() const override { return limits_; }

    Result<PeerId> connect(const Address& to, TimePoint now) override;
    const PeerInfo* info(PeerId peer) const override;
    void close(PeerId peer) override;
    std::string error() const override { return error_; }

    std::byte* reserve(PeerId peer, std::size_t bytes) noexcept override;
    bool commit(std::size_t bytes) noexcept override;
    void flush() noexcept override;
    std::size_t unsent(PeerId peer) const override;
    bool has_left(PeerId peer) const override;
    std::size_t poll(std::span<Event> events, TimePoint now) noexcept override;

    Result<FabricKey> expose(const Exposure& exposure) override;
    void fence(std::uint32_t region, Holders holders) override;
    std::size_t post(std::span<const RmaItem> items) noexcept override;

    // The world drives arrivals; what is here already wants a poll at once, and so does what the
    // last one gave, while its sender waits for the room. The dead want nothing.
    TimePoint next_deadline() const override {
        const bool has_more = !own_.empty() || !ready_.empty() || is_waited_for_;
        return node_ && has_more ? network_.now() : never;
    }

    // Network use: what arrives. on_connect answers why not; what it takes may be refused later.
    Status on_connect(Cargo& cargo);
    // Hands over what is its connection's next, and keeps what is ahead.
    void arrange(Cargo& cargo);
    // A packet that can't be had again: its connection ends.
    void on_lost(const Cargo& cargo, Code code, std::string_view why);
    void on_no_answer(const Cargo& cargo);
    // The connection is gone, as far as this side knows.
    void end_link(PeerId peer, Code code, std::string_view why);
    void on_accept(Cargo& cargo);
    void on_message(Cargo& cargo);
    void on_down(Cargo& cargo);
    void on_writable(Cargo& cargo);
    void on_rma_put(Cargo& cargo);
    void on_rma_request(Cargo& cargo);
    void on_rma_data(Cargo& cargo);
    void on_rma_answer(Cargo& cargo);
    void on_rma_next(Cargo& cargo);
    void on_rma_more(Cargo& cargo);
    void on_fence_over(Cargo& cargo);

  private:
    enum class LinkState : std::uint8_t { connecting, up, down };

    // One that was admitted to memory of ours and has not ended.
    struct Admission {
        TransferId transfer;  // The initiator's.
        std::uint32_t region = 0;
        std::uint64_t serial = 0;  // Of the exposure.
        Bytes memory;              // What it may touch, until the fence.
        std::size_t done = 0;
    };

    // One direction and lane.
    struct Order {
        std::uint64_t out = 0;     // What was sent last,
        std::uint64_t next = 1;    // and what comes next.
        std::vector<Cargo> ahead;  // Came before what is to come before it.
    };

    struct Arrived {
        Event event;
        Parcel parcel;
        std::string text;
        std::unique_ptr<Cargo> connect;  // One that is to be taken; then nothing else counts.
    };

    struct Link {
        LinkState state = LinkState::connecting;
        bool established = false;      // Was up: info() is valid until peer_down is polled.
        std::size_t bytes_wanted = 0;  // A claim of that size was refused; 0: none was.
        std::uint32_t refusals = 0;    // Of claims in a row, though there was room.
        bool is_refusing = false;      // Until the last one is told that there is.
        NodeId node;                   // The other end, and what it calls us.
        PeerId remote;
        HostId host = 0;  // Of the other end.
        Order orders[lanes];
        std::vector<Admission> admissions;
        PeerInfo info;
        TimePoint busy_at = TimePoint::min();  // When its listener had no place for us,
        std::uint32_t busy_times = 0;          // and how often.
        std::size_t bytes_under_way = 0;       // Ours, not yet polled and freed over there.
        std::uint32_t messages_under_way = 0;
        Parcel pending;      // Joined commits that leave with flush().
        Fifo<Parcel> queue;  // What the hosts have no room for yet.
        std::size_t bytes_queued = 0;
        Fifo<Arrived> inbox;  // Not empty: the link is among ready_.
    };
    struct LinkSlot {
        std::uint32_t generation = 1;
        std::unique_ptr<Link> link;
    };

    struct Region {
        Exposure exposure;
        std::uint64_t serial = 0;  // Tells exposures apart, whatever core calls them.
        std::uint32_t admissions = 0;
        bool fencing = false;
    };

    struct Transfer {
        RmaItem item;
        std::size_t bytes_done = 0;  // Of a put: have left; of a get: are here.
        bool is_unreadable = false;  // Its local memory, of a put that had begun.
    };
    using TransferTable = base::SlotTable<Transfer>;

    struct Delivered {
        PeerId peer;
        Parcel parcel;
    };

    Link* find(PeerId peer) const;
    PeerId add_link(std::unique_ptr<Link> link);
    void remove_link(PeerId peer);
    Cargo cargo_for(Kind kind, PeerId peer, const Link& link) const;
    Parcel hello() const;
    Status take_hello(Link& link, const Parcel& parcel);
    void send_ordered(Link& link, Cargo cargo, Lane lane = Lane::talk);
    void send_down(PeerId peer, Link& link, std::string_view why);
    void send_pending(PeerId peer, Link& link);
    bool fits_socket(const Link& link, std::size_t bytes) const;
    void send_queued(PeerId peer, Link& link);
    void wait_for_room(const Link& link);
    bool waits_for_room(PeerId peer) const;
    void send_message(PeerId peer, Link& link, Parcel parcel);
    static void append(Parcel& pending, ByteView message);
    bool has_room(const Link& link, std::size_t bytes) const;
    void give_back_room(PeerId peer, std::size_t bytes);
    void tell_of_room(PeerId peer, Duration later);
    void arrive(Event event, std::string text = {}, Parcel parcel = {});
    PeerId next_ready();
    std::size_t poll_own(std::span<Event> events);
    std::size_t poll_peer(PeerId peer, std::span<Event> events, std::size_t& bytes_left);
    void hand_out(Arrived& arrived, Event& event);
    void send_connect(PeerId peer, Duration pause);
    void await_answer(PeerId peer);
    std::string_view sought_by(const Link& link) const;
    Status take_connect(const Cargo& cargo, Event& event);
    void free_delivered();
    void leave(std::string_view why, bool tells);

    // rma.cc, the initiator's side
    void send_piece(TransferTable::Entry& entry);
    void finish(TransferTable::Entry& entry, Code code, std::string_view why);
    void finish_all(PeerId peer, Code code, std::string_view why);
    // rma.cc, the owner's side
    std::string_view why_refused(RmaKind kind, const RmaHead& head) const;
    static Admission* find_admission(Link& link, TransferId transfer);
    Admission* admit(Link& link, const Cargo& cargo, RmaKind kind, const RmaHead& head);
    bool is_revoked(const Admission& admission);
    void deny(Link& link, Admission& admission, const Cargo& cargo);
    void answer(Link& link, const Cargo& request, Code code, std::string_view why);
    void release(Link& link, Admission& admission);
    void leave(const Admission& admission);
    void drop_admissions(Link& link);
    void end_fence(std::uint32_t region);

    const Arena& arena_;
    std::shared_ptr<World> world_;
    Network& network_;
    NodeId node_;
    const std::string host_name_;
    HostId host_ = 0;
    Scarcity* scarcity_ = nullptr;  // Of the host.
    std::string name_;
    std::string public_uri_;
    Incarnation incarnation_;
    Limits limits_;
    std::string error_;
    std::vector<LinkSlot> links_;
    std::vector<std::uint32_t> links_free_;
    std::vector<PeerId> pending_;       // Links with something pending.
    Fifo<Arrived> own_;                 // Events of no peer's.
    Fifo<PeerId> ready_;                // Links with events, in the order in which they are served.
    bool has_words_ = false;            // The last event that was handed out has an error().
    std::vector<Delivered> delivered_;  // Bytes of the last poll.
    bool is_waited_for_ = false;        // A sender has more for us than there is room meanwhile.
    PeerId claim_peer_;
    Parcel claim_;
    bool turn_began_ = false;  // The first commit of this turn has left.
    std::map<std::uint32_t, Region> regions_;
    std::uint64_t exposures_ = 0;
    TransferTable transfers_;
    bool silent_ = false;
    std::uint32_t connects_queued_ = 0;  // In the inbox.
};

}  // namespace weft::na::sim
