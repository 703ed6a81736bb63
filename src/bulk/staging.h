// Bodies of calls that are too large for a message: lent by their sender, fetched by their
// receiver, through memory that is kept and exposed once (bulk/block_pool.h).
//
// What is lent is the sender's until the receiver returns the grant, also when the call is over, so
// a late fetch never reads the next call's body. A peer that returns nothing keeps its share of the
// memory until its connection ends, and no more. A fetch for which there is no memory now waits, in
// the order of its peer's; a peer that has its share holds up nobody else.
#pragma once

#include <memory>

#include <weft/function.h>

#include "base/intrusive_list.h"
#include "bulk/block_pool.h"
#include "bulk/regions.h"
#include "bulk/transfers.h"
#include "bulk/wire.h"
#include "core/context.h"
#include "na/arena.h"

namespace weft::bulk {

using FetchId = base::SlotId;
// `body` is valid until it returns, and empty unless the status is OK.
using FetchCompletion = Function<void(const Status&, ByteView body)>;

struct Loan {
    Bytes memory;    // Write the body here before the frame leaves.
    LentBody where;  // For the frame.
};

class Staging final : public core::FrameSink, private Lender {
  public:
    // body_bytes_max: of one body, in either direction. Memory for eight such
    // bodies is held at most, half of it for one peer.
    Staging(core::Context& context, Regions& regions, Transfers& transfers,
            std::shared_ptr<na::Arena> arena, std::size_t body_bytes_max);
    ~Staging();

    std::size_t body_bytes_max() const { return body_bytes_max_; }

    // Thread: the context's, like everything here.
    enum class Leaves : std::uint8_t { now, later };
    // Memory for a body to `peer`. Its loan ends with the peer's connection; where its frame leaves
    // later, with that on which it left. Errors: RESOURCE_EXHAUSTED; UNIMPLEMENTED when the peer's
    // transport can't reach it. Requires: 0 < bytes <= body_bytes_max().
    Result<Loan> lend(core::Peer& peer, std::size_t bytes, Leaves leaves = Leaves::now);
    // A frame that waited leaves now. False: the transport can't reach the memory, and the loan is
    // over.
    bool address(core::Peer& peer, LentBody& where);
    // The frame of a loan never left.
    void withdraw(core::Peer& peer, const LentBody& where);

    // Fetches a body from the peer that lent it, when there is memory for it, and returns the loan.
    // `done` runs once, in a later turn, unless no record is left for the fetch.
    // Errors: as Transfers; RESOURCE_EXHAUSTED for a body over the maximum.
    FetchId fetch(core::Peer& peer, const LentBody& where, TimePoint deadline,
                  FetchCompletion done);
    // Completes with CANCELLED, in a later turn.
    void cancel(FetchId id);
    // Returns a loan that nobody wants. Requires: a frame of this peer is being looked at.
    void decline(core::Peer& peer, const LentBody& where);

    std::size_t bytes_held() const { return pool_.bytes_held(); }
    std::size_t bytes_in_use() { return pool_.bytes_held() - pool_.bytes_idle(); }
    // Replies that clients have not fetched yet.
    std::size_t replies_lent() { return pool_.lent_to_clients(); }

    void on_frame(core::Peer&, core::FrameHead, ByteView) override {}  // None is for it.
    void on_peer_down(core::Peer& peer, const Status& why) override;

  private:
    using Block = BlockPool::Block;
    using Use = BlockPool::Use;
    struct WaitingNode : base::ListNode {};
    struct Fetch : base::Timer, WaitingNode, core::PeerFetch {
        Staging* owner = nullptr;
        base::SlotId id;
        core::PeerRef peer;
        LentBody where;
        RegionRef from;
        TimePoint deadline = never;
        Block* into = nullptr;  // nullptr: it waits for memory.
        TransferId transfer;
        bool is_over = false;  // Before it began.
        FetchCompletion done;
    };
    using FetchEntry = base::SlotTable<Fetch>::Entry;

    void on_returned(base::SlotId loan) override;
    void on_kept(base::SlotId loan) override;

    bool find_key(core::Peer& peer, LentBody& where);
    Status judge(const Fetch& fetch, const Status& decoded) const;
    MemoryWaiters memory_waiters();
    void wait_or_give_up(Fetch& fetch);
    bool stop_waiting(Fetch& fetch);
    bool try_begin(Fetch& fetch);
    void give_up(Fetch& fetch, Status why);
    TransferCompletion completion_of(FetchId id);
    void follow(FetchId id, TransferId transfer);
    void on_fetched(FetchId id, const Status& status);
    void begin_waiting();

    core::Context& context_;
    Regions& regions_;
    Transfers& transfers_;
    const std::size_t body_bytes_max_;
    BlockPool pool_;
    base::SlotTable<Fetch> fetches_{1u << 16};
    base::IntrusiveList<Fetch, WaitingNode> waiting_;  // For memory, in order of arrival.
    std::size_t waiting_count_ = 0;
    std::uint32_t round_ = 0;  // Counts the passes over waiting_.
};

}  // namespace weft::bulk
