// Rendezvous: bodies of calls that are too large for a message are exposed by their sender and
// fetched by their receiver, through memory that is kept and exposed once (bulk/block_pool.h).
//
// The sender keeps the buffer until the receiver returns the grant, even after the call has ended,
// so a late fetch never reads the next call's body. A peer that returns no grants holds at most its
// share of the memory, until its connection ends. A fetch without memory waits, in the order of
// arrival within its peer; a peer that has used up its share delays no other peer.
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
// `body` is valid until the completion returns, and empty unless the status is OK.
using FetchCompletion = Function<void(const Status&, ByteView body)>;

struct RendezvousBuffer {
    Bytes memory;          // Write the body here before the frame is sent.
    RendezvousBody where;  // For the frame.
};

class Rendezvous final : public core::FrameSink, private RendezvousSender {
  public:
    // body_bytes_max: the largest body, in either direction. At most memory for eight such bodies
    // is held, half of it for one peer; by all contexts of a runtime together (`budget`; nullptr:
    // there is one).
    Rendezvous(core::Context& context, Regions& regions, Transfers& transfers,
               std::shared_ptr<na::Arena> arena, std::size_t body_bytes_max,
               std::shared_ptr<core::Budget> budget = nullptr);
    ~Rendezvous();

    std::size_t body_bytes_max() const { return body_bytes_max_; }

    // Thread: the context's, for all methods.
    enum class SendTime : std::uint8_t { now, later };
    // Memory for a body to `peer`. A rendezvous ends with the connection on which its frame is
    // sent; SendTime::later lets it wait for a later connection. Errors: RESOURCE_EXHAUSTED;
    // UNIMPLEMENTED when the peer's transport can't reach it. Requires: 0 < bytes <=
    // body_bytes_max().
    Result<RendezvousBuffer> prepare(core::Peer& peer, std::size_t bytes,
                                     SendTime send_time = SendTime::now);
    // For a waiting frame that is about to be sent: how its connection reaches the memory. The same
    // errors as prepare(); the rendezvous goes on.
    Status bind_to_connection(core::Peer& peer, RendezvousBody& where);
    void mark_sent(core::Peer& peer, const RendezvousBody& where);  // The waiting frame is sent.
    // Ends a rendezvous with a frame that was never sent.
    void withdraw(core::Peer& peer, const RendezvousBody& where);

    // Fetches a body from its sender once there is memory for it, and returns the grant. `done`
    // runs once, in a later turn; inside fetch() if no record is left for the fetch. Errors: as
    // Transfers; RESOURCE_EXHAUSTED for a body over the maximum, or without memory or a place in
    // the queue for it; INVALID_ARGUMENT for an empty body.
    FetchId fetch(core::Peer& peer, const RendezvousBody& where, TimePoint deadline,
                  FetchCompletion done);
    // Completes with CANCELLED, in a later turn.
    void cancel(FetchId id);
    // Returns the grant of an unwanted rendezvous. Requires: called while a frame of this peer is
    // handled.
    void decline(core::Peer& peer, const RendezvousBody& where);

    std::size_t bytes_held() const { return pool_.bytes_held(); }
    std::size_t bytes_in_use() { return pool_.bytes_held() - pool_.bytes_idle(); }
    // Replies that clients have not fetched yet.
    std::size_t unfetched_replies() { return pool_.sending_to_clients(); }

    void on_frame(core::Peer&, core::FrameHead, ByteView) override {}  // It receives no frames.
    void on_peer_down(core::Peer& peer, const Status& why) override;

  private:
    using Block = BlockPool::Block;
    using Use = BlockPool::Use;
    struct WaitingNode : base::ListNode {};
    struct Fetch : base::Timer, WaitingNode, core::PeerFetch {
        Rendezvous* owner = nullptr;
        base::SlotId id;
        core::PeerRef peer;
        RendezvousBody where;
        RegionRef from;
        TimePoint deadline = never;
        Block* into = nullptr;  // nullptr: the fetch waits for memory.
        TransferId transfer;
        bool failed_unstarted = false;  // Failed before its transfer began.
        FetchCompletion done;
    };
    using FetchEntry = base::SlotTable<Fetch>::Entry;

    void on_rendezvous_released(base::SlotId block_id) override;
    void on_rendezvous_retained(base::SlotId block_id) override;

    Status validate(const Fetch& fetch, const Status& decoded) const;
    MemoryWaiters memory_waiters();
    void enqueue_or_fail(Fetch& fetch);
    bool stop_waiting(Fetch& fetch);
    bool try_begin(Fetch& fetch);
    void fail_fetch(Fetch& fetch, Status why);
    TransferCompletion completion_of(FetchId id);
    void set_transfer(FetchId id, TransferId transfer);
    void on_fetched(FetchId id, const Status& status);
    void start_waiting();

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
