// One node of a simulated network.
//
// Packets go through an inbox of their connection in order of arrival, so that peer_down follows
// the messages that arrived before it. An idle endpoint holds 1.5 KiB with its listener; everything
// else grows on use.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "na/arena.h"
#include "na/common/events.h"
#include "na/common/peer_phase.h"
#include "na/common/peer_slots.h"
#include "na/exposures.h"
#include "na/hello.h"
#include "na/sim/door.h"
#include "na/sim/fifo.h"
#include "na/sim/network.h"

namespace weft::na::sim {

// Of a hello.
Payload payload_of(const Hello& hello);

class SimEndpoint final : public Endpoint, public Node {
  public:
    // `door`: nullptr: it does not listen.
    SimEndpoint(std::shared_ptr<World> world, std::shared_ptr<SimDoor> door, HostId host,
                const EndpointParts& parts);
    ~SimEndpoint() override;

    // Errors: RESOURCE_EXHAUSTED.
    Status join();

    std::string_view scheme() const override { return "sim"; }
    std::string address() const override { return door_ ? "sim://" + door_->name() : ""; }
    Caps caps() const override;
    const Limits& limits() const override { return limits_; }

    Result<PeerId> connect(const Address& to, TimePoint now) override;
    const PeerInfo* info(PeerId peer) const override;
    void close(PeerId peer) override;
    std::string error() const override { return events_.error; }

    std::byte* reserve(PeerId peer, std::size_t bytes) noexcept override;
    bool commit(std::size_t bytes) noexcept override;
    void flush() noexcept override;
    std::size_t unsent(PeerId peer) const override;
    bool has_left(PeerId peer) const override;
    std::size_t poll(std::span<Event> events, TimePoint now) noexcept override;

    Result<FabricKey> expose(const Exposure& exposure) override;
    void fence(std::uint32_t region, Holders holders) override;
    std::size_t post(std::span<const RmaItem> items) noexcept override;

    // The world drives arrivals. Queued events need a poll at once, and so do delivered messages
    // while their sender waits for the room. A dead endpoint needs none.
    TimePoint next_deadline() const override {
        const bool has_more = !events_.own.empty() || !events_.ready.empty() ||
                              events_.sender_waits || has_connects();
        if (!self_.node) return never;
        if (has_more) return network_.now();
        return door_ && door_->has_connects() ? duty_.next_deadline() : never;
    }

    HostId host() const override { return self_.host; }
    const std::string& public_uri() const override { return self_.public_uri; }
    void end_process(bool notify_peers) override;
    void ignore_rma() override { ignores_rma_ = true; }
    void deliver_in_order(Packet& packet) override;
    void receive(Packet& packet) override;
    void on_lost(const Packet& packet, Code code, std::string_view why) override;
    void take_down(PeerId peer, Code code, std::string_view why) override;
    std::size_t delivered_bytes(PeerId peer) const override;
    void request_room() override {
        if (!events_.delivered.empty()) events_.sender_waits = true;
    }
    void give_back_room(PeerId peer, std::size_t bytes) override;
    bool waits_for_room(PeerId peer) const override;

  private:
    // An access to local memory that was admitted and has not ended.
    struct ActiveAccess {
        RmaId transfer;  // The initiator's id.
        std::uint32_t region = 0;
        std::uint64_t serial = 0;  // Of the exposure.
        Bytes memory;              // The range that it may touch, until the fence.
        std::size_t done = 0;
    };

    // The packet order of one stream, both ways.
    struct StreamOrder {
        std::uint64_t out = 0;      // The last one sent.
        std::uint64_t next = 1;     // The next one to receive.
        std::vector<Packet> ahead;  // Arrived before their predecessors.
    };

    struct ArrivedEvent {
        Event event;
        Payload payload;
        std::string text;
    };

    struct Connection {
        // Both ends.
        PeerId id;
        PhaseState phase{PeerPhase::waiting};
        bool established = false;  // Was up: info() is valid until peer_down is polled.
        NodeId node;               // The other end.
        PeerId remote;             // Its id of this connection.
        HostId host = 0;           // Of the other end.
        StreamOrder orders[streams];
        std::vector<ActiveAccess> accesses;
        PeerInfo info;

        // How it began.
        TimePoint busy_at = TimePoint::min();  // When its listener was busy last.
        std::uint32_t busy_count = 0;          // How often in a row.
        std::uint16_t wanted = 0;              // Address::wanted.
        Placement::Place place;                // Of an incoming peer.

        // Messages to the peer, and from it.
        std::size_t bytes_wanted = 0;     // Size of a claim that was refused; 0: none.
        std::uint32_t refusals = 0;       // Claims refused in a row, though there was room.
        bool is_refusing = false;         // Until the last refusal is followed by `writable`.
        std::size_t bytes_under_way = 0;  // Sent, not yet polled and freed by the receiver.
        std::uint32_t messages_under_way = 0;
        Payload pending;      // Joined commits that leave with flush().
        Fifo<Payload> queue;  // Messages that the hosts have no room for yet.
        std::size_t bytes_queued = 0;
        Fifo<ArrivedEvent> inbox;  // Not empty: the connection is among events_.ready.
    };
    struct Region {
        Exposure exposure;
        std::uint64_t serial = 0;  // Distinguishes exposures, whatever core's number.
        std::uint32_t accesses = 0;
        bool fencing = false;
        bool is_others = false;  // Another context has exposed it.
    };

    struct RmaOperation {
        RmaItem item;
        std::size_t bytes_done = 0;  // Of a put: sent; of a get: received.
        bool is_unreadable = false;  // A put's local memory failed after its first piece.
    };
    using RmaTable = base::SlotTable<RmaOperation>;

    struct Delivered {
        PeerId peer;
        Payload payload;
    };

    // The place of this node in the network.
    struct Self {
        NodeId node;
        HostId host = 0;
        ResourceFaults* resource_faults = nullptr;  // Of the host.
        std::string public_uri;
        Incarnation incarnation;
        std::uint16_t contexts = 1;
        std::uint16_t context = 0;
    };
    struct Sends {
        std::vector<PeerId> pending;  // Connections with something pending.
        PeerId claimer;
        Payload claim;
        bool turn_began = false;  // The first commit of this turn has left.
    };
    struct Events {
        Fifo<ArrivedEvent> own;  // Events of no peer.
        Fifo<PeerId> ready;      // Connections with events, in the order of service.
        std::string error;
        bool ends_batch = false;           // `error` describes the last event handed out.
        std::vector<Delivered> delivered;  // Messages of the last poll.
        bool sender_waits = false;         // A sender waits for the room of delivered messages.
    };
    struct Regions {
        std::map<std::uint32_t, Region> table;
        std::uint64_t serials = 0;
    };

    void on_connect_timeout(const Packet& packet);
    void on_accept(Packet& packet);
    void on_message(Packet& packet);
    void on_down(Packet& packet);
    void on_writable(Packet& packet);
    void on_rma_put(Packet& packet);
    void on_rma_request(Packet& packet);
    void on_rma_data(Packet& packet);
    void on_rma_reply(Packet& packet);
    void on_rma_next(Packet& packet);
    void on_rma_more(Packet& packet);
    void on_fence_over(Packet& packet);
    void remove_connection(PeerId peer);
    Packet packet_for(Kind kind, PeerId peer, const Connection& connection) const;
    Hello hello() const;
    Status apply_hello(Connection& connection, const Payload& payload);
    void send_ordered(Connection& connection, Packet packet, Stream stream = Stream::messages);
    void send_down(PeerId peer, Connection& connection, std::string_view why);
    void send_pending(PeerId peer, Connection& connection);
    bool fits_socket(const Connection& connection, std::size_t bytes) const;
    void send_queued(PeerId peer, Connection& connection);
    void wait_for_room(const Connection& connection);
    void send_message(PeerId peer, Connection& connection, Payload payload);
    static void append(Payload& pending, ByteView message);
    bool has_room(const Connection& connection, std::size_t bytes) const;
    void notify_room(PeerId peer, Duration later);
    void push_event(Event event, std::string text = {}, Payload payload = {});
    PeerId next_ready();
    std::size_t poll_own_events(std::span<Event> events);
    bool has_connects() const { return door_ && duty_.is_on() && door_->has_connects(); }
    std::size_t poll_peer(PeerId peer, std::span<Event> events, std::size_t& bytes_left);
    void hand_out(ArrivedEvent& arrived, Event& event);
    void send_connect(PeerId peer, Duration pause);
    void arm_connect_timeout(PeerId peer);
    std::string_view target_name(const Connection& connection) const;
    void take_connect(std::unique_ptr<Packet> packet);
    Result<Placement::Place> place(const Packet& packet);
    Status admit(const Packet& packet, Placement::Place place);
    void free_delivered();
    void shut_down(std::string_view why, bool notify_peers);

    // rma.cc, the initiator's side
    void send_piece(RmaTable::Entry& entry);
    void finish(RmaTable::Entry& entry, Code code, std::string_view why);
    void finish_all(PeerId peer, Code code, std::string_view why);
    // rma.cc, the owner's side
    bool has_ended(const Region& region) const;
    std::string_view why_refused(RmaKind kind, const RmaHead& head) const;
    void adopt(const RmaHead& head);
    static ActiveAccess* find_access(Connection& connection, RmaId transfer);
    ActiveAccess* start_access(Connection& connection, const Packet& packet, RmaKind kind,
                               const RmaHead& head);
    bool is_revoked(const ActiveAccess& access);
    void refuse_access(Connection& connection, ActiveAccess& access, const Packet& packet);
    void answer(Connection& connection, const Packet& request, Code code, std::string_view why);
    void release(Connection& connection, ActiveAccess& access);
    void on_access_ended(const ActiveAccess& access);
    void drop_accesses(Connection& connection);
    void end_fence(std::uint32_t region);

    const Arena& arena_;
    base::Random& random_;
    Exposures* const exposures_;

    // The network.
    std::shared_ptr<World> world_;
    Network& network_;
    std::shared_ptr<SimDoor> door_;  // nullptr: it does not listen, or has ended.
    AcceptDuty duty_;
    Limits limits_;
    Self self_;

    // Peers, and what they do.
    PeerSlots<Connection> peers_;
    Sends sends_;
    Events events_;
    Regions regions_;
    RmaTable transfers_;
    bool ignores_rma_ = false;
};

}  // namespace weft::na::sim
