// Bodies of calls that are too large for a message: lent by their sender, fetched by their
// receiver, through memory that is kept and exposed once.
//
// Life of a block: idle -> lent (the peer fetches it, and returns the grant) -> idle, or
//                  idle -> landing (a fetch writes it, the receiver reads it) -> idle.
// A block that was lent stays exposed while it is idle, so that a steady flow to one peer registers
// and allocates nothing. No other peer is ever given it: it goes back to the arena instead, after
// the fence.
//
// What is lent is the sender's until the receiver returns the grant, also when the call is over, so
// a late fetch never reads the next call's body. A peer that returns nothing keeps its share of the
// memory until its connection ends, and no more.
#pragma once

#include <deque>
#include <memory>

#include <weft/function.h>

#include "base/intrusive_list.h"
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
    // Memory for a body to `peer`. Errors: RESOURCE_EXHAUSTED; UNIMPLEMENTED when the peer's
    // transport can't reach it. Requires: 0 < bytes <= body_bytes_max().
    Result<Loan> lend(core::Peer& peer, std::size_t bytes);
    // A frame that waited for its connection leaves now. False: the transport can't reach the
    // memory, and the loan is over.
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

    std::size_t bytes_held() const { return held_bytes_; }

    void on_frame(core::Peer&, core::FrameHead, ByteView) override {}  // None is for it.
    void on_peer_down(core::Peer& peer, const Status& why) override;

  private:
    enum class Use : std::uint8_t { idle, lent, landing, closing };
    struct Block : base::ListNode {  // In idle_ while idle.
        base::SlotId id;
        Use use = Use::idle;
        std::shared_ptr<Buffer> memory;  // Its region and its transfers are owners, too.
        Region region;
        core::PeerRef peer;  // To whom it is or was lent; whose body lands there.
        TimePoint idle_since;
    };
    using BlockEntry = base::SlotTable<Block>::Entry;
    struct Fetch : base::Timer {
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
    struct Trimming : base::Timer {
        Staging* owner = nullptr;
    };

    // Idle blocks of a size: without a region, and those that one peer may read.
    struct Idle {
        Block* unexposed = nullptr;
        Block* oldest = nullptr;
        Block* newest = nullptr;
        std::size_t exposed = 0;
    };
    Idle find_idle(std::size_t bytes, core::PeerRef peer);
    Block* make(std::size_t bytes);
    bool is_over_share(core::PeerRef peer, std::size_t bytes);
    Block* take(core::PeerRef peer, std::size_t bytes, Use use);
    void rest(Block& block);
    void discard(Block& block);
    void free(Block& block);
    void trim(std::size_t bytes_kept, TimePoint idle_before);
    void trim_later();
    void on_returned(base::SlotId loan) override;

    static ByteView as_bytes(const LentBody& where);
    Status judge(const Fetch& fetch, const Status& decoded) const;
    void wait(Fetch& fetch);
    bool try_begin(Fetch& fetch);
    void give_up(Fetch& fetch, Status why);
    TransferCompletion completion_of(FetchId id);
    void follow(FetchId id, TransferId transfer);
    void on_fetched(FetchId id, const Status& status);
    void begin_waiting();

    core::Context& context_;
    Regions& regions_;
    Transfers& transfers_;
    const std::shared_ptr<na::Arena> arena_;
    const std::size_t body_bytes_max_;
    const std::size_t held_bytes_max_;
    base::SlotTable<Block> blocks_{1024};
    base::IntrusiveList<Block> idle_;  // Those used last at the end.
    std::size_t held_bytes_ = 0;       // Of all blocks.
    std::size_t idle_bytes_ = 0;
    base::SlotTable<Fetch> fetches_{1u << 16};
    std::deque<FetchId> waiting_;  // For memory, in order of arrival.
    bool is_beginning_ = false;
    Trimming trimming_;
};

}  // namespace weft::bulk
