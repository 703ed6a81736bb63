// The initiator's side of bulk: put and get, cut into chunks, windowed, completed exactly once.
//
// Life of a transfer: (waits for the connection) -> requests a grant where the transport checks
// nothing itself -> posts chunks, at most `chunks_max` at a time -> returns the grant -> completes.
// A deadline, a cancel or the loss of the peer completes it at once; its record and its hold on the
// local Buffer stay until the transport has reported every chunk.
//
// A peer that does not answer affects only its own transfers: it has a share of the endpoint's
// chunks (na::Limits::rma_per_peer_max), and its other transfers wait in a queue of the peer. When
// the endpoint is full although peers are below their shares, these peers take turns, a chunk each.
// A peer that completes no chunk for 10 s loses its connection if it holds memory of ended
// transfers, or resources that others wait for.
#pragma once

#include <array>
#include <unordered_map>

#include <weft/channel.h>

#include "bulk/wire.h"
#include "core/context.h"
#include "core/nested_operations.h"

namespace weft::bulk {

// Which peers wait for memory that transfers hold.
enum class MemoryWaiters : std::uint8_t {
    none,
    same_peer,    // Each waits for memory that its own transfers hold; or others may wait soon.
    other_peers,  // Some wait for memory that other peers' transfers hold.
};

struct TransferSpec {
    na::RmaKind kind = na::RmaKind::get;
    RegionRef remote;
    std::uint64_t offset = 0;  // Into `remote`.
    Buffer local;
    TimePoint deadline = never;
    // The grant of a rendezvous body: returned when the transport is done with it. 0: none.
    std::uint64_t grant = 0;
    na::FabricKey fabric{};
    bool fills_pool = false;  // Other fetches may wait for `local` (set_memory_waiters()).
};

using TransferId = base::SlotId;

class Transfers final : public core::FrameSink {
  public:
    explicit Transfers(core::Context& context);
    ~Transfers();

    // Thread: the context's. `done` runs once, never inside start().
    TransferId start(core::PeerRef peer, TransferSpec spec, TransferCompletion done);
    // The same for a handler: the transfer ends with the handler's call and has at most its
    // deadline.
    TransferId start_nested(core::CallScope& scope, core::PeerRef peer, TransferSpec spec,
                            TransferCompletion done);
    // A transfer with an outcome known at its start.
    TransferId conclude(TransferCompletion done, Status outcome);
    TransferId conclude_nested(core::CallScope& scope, TransferCompletion done, Status outcome);
    // A put without a reply of its own, because the reply of the peer's `call` follows: the owner
    // validates and copies the bytes, and fails the call if it can't. False: no room for it now.
    bool send_data(core::Peer& peer, std::uint64_t call, const RegionRef& to, std::uint64_t offset,
                   ByteView from);
    void cancel(TransferId id, const char* why = "the caller cancelled the transfer");
    // As cancel(), but the completion never runs: its owner is being destroyed.
    void abandon(TransferId id);
    // Returns a grant, now or when there is room for the message.
    void release_grant(core::Peer& peer, std::uint64_t grant) { send_close(peer, grant); }
    // For transfers with `fills_pool`: called every 400 ms while any fetch waits. Call
    // arm_stall_check() whenever a fetch begins to wait.
    void set_memory_waiters(Function<MemoryWaiters()> waiters) {
        memory_waiters_ = std::move(waiters);
    }
    // Starts the checks for stalled peers that hold resources which others wait for.
    void arm_stall_check();
    void shutdown(const Status& why);
    // Called at the end, before the endpoints end: local buffers held by a transport that does not
    // fence at its end are kept forever.
    void keep_held();

    void on_rma_done(std::uint64_t cookie, Code code, const std::string& error);
    // Transfers not completed yet; quarantined(): completed, but still held by the transport.
    std::uint32_t in_flight() const { return transfers_.taken() - quarantined_; }
    std::uint32_t quarantined() const { return quarantined_; }

    void on_frame(core::Peer& peer, core::FrameHead head, ByteView frame) override;
    void on_peer_up(core::Peer& peer) override;
    void on_peer_down(core::Peer& peer, const Status& why) override;

  private:
    enum class State : std::uint8_t { waiting, opening, running, ended };
    friend constexpr bool can_move(State from, State to) { return from < to; }
    // Per transfer; covers a round trip of a fast network.
    static constexpr std::uint32_t chunks_max = 4;
    struct Chunk {
        std::size_t bytes = 0;
        TimePoint posted_at{};
    };
    struct Transfer : base::Timer, core::Deferred, core::ChunkWaiter, core::PeerTransfer {
        // ---- what it transfers, and where
        Transfers* owner = nullptr;
        core::Peer* peer = nullptr;
        core::PeerRef peer_ref;                  // Empty: its connection has ended.
        core::EndpointSlot* endpoint = nullptr;  // From begin() on.
        base::SlotId id;
        TransferSpec spec;
        TransferCompletion done;

        // ---- how far it is
        base::State<State> state{State::waiting};
        std::uint64_t posted = 0;  // Bytes handed to the transport.
        std::uint32_t chunks = 0;  // Chunks not reported yet: the last entries of `times`,
        std::uint32_t next = 0;    // which end before this index.
        std::array<Chunk, chunks_max> times;
        std::uint32_t ended_at_check = 0;  // The peer's completed chunks at the last check,
        std::uint32_t stalls = 0;          // and the checks since they changed.
        Status outcome;
    };
    using Entry = base::SlotTable<Transfer>::Entry;
    struct OwnedTimer : base::Timer {
        Transfers* owner = nullptr;
    };

    Entry* take(TransferCompletion done);
    Status why_none() const;
    Status why_no_peer(core::PeerRef peer) const;
    Status validate(const core::Peer& peer, const TransferSpec& spec) const;
    void begin(Entry& entry);
    void send_open(Entry& entry);
    static bool wants_more(const Transfer& transfer);
    void pump(Transfer& transfer);
    bool post_next(Transfer& transfer);
    void note_done(const Transfer& transfer, core::Peer& peer, bool is_ok);
    static bool is_at_share(const core::Peer& peer);
    void queue_peer(core::Peer& peer);
    void post_waiting(core::EndpointSlot& endpoint);
    void unlink_from_queue(Transfer& transfer);
    void check_stalls();
    void end(Entry& entry, Status status);
    void complete(Entry& entry);
    void release_if_done(Entry& entry);
    static void unlink_from_peer(Transfer& transfer);
    void return_grant(Transfer& transfer);
    void send_close(core::Peer& peer, std::uint64_t grant);
    bool try_send_close(core::Peer& peer, std::uint64_t grant);
    void send_closes_later();
    void send_closes();

    core::Context& context_;
    core::NestedOperations<Transfers, TransferCompletion> nested_{context_, *this};
    base::SlotTable<Transfer> transfers_{1u << 16, core::OperationTag::bits(context_.member())};
    std::unordered_map<const core::Peer*, std::uint32_t> opens_;  // Sent and not answered.
    base::IntrusiveList<core::PendingCloses> pending_closes_;     // Peers with a full queue.
    OwnedTimer closes_timer_;
    OwnedTimer stall_timer_;
    Function<MemoryWaiters()> memory_waiters_;
    std::uint32_t quarantined_ = 0;
    bool closed_ = false;
};

}  // namespace weft::bulk
