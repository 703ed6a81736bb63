// The one table of exposed regions of a context: the owner's side of bulk.
//
// Life of a region: open (in every endpoint's table or registered there) -> closing (no new access
// is judged good; holders of grants are told) -> fenced by every endpoint -> the Buffer goes back.
// A grant is a promise to an initiator: asked for on a transport that checks nothing itself, or
// given with a body that is lent (bulk/staging.h). It ends with the initiator's close or with its
// connection, which ends when a revoked grant does not come back.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/fork.h"
#include "bulk/wire.h"
#include "core/context.h"
#include "na/arena.h"

namespace weft::bulk {

// Told of grants that were lent and have come back, or went with their peer.
class Lender {
  public:
    virtual void on_returned(base::SlotId loan) = 0;
    // The connection of its peer was lost before the loan left: it is for the next one.
    virtual void on_kept(base::SlotId loan) = 0;

  protected:
    ~Lender() = default;
};

// Memory that a peer or a card may still write: never released.
void keep_for_ever(Buffer memory, Function<void()> fenced = {});

// Errors: INVALID_ARGUMENT, with what is wrong and what would be good.
Status judge_exposure(const Buffer& memory, const ExposeOptions& options);

class Regions final : public core::FrameSink, public std::enable_shared_from_this<Regions> {
  public:
    Regions(core::Context& context, na::Incarnation owner, const na::Arena& arena);
    ~Regions();

    // However many regions users expose, enough are left for the blocks of large bodies
    // (bulk/block_pool.h).
    static constexpr std::uint32_t body_regions = 1024;
    static constexpr std::uint32_t user_regions_max = na::regions_max - body_regions;
    enum class For : std::uint8_t { user, body };
    // Errors: UNIMPLEMENTED (an endpoint can't expose this memory), RESOURCE_EXHAUSTED,
    // INVALID_ARGUMENT. Thread: the context's.
    Result<Region> expose(Buffer memory, const ExposeOptions& options, For use = For::user);
    // Thread: any (posts when it is not the context's).
    void close(std::uint32_t region, std::uint32_t generation, Function<void()> fenced);
    // An endpoint came later than some regions: exposes them there too.
    void add_endpoint(core::EndpointSlot& endpoint);
    // A grant that nobody asked for: the peer is told of it in a frame of its own, and gives it
    // back as any other; the lender then hears of `loan`. 0: too many are out. `waits`: until
    // leaves(), it outlives the peer's connections.
    std::uint64_t lend(std::uint32_t region, std::uint32_t generation, core::Peer& peer,
                       base::SlotId loan, bool waits);
    void leaves(core::Peer& peer, std::uint64_t grant) {
        if (GrantSlot* found = find_grant(peer, grant)) found->value.waits = false;
    }
    // The peer never heard of it. The lender hears of it as of any other that comes back.
    void withdraw(core::Peer& peer, std::uint64_t grant);
    // Our own memory of that range; empty when the reference is not valid here and now.
    Bytes memory_of(const RegionRef& ref);
    // What came for that range of ours. Requires: of its length. Errors: PERMISSION_DENIED: the
    // reference is not valid here and now; FAILED_PRECONDITION: the memory can't be written.
    Status write(const RegionRef& to, ByteView data);
    void set_lender(Lender& lender) { lender_ = &lender; }
    // Where the region is for the fabric of this endpoint; nullopt: it is not exposed there.
    std::optional<na::FabricKey> fabric_key(std::uint32_t region, std::uint32_t generation,
                                            const core::EndpointSlot& endpoint);
    // The end, in three steps: closes every region, once the connections are gone; turns fence
    // them; then, after the endpoints, ends the table and forgets the context.
    void close_all();
    // Regions of which only a fence proves that no peer can touch them, and it has not yet.
    std::uint32_t unfenced_regions();
    // What was not fenced is kept for ever: its memory and its `fenced`, which never runs.
    void shutdown();

    void on_region_fenced(std::uint32_t region, core::EndpointSlot& endpoint);
    std::uint32_t open_regions() const { return regions_.taken(); }
    struct Counters {
        std::uint64_t exposed = 0;
    };
    const Counters& counters() const { return counters_; }

    void on_frame(core::Peer& peer, core::FrameHead head, ByteView frame) override;
    void on_peer_down(core::Peer& peer, const Status& why) override;

  private:
    static constexpr std::uint32_t grants_max = 65536;
    // Of a region that is open: its lease. Of one that closes: the time its holders have.
    struct Expiry : base::Timer {
        Regions* owner = nullptr;
        std::uint32_t region = 0;
        std::uint32_t generation = 0;
    };
    struct Grant;
    struct OfRegion : base::ListNode {};
    struct Entry {
        Buffer memory;
        Access access = Access::none;
        For use = For::user;
        std::uint64_t key = 0;
        bool closing = false;
        std::vector<na::FabricKey> fabric;  // By endpoint.
        std::uint64_t unfenced = 0;         // One bit per endpoint.
        std::uint32_t grants = 0;
        base::IntrusiveList<Grant, OfRegion> held;  // These.
        na::Holders holders = na::Holders::done;
        std::uint32_t ticks = 0;  // Since it closes.
        Function<void()> fenced;
        Expiry expiry;
    };
    using Slot = base::SlotTable<Entry>::Entry;
    struct Grant : core::PeerGrant, OfRegion {
        core::PeerRef peer;
        std::uint32_t region = 0;
        std::uint32_t generation = 0;
        bool told = false;      // That it was revoked.
        bool waits = false;     // The peer has not heard of it.
        base::SlotId loan;      // Of the lender; none: the peer asked for it,
        base::SlotId transfer;  // for this transfer of its own.
    };
    using GrantSlot = base::SlotTable<Grant>::Entry;
    static std::uint64_t number_of(const GrantSlot& grant) {
        return std::uint64_t{grant.generation} << 32 | grant.slot;
    }

    // True: it is for the peer's next connection.
    bool keeps(core::Peer& peer, Grant& grant) {
        if (!grant.waits || peer.is_removed) return false;
        static_cast<core::PeerGrant&>(grant).unlink();
        peer.traffic.grants.push_back(grant);
        lender_->on_kept(grant.loan);
        return true;
    }
    // nullptr: all are in use.
    Slot* take(For use) {
        if (use == For::user && user_regions_ == user_regions_max) return nullptr;
        Slot* slot = regions_.take();
        if (!slot) return nullptr;
        slot->value.use = use;
        user_regions_ += use == For::user;
        return slot;
    }
    void tell_holders(Slot& slot);
    void expire_in(Slot& slot, Duration time);
    void on_expiry(std::uint32_t region, std::uint32_t generation);
    void close_here(std::uint32_t region, std::uint32_t generation, Function<void()> fenced);
    void fence(Slot& slot);
    void finish(Slot& slot);
    void on_open(core::Peer& peer, ByteView frame);
    void on_close(core::Peer& peer, ByteView frame);
    Result<Slot*> judge(const RegionRef& ref);
    static bool is_exposed(const Entry& entry, const core::EndpointSlot& endpoint);
    GrantSlot* add_grant(Slot& slot, core::Peer& peer, base::SlotId loan, base::SlotId transfer);
    bool can_touch(const Slot& slot, const RegionRef& ref) const;
    GrantSlot* find_grant(const core::Peer& peer, std::uint64_t number);
    void end_grant(GrantSlot& grant);
    void forget(GrantSlot& grant);
    bool is_fenced_at_end(const Entry& entry) const;
    void send_grant(core::Peer& peer, const OpenFrame& open, const Status& status,
                    na::FabricKey fabric, std::uint64_t grant);

    // Guards context_ against a close() on another thread while shutdown() takes it away.
    const base::OwnerProcess process_;
    std::mutex end_mutex_;
    core::Context* context_;
    const na::Arena& arena_;  // While there is a context.
    const na::Incarnation owner_;
    base::SlotTable<Entry> regions_{na::regions_max};
    std::uint32_t user_regions_ = 0;
    base::SlotTable<Grant> grants_{grants_max};
    std::uint64_t fenced_by_end_ = 0;  // Endpoints whose own end is a fence; from close_all() on.
    Lender* lender_ = nullptr;
    Counters counters_;
};

}  // namespace weft::bulk
