// The initiator's side of bulk: put and get, cut into chunks, windowed, completed exactly once.
//
// Life of a transfer: (waits for the connection) -> asks for a grant where the transport checks
// nothing itself -> posts chunks, at most `chunks_max` at a time -> returns the grant -> completes.
// A deadline, a cancel or the loss of the peer completes it at once; its record and its hold on the
// local Buffer stay until the transport has reported every chunk.
//
// A peer that answers nothing harms itself only: it has a share of the endpoint's chunks
// (na::Limits::rma_share), and the rest of its transfers wait in a queue of the peer. Where the
// endpoint is full though peers are below their shares, those take turns, a chunk each. A peer that
// brings nothing to an end for 10 s loses its connection when it holds what was given up, or what
// others wait for.
#pragma once

#include <array>
#include <unordered_map>

#include <weft/channel.h>

#include "bulk/wire.h"
#include "core/context.h"
#include "core/nested.h"

namespace weft::bulk {

// Who waits for memory that transfers hold.
enum class MemoryWaiters : std::uint8_t {
    none,
    for_themselves,  // Each for what it holds itself.
    for_others,      // Some for what others hold.
};

struct TransferSpec {
    na::RmaKind kind = na::RmaKind::get;
    RegionRef remote;
    std::uint64_t offset = 0;  // Into `remote`.
    Buffer local;
    TimePoint deadline = never;
    // Of a range that was lent to us: given back when the transport is done with it. 0: none.
    std::uint64_t grant = 0;
    na::FabricKey fabric{};
    bool fills_pool = false;  // `local` is memory that others may wait for (watch_memory()).
};

using TransferId = base::SlotId;

class Transfers final : public core::FrameSink {
  public:
    explicit Transfers(core::Context& context);
    ~Transfers();

    // Thread: the context's. `done` runs once, never in here.
    TransferId start(core::PeerRef peer, TransferSpec spec, TransferCompletion done);
    // The same for a handler: ends with its call, and takes no longer.
    TransferId start_nested(core::Scope& scope, core::PeerRef peer, TransferSpec spec,
                            TransferCompletion done);
    // One whose outcome is known at its start.
    TransferId conclude(TransferCompletion done, Status outcome);
    TransferId conclude_nested(core::Scope& scope, TransferCompletion done, Status outcome);
    // A put that needs no answer, for the reply of the peer's `call` follows it: judged and copied
    // by the owner, which fails the call when it can't be. False: no room for it now.
    bool send_data(core::Peer& peer, std::uint64_t call, const RegionRef& to, std::uint64_t offset,
                   ByteView from);
    void cancel(TransferId id, const char* why = "cancelled by the caller");
    // As cancel(), but the completion never runs: its owner is going away.
    void abandon(TransferId id);
    // Gives back what was lent, now or when there is room for the message.
    void give_back(core::Peer& peer, std::uint64_t grant) { send_close(peer, grant); }
    // About transfers with `fills_pool`: asked every 400 ms while somebody waits. To be followed by
    // look_later() whenever somebody begins to.
    void watch_memory(Function<MemoryWaiters()> waiters) { memory_waiters_ = std::move(waiters); }
    // Has those looked for who hold what others wait for and do not move.
    void look_later();
    void shutdown(const Status& why);
    // The end, before that of the endpoints: local buffers that a transport holds, whose end is no
    // fence, are kept for ever.
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
    // Of one transfer at a time; covers a round trip of a fast network.
    static constexpr std::uint32_t chunks_max = 4;
    struct Chunk {
        std::size_t bytes = 0;
        TimePoint posted_at{};
    };
    struct Transfer : base::Timer, core::Deferred, core::Starved, core::PeerTransfer {
        Transfers* owner = nullptr;
        core::Peer* peer = nullptr;
        core::PeerRef peer_ref;                  // Empty: its connection is over.
        core::EndpointSlot* endpoint = nullptr;  // From begin() on.
        base::SlotId id;
        TransferSpec spec;
        State state = State::waiting;
        std::uint64_t posted = 0;  // Bytes handed to the transport.
        std::uint32_t chunks = 0;  // Of those, not reported yet: the last ones of `times`,
        std::uint32_t next = 0;    // which ends before this one.
        std::array<Chunk, chunks_max> times;
        std::uint32_t seen = 0;    // What its peer had ended at the last look,
        std::uint32_t stalls = 0;  // and how many looks ago that was.
        TransferCompletion done;
        Status outcome;
    };
    using Entry = base::SlotTable<Transfer>::Entry;
    struct Later : base::Timer {
        Transfers* owner = nullptr;
    };

    Entry* take(TransferCompletion done);
    Status why_none() const;
    Status judge(const core::Peer& peer, const TransferSpec& spec) const;
    void begin(Entry& entry);
    void send_open(Entry& entry);
    static bool wants_more(const Transfer& transfer);
    void pump(Transfer& transfer);
    bool post_next(Transfer& transfer);
    void note_done(const Transfer& transfer, core::Peer& peer, bool is_ok);
    static bool is_at_share(const core::Peer& peer);
    void line_up(core::Peer& peer);
    void serve(core::EndpointSlot& endpoint);
    void leave_queue(Transfer& transfer);
    void look();
    void end(Entry& entry, Status status);
    void complete(Entry& entry);
    void settle(Entry& entry);
    static void leave_peer(Transfer& transfer);
    void return_grant(Transfer& transfer);
    void send_close(core::Peer& peer, std::uint64_t grant);
    bool try_send_close(core::Peer& peer, std::uint64_t grant);
    void pay_later();
    void pay();

    core::Context& context_;
    core::NestedOperations<Transfers, TransferCompletion> nested_{context_, *this};
    base::SlotTable<Transfer> transfers_{1u << 16};
    std::unordered_map<const core::Peer*, std::uint32_t> opens_;  // Sent and not answered.
    base::IntrusiveList<core::Owing> owing_;                      // Peers with a full queue.
    Later paying_;
    Later looking_;
    Function<MemoryWaiters()> memory_waiters_;
    std::uint32_t quarantined_ = 0;
    bool closed_ = false;
};

}  // namespace weft::bulk
