// The one table of exposed regions of a context: the owner's side of bulk.
//
// Life of a region: open (in every endpoint's table or registered there) -> closing (new accesses
// are refused, and grants revoked) -> fenced by every endpoint -> the Buffer is released. A grant
// is a promise to an initiator: requested on a transport that checks nothing itself, or given with
// a rendezvous body (bulk/rendezvous.h). It ends with the initiator's close or with its connection,
// which is closed when a revoked grant is not returned.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/fork.h"
#include "bulk/leases.h"
#include "bulk/wire.h"
#include "core/context.h"
#include "na/arena.h"
#include "na/exposures.h"

namespace weft::bulk {

// Notified of rendezvous grants that were returned or ended with their peer.
class RendezvousSender {
  public:
    virtual void on_rendezvous_released(base::SlotId rendezvous_id) = 0;
    // The peer's connection was lost before the frame was sent: the grant is kept for the next
    // connection.
    virtual void on_rendezvous_retained(base::SlotId rendezvous_id) = 0;

  protected:
    ~RendezvousSender() = default;
};

// Memory that a peer or a device may still write: never released.
void keep_forever(Buffer memory, Function<void()> fenced = {});

// Errors: INVALID_ARGUMENT, naming the fault and the expected value.
Status validate_exposure(const Buffer& memory, const ExposeOptions& options);

class Regions;

// The regions of a runtime with several contexts: each Regions exposes its own, and knows those of
// the others.
struct RegionFamily {
    explicit RegionFamily(std::uint16_t contexts)
        : exposures(contexts), leases(contexts), members(contexts) {}
    na::Exposures exposures;
    Leases leases;
    std::vector<Regions*> members;  // By contexts; constant from the first turn on.
    // Contexts, as bits, that have exposed regions of others at endpoints without fenced_by_end.
    std::atomic<std::uint64_t> exposing{0};
};

class Regions final : public core::FrameSink, public std::enable_shared_from_this<Regions> {
  public:
    // `family`: nullptr: the runtime has one context.
    Regions(core::Context& context, na::Incarnation owner, const na::Arena& arena,
            RegionFamily* family = nullptr);
    ~Regions();

    // However many regions users expose, so many remain for the blocks of large bodies
    // (bulk/block_pool.h).
    static constexpr std::uint32_t body_regions = na::RegionNumbers::bodies;
    // In a runtime with one context; several share na::regions_max.
    static constexpr std::uint32_t user_regions_max = na::RegionNumbers::alone;
    enum class Purpose : std::uint8_t { user, body };
    // Errors: UNIMPLEMENTED (an endpoint can't expose this memory), RESOURCE_EXHAUSTED,
    // INVALID_ARGUMENT. Thread: the context's.
    Result<Region> expose(Buffer memory, const ExposeOptions& options, Purpose use = Purpose::user);
    // Thread: any (posts when it is not the context's; with several contexts no access begins from
    // the return on, though the context is blocked).
    void close(std::uint32_t region, std::uint32_t generation, Function<void()> fenced);
    // For an endpoint added after some regions: exposes them there, too.
    void add_endpoint(core::EndpointSlot& endpoint);
    // A grant that the peer did not request: the sender announces it in a frame of its own, and the
    // peer returns it as any other. The RendezvousSender is then notified with `rendezvous_id`. 0:
    // no grant is left. `is_unsent`: until mark_sent(), the grant outlives the peer's connections.
    std::uint64_t grant_rendezvous(std::uint32_t region, std::uint32_t generation, core::Peer& peer,
                                   base::SlotId rendezvous_id, bool is_unsent);
    void mark_sent(core::Peer& peer, std::uint64_t grant) {
        if (GrantSlot* found = find_grant(peer, grant)) found->value.is_unsent = false;
    }
    // For a grant that was never sent. The RendezvousSender is notified as if the grant were
    // returned.
    void withdraw(core::Peer& peer, std::uint64_t grant);
    // The local memory of that range; empty when the reference is not valid in this process now.
    Bytes memory_of(const RegionRef& ref);
    // Writes received bytes to that local range. Requires: data of its length. Errors:
    // PERMISSION_DENIED: the reference is not valid in this process now; FAILED_PRECONDITION: the
    // memory is not writable.
    Status write(const RegionRef& to, ByteView data);
    void set_rendezvous_sender(RendezvousSender& sender) { rendezvous_sender_ = &sender; }
    // The key of an open region of this context on the fabric of this endpoint. Errors:
    // UNIMPLEMENTED: no memory is exposed there; RESOURCE_EXHAUSTED: the endpoint lacks room for
    // the region now.
    Result<na::FabricKey> fabric_key(std::uint32_t region, std::uint32_t generation,
                                     core::EndpointSlot& endpoint);
    // The end, in three steps. close_all() closes every region, once the connections have ended;
    // turns fence the regions; shutdown(), after the endpoints, ends the table and drops the
    // context.
    void close_all();
    // Regions that need a fence to prove that no peer can access them, and have none yet.
    std::uint32_t unfenced_regions();
    // Regions without a fence are kept forever: the memory and `fenced`, which never runs.
    void shutdown();

    void on_region_fenced(std::uint32_t region, core::EndpointSlot& endpoint);
    std::uint32_t open_regions() const { return users_.taken() + bodies_.taken(); }
    struct Counters {
        std::uint64_t exposed = 0;
        std::uint64_t asked = 0;  // Contexts, for fences of regions of this one.
    };
    const Counters& counters() const { return counters_; }

    void on_frame(core::Peer& peer, core::FrameHead head, ByteView frame) override;
    void on_peer_down(core::Peer& peer, const Status& why) override;

  private:
    static constexpr std::uint32_t grants_max = 65536;
    // For an open region its lease; for a closing one the time for its holders.
    struct Expiry : base::Timer {
        Regions* owner = nullptr;
        std::uint32_t region = 0;
        std::uint32_t generation = 0;
    };
    struct LeaseWatch : base::Timer {
        Regions* owner = nullptr;
    };
    struct Grant;
    struct RegionNode : base::ListNode {};
    // A region at the endpoints of this context, and the peers there that hold grants for it. The
    // region may be of another context.
    struct Use {
        // ---- while it is exposed
        std::uint32_t region = 0;
        std::uint32_t generation = 0;
        std::vector<na::FabricKey> fabric;  // By endpoint.
        std::uint64_t unfenced = 0;         // One bit per endpoint: exposed there, or being fenced.
        std::uint32_t grants = 0;
        base::IntrusiveList<Grant, RegionNode> held;  // The grants.

        // ---- its end
        bool closing = false;
        na::Holders holders = na::Holders::done;
        std::uint32_t ticks = 0;  // Since close.
        Expiry expiry;
    };
    // A region of this context.
    struct Entry : Use {
        Buffer memory;
        Access access = Access::none;
        Purpose use = Purpose::user;
        std::uint64_t key = 0;
        TimePoint lease_ends{};
        std::uint64_t asked = 0;  // One bit for each other context that has not fenced it.
        Function<void()> fenced;
    };
    using Slot = base::SlotTable<Entry>::Entry;
    struct Grant : core::PeerGrant, RegionNode {
        core::PeerRef peer;
        std::uint32_t region = 0;
        std::uint32_t generation = 0;
        bool revoke_sent = false;    // The RevokeFrame was sent.
        bool is_unsent = false;      // Its frame was not sent yet.
        base::SlotId rendezvous_id;  // The sender's id; none: the peer requested the grant,
        base::SlotId transfer;       // for this transfer of the peer.
    };
    using GrantSlot = base::SlotTable<Grant>::Entry;
    static std::uint64_t number_of(const GrantSlot& grant) {
        return std::uint64_t{grant.generation} << 32 | grant.slot;
    }

    // True: kept for the peer's next connection.
    bool retain_unsent(core::Peer& peer, Grant& grant) {
        if (!grant.is_unsent || peer.is_removed) return false;
        static_cast<core::PeerGrant&>(grant).unlink();
        peer.traffic.grants.push_back(grant);
        rendezvous_sender_->on_rendezvous_retained(grant.rendezvous_id);
        return true;
    }
    // nullptr: all slots are in use.
    Slot* take(Purpose use) {
        Slot* slot = (use == Purpose::user ? users_ : bodies_).take();
        if (slot) slot->value.use = use;
        return slot;
    }
    void release(Slot& slot) { (slot.value.use == Purpose::user ? users_ : bodies_).release(slot); }
    // Regions are numbered in the whole runtime (na::RegionNumbers).
    std::uint32_t number_of(const Slot& slot) const {
        return slot.value.use == Purpose::user ? first_user_ + slot.slot : slot.slot;
    }
    // nullptr: it is none of this context.
    Slot* find(std::uint32_t region, std::uint32_t generation) {
        if (region < body_regions) return bodies_.find({region, generation});
        return is_own(region) ? users_.find({region - first_user_, generation}) : nullptr;
    }
    Slot* find_at(std::uint32_t region) {
        if (region < body_regions) return bodies_.find_at(region);
        return is_own(region) ? users_.find_at(region - first_user_) : nullptr;
    }
    bool is_own(std::uint32_t region) const {
        return region >= first_user_ && region - first_user_ < numbers_.each;
    }
    // The same for a region of any context. nullptr: this one does not use it.
    Use* find_use(std::uint32_t region, std::uint32_t generation) {
        if (Slot* const own = find(region, generation)) return &own->value;
        const auto found = foreign_.find(region);
        const bool is_there = found != foreign_.end() && found->second.generation == generation;
        return is_there ? &found->second : nullptr;
    }
    template <class Visit>
    void for_each(Visit&& visit) {
        users_.for_each(visit);
        bodies_.for_each(visit);
    }
    void send_revokes(Use& use);
    void expire_at(Use& use, TimePoint at);
    void expire_in(Use& use, Duration time) {
        expire_at(use, saturating_add(context_->clock().now(), time));
    }
    void on_expiry(std::uint32_t region, std::uint32_t generation);
    void close_on_context(std::uint32_t region, std::uint32_t generation, Function<void()> fenced);
    void end_use(Use& use);
    void fence(Use& use);
    void finish_if_fenced(Use& use);
    void finish(Slot& slot);
    // Regions of other contexts. The home of a region asks for its fence, and another context
    // answers.
    Result<Use*> adopt(core::EndpointSlot& endpoint, const RegionRef& ref);
    void ask_others(Slot& slot);
    // The leases of all contexts: each has a timer for the one that ends next.
    void watch_lease(const Entry& entry);
    void revoke_ended_leases();
    void fence_for(Regions& home, std::uint32_t region, std::uint32_t generation);
    void answer(Regions& home, std::uint32_t region, std::uint32_t generation);
    void on_answer(std::uint32_t context, std::uint32_t region, std::uint32_t generation);
    void on_open(core::Peer& peer, ByteView frame);
    void on_close(core::Peer& peer, ByteView frame);
    // Of a region of any context of this runtime. Errors: PERMISSION_DENIED.
    Result<Bytes> range_of(const RegionRef& ref);
    static Status no_such_region();
    static Result<na::FabricKey> expose_at(core::EndpointSlot& endpoint,
                                           const na::Exposure& exposure);
    static bool is_exposed(const Use& use, const core::EndpointSlot& endpoint);
    static na::Exposure exposure_of(const Entry& entry) {
        return {entry.region, entry.generation, entry.key, entry.memory.bytes(), entry.access};
    }
    static Lease lease_of(const Entry& entry) {
        return {entry.lease_ends, entry.region, entry.generation};
    }
    // Closed by another thread, or at the end of its lease, before this context has noticed.
    bool has_ended(const Entry& entry) const {
        return family_ && family_->exposures.has_ended(entry.region, entry.generation,
                                                       context_->current_time());
    }
    Status ensure_exposed(Entry& entry, core::EndpointSlot& endpoint);
    Result<Use*> use_at(core::EndpointSlot& endpoint, const RegionRef& ref);
    GrantSlot* add_grant(Use& use, core::Peer& peer, base::SlotId rendezvous_id,
                         base::SlotId transfer);
    bool is_accessible(Bytes range, Access access) const;
    GrantSlot* find_grant(const core::Peer& peer, std::uint64_t number);
    void end_grant(GrantSlot& grant);
    void erase_grant(GrantSlot& grant);
    bool is_fenced_at_end(const Entry& entry) const;
    void send_grant(core::Peer& peer, const OpenFrame& open, const Status& status,
                    na::FabricKey fabric, std::uint64_t grant);

    // Guards context_ against a close() on another thread during shutdown().
    const base::OwnerProcess process_;
    std::mutex end_mutex_;
    core::Context* context_;
    const na::Arena& arena_;  // Valid while there is a context.
    const na::Incarnation owner_;
    RendezvousSender* rendezvous_sender_ = nullptr;

    // Its place among the contexts of the runtime.
    RegionFamily* const family_;
    const std::uint16_t index_;  // Of the context.
    const na::RegionNumbers numbers_;
    const std::uint32_t first_user_;  // The number of its first region of the program.
    LeaseWatch lease_watch_;

    // The regions and their holders.
    base::SlotTable<Entry> users_{numbers_.each};
    base::SlotTable<Entry> bodies_{body_regions};
    std::map<std::uint32_t, Use> foreign_;  // Regions of other contexts, by their numbers.
    base::SlotTable<Grant> grants_{grants_max};
    std::uint64_t fenced_by_end_ = 0;  // Endpoints that fence at their own end; set by close_all().
    Counters counters_;
};

}  // namespace weft::bulk
