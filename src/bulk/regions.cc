#include "bulk/regions.h"

#include <algorithm>
#include <optional>

#include "base/assert.h"
#include "base/text.h"

namespace weft::bulk {

// The share of one peer.
static constexpr std::uint32_t grants_per_peer_max = 65536 / 4;
// The part of a granted range that is probed for access.
static constexpr std::uint64_t probed_bytes_max = 4u << 20;
// The time for the holder of a revoked grant to return it. Ticks are counted instead of time, so
// that a suspension of this process does not count against a peer.
static constexpr Duration revoke_tick = 400ms;
static constexpr std::uint32_t revoke_ticks_max = 25;

Regions::Regions(core::Context& context, na::Incarnation owner, const na::Arena& arena)
    : context_(&context), arena_(arena), owner_(owner) {
    context.set_sink(core::FrameKind::bulk_open, *this);
    context.set_sink(core::FrameKind::bulk_close, *this);
}

Regions::~Regions() { WEFT_DCHECK(context_ == nullptr); }

// Memory that could be written after its release is not exposed at all.
static Result<na::FabricKey> expose_at(core::EndpointSlot& slot, const na::Exposure& exposure) {
    if (!slot.endpoint->caps().fences_region) {  // Some detect this while connecting.
        return fail(Code::unimplemented,
                    std::string(slot.endpoint->scheme()) +
                        " can't fence memory in this process, so none is exposed (`weft info` and "
                        "docs/environment.md say what it needs)");
    }
    return slot.endpoint->expose(exposure);
}

Result<Region> Regions::expose(Buffer memory, const ExposeOptions& options, Purpose use) {
    if (!context_ || context_->is_closed()) {
        return fail(Code::unavailable, "the runtime is shutting down");
    }
    if (Status status = validate_exposure(memory, options); !status.ok()) return status;
    // Before the slot: this may throw.
    std::vector<na::FabricKey> fabrics(context_->endpoints().size());
    Slot* slot = take(use);
    if (!slot) {
        return fail(Code::resource_exhausted,
                    "all " + std::to_string(user_regions_max) +
                        " regions of this runtime are in use; close one first");
    }
    ++counters_.exposed;
    Entry& entry = slot->value;
    entry.memory = memory;
    entry.access = options.access;
    entry.key = context_->random().next() | 1;
    entry.closing = false;
    entry.grants = 0;
    entry.holders = na::Holders::done;
    entry.ticks = 0;
    entry.unfenced = 0;
    entry.fabric = std::move(fabrics);
    const na::Exposure exposure{slot->slot, slot->generation, entry.key, memory.bytes(),
                                options.access};
    for (const auto& endpoint : context_->endpoints()) {
        if (!endpoint->caps.rma) continue;
        Result<na::FabricKey> fabric = expose_at(*endpoint, exposure);
        if (!fabric) {
            close_on_context(slot->slot, slot->generation, nullptr);
            return std::move(fabric).status();
        }
        entry.fabric[endpoint->index] = *fabric;
        entry.unfenced |= std::uint64_t{1} << endpoint->index;
    }
    if (options.lease > Duration::zero()) expire_in(*slot, options.lease);
    Region region;
    region.owner_ = shared_from_this();
    region.ref_.version = 1;
    region.ref_.access = options.access;
    region.ref_.region = slot->slot;
    region.ref_.generation = slot->generation;
    region.ref_.key = entry.key;
    region.ref_.length = memory.size();
    region.ref_.owner = owner_.low;
    return region;
}

void Regions::expire_in(Slot& slot, Duration time) {
    Expiry& expiry = slot.value.expiry;
    expiry.owner = this;
    expiry.region = slot.slot;
    expiry.generation = slot.generation;
    expiry.fire = [](base::Timer& timer, TimePoint) {
        auto& due = static_cast<Expiry&>(timer);
        due.owner->on_expiry(due.region, due.generation);
    };
    context_->timers().arm(expiry, saturating_add(context_->clock().now(), time));
}

void Regions::on_expiry(std::uint32_t region, std::uint32_t generation) {
    Slot* slot = regions_.find({region, generation});
    WEFT_ASSERT(slot != nullptr);
    if (!slot->value.closing) return close_on_context(region, generation, nullptr);
    if (++slot->value.ticks < revoke_ticks_max) {
        send_revokes(*slot);
        return expire_in(*slot, revoke_tick);
    }
    std::vector<core::PeerRef> holders;
    slot->value.held.for_each([&](const Grant& grant) { holders.push_back(grant.peer); });
    for (const core::PeerRef& holder : holders) {
        core::Peer* peer = context_->find(holder);
        if (!peer || peer->state != core::PeerState::up) continue;  // Handled already.
        context_->log().write_rate_limited(
            LogLevel::warning, context_->current_time(),
            "closing " + peer->uri + ": it did not give back a revoked region");
        context_->drop_connection(
            *peer, fail(Code::unavailable, "the peer did not give back a revoked region"));
    }
}

void Regions::add_endpoint(core::EndpointSlot& endpoint) {
    regions_.for_each([&](Slot& slot) {
        Entry& entry = slot.value;
        entry.fabric.resize(context_->endpoints().size());
        if (entry.closing || !endpoint.caps.rma) return;
        Result<na::FabricKey> fabric = expose_at(
            endpoint, {slot.slot, slot.generation, entry.key, entry.memory.bytes(), entry.access});
        if (!fabric) {
            context_->log().warning("a region can't be reached over " +
                                    std::string(endpoint.endpoint->scheme()) + ": " +
                                    fabric.status().to_string());
            return;
        }
        entry.fabric[endpoint.index] = *fabric;
        entry.unfenced |= std::uint64_t{1} << endpoint.index;
    });
}

void Regions::close(std::uint32_t region, std::uint32_t generation, Function<void()> fenced) {
    if (!process_.is_this()) return;
    std::optional<core::ThreadOwnership::UseGuard> here;
    {
        const std::lock_guard lock(end_mutex_);
        if (context_ && !here.emplace(*context_)) {
            context_->post([self = shared_from_this(), region, generation,
                            fenced = std::move(fenced)]() mutable {
                self->close_on_context(region, generation, std::move(fenced));
            });
            return;
        }
    }
    close_on_context(region, generation, std::move(fenced));
}

// For memory that peers may still write.
void keep_forever(Buffer memory, Function<void()> fenced) {
    struct Kept {
        Buffer memory;
        Function<void()> fenced;  // It may own the memory.
    };
    base::keep_forever(Kept{std::move(memory), std::move(fenced)});
}

void Regions::close_on_context(std::uint32_t region, std::uint32_t generation,
                               Function<void()> fenced) {
    Slot* slot = regions_.find({region, generation});
    if (!slot) {  // Closed and fenced before, at the end of its lease.
        if (fenced) fenced();
        return;
    }
    if (!context_) {  // shutdown() kept its memory.
        if (fenced) keep_forever({}, std::move(fenced));
        return;
    }
    context_->request_turn();
    Entry& entry = slot->value;
    if (fenced) entry.fenced = std::move(fenced);
    if (std::exchange(entry.closing, true)) return;
    context_->timers().cancel(entry.expiry);
    // Where the transport checks each access, the revocation takes effect at once.
    for (const auto& endpoint : context_->endpoints()) {
        const std::uint64_t bit = std::uint64_t{1} << endpoint->index;
        if ((entry.unfenced & bit) && endpoint->caps.rma_checked) {
            endpoint->endpoint->fence(region, na::Holders::done);
        }
    }
    if (entry.grants == 0) return fence(*slot);
    entry.ticks = 0;
    send_revokes(*slot);
    expire_in(*slot, revoke_tick);
}

// Revokes the grants not revoked yet, if there is room for the message.
void Regions::send_revokes(Slot& slot) {
    slot.value.held.for_each([&](Grant& grant) {
        if (grant.revoke_sent) return;
        core::Peer* peer = context_->find(grant.peer);
        if (!peer) return;
        const core::Context::Claim claim = context_->claim(*peer, sizeof(RevokeFrame));
        if (!claim.data) return;
        RevokeFrame revoke;
        revoke.grant = number_of(base::SlotTable<Grant>::entry_of(grant));
        revoke.transfer_slot = grant.transfer.slot;
        revoke.transfer_generation = grant.transfer.generation;
        base::store(claim.data, revoke);
        context_->commit(*peer, claim, sizeof revoke);
        grant.revoke_sent = true;
    });
}

// No grant is left: transports without access checks can prove the end now.
void Regions::fence(Slot& slot) {
    WEFT_ASSERT(slot.value.closing && slot.value.grants == 0);
    Entry& entry = slot.value;
    context_->timers().cancel(entry.expiry);
    for (const auto& endpoint : context_->endpoints()) {
        const std::uint64_t bit = std::uint64_t{1} << endpoint->index;
        if ((entry.unfenced & bit) && !endpoint->caps.rma_checked) {
            endpoint->endpoint->fence(slot.slot, entry.holders);
        }
    }
    if (entry.unfenced == 0) finish(slot);
}

void Regions::on_region_fenced(std::uint32_t region, core::EndpointSlot& endpoint) {
    Slot* found = regions_.find_at(region);
    if (!found || !found->value.closing) return;
    found->value.unfenced &= ~(std::uint64_t{1} << endpoint.index);
    if (found->value.unfenced == 0 && found->value.grants == 0) finish(*found);
}

void Regions::finish(Slot& slot) {
    Function<void()> fenced = std::move(slot.value.fenced);
    const Buffer memory = std::exchange(slot.value.memory, Buffer());
    user_regions_ -= slot.value.use == Purpose::user;
    regions_.release(slot);
    if (fenced) fenced();
}

// ---- grants ----------------------------------------------------------------------------------

void Regions::on_frame(core::Peer& peer, core::FrameHead head, ByteView frame) {
    if (head.flags != 0) {
        return context_->close_malformed(peer, "a bulk frame with flags of a later version");
    }
    if (head.kind == core::FrameKind::bulk_open) {
        if (frame.size() != sizeof(OpenFrame)) {
            return context_->close_malformed(peer, "a bulk_open of the wrong size");
        }
        // A grant would only delay the release of the owner's memory.
        if (peer.endpoint->caps.rma_checked) {
            return context_->close_malformed(
                peer, "a bulk_open over a transport that checks each access");
        }
        on_open(peer, frame);
    } else {
        if (frame.size() != sizeof(CloseFrame)) {
            return context_->close_malformed(peer, "a bulk_close of the wrong size");
        }
        on_close(peer, frame);
    }
}

Result<Regions::Slot*> Regions::validate(const RegionRef& ref) {
    if (ref.owner != owner_.low) {
        return fail(
            Code::permission_denied,
            "the reference is to memory of another process, or of an earlier incarnation of "
            "this one");
    }
    Slot* slot = regions_.find({ref.region, ref.generation});
    if (!slot || slot->value.closing) {
        return fail(
            Code::permission_denied,
            "the region was revoked, expired or never existed: get a new reference from its owner");
    }
    const Entry& entry = slot->value;
    if (entry.key != ref.key)
        return fail(Code::permission_denied,
                    "the reference has another key than the region: get a new one from its owner");
    if (!allows(entry.access, ref.access)) {
        return fail(Code::permission_denied, "the region does not grant this access");
    }
    if (ref.offset > entry.memory.size() || ref.length > entry.memory.size() - ref.offset) {
        return fail(Code::permission_denied, "range " + std::to_string(ref.offset) + "+" +
                                                 std::to_string(ref.length) +
                                                 " is outside the region of " +
                                                 std::to_string(entry.memory.size()) + " bytes");
    }
    return slot;
}

Bytes Regions::memory_of(const RegionRef& ref) {
    const Result<Slot*> slot = validate(ref);
    return slot ? (*slot)->value.memory.bytes().subspan(ref.offset, ref.length) : Bytes();
}

Status Regions::write(const RegionRef& to, ByteView data) {
    WEFT_ASSERT(data.size() == to.length);
    const Result<Slot*> slot = validate(to);
    const bool written =
        slot &&
        na::write_memory(arena_, (*slot)->value.memory.bytes().subspan(to.offset, to.length), data);
    if (written) return Status();
    const std::string what = std::to_string(data.size()) + " bytes for offset " +
                             std::to_string(to.offset) + " of region " + std::to_string(to.region);
    if (!slot) return Status(slot.status()).in(what);
    return fail(Code::failed_precondition, what + ": " + na::memory_text_unwritable);
}

void Regions::on_open(core::Peer& peer, ByteView frame) {
    const auto open = base::load<OpenFrame>(frame.data());
    Result<RegionRef> ref =
        RegionRef::decode({reinterpret_cast<const std::byte*>(open.ref), RegionRef::wire_bytes});
    Result<Slot*> slot = ref ? validate(*ref) : Result<Slot*>(ref.status());
    if (slot && !is_exposed((*slot)->value, *peer.endpoint)) {
        slot = fail(Code::unimplemented, "the owner can't expose memory over this transport");
    }
    if (slot && !is_accessible(**slot, *ref)) {
        slot = fail(Code::failed_precondition, allows(ref->access, Access::write)
                                                   ? na::memory_text_unwritable
                                                   : na::memory_text_unreadable);
    }
    const base::SlotId transfer{open.transfer_slot, open.transfer_generation};
    GrantSlot* const grant = slot ? add_grant(**slot, peer, {}, transfer) : nullptr;
    if (slot && !grant) {
        slot = fail(Code::resource_exhausted, "the owner has too many transfers in flight");
    }
    if (!slot) return send_grant(peer, open, slot.status(), {}, 0);
    const na::FabricKey fabric = (*slot)->value.fabric[peer.endpoint->index];
    send_grant(peer, open, Status(), fabric, number_of(*grant));
}

// The transport accesses granted memory, and an inaccessible page may end the process. The probe is
// bounded, because a request costs the peer little.
bool Regions::is_accessible(const Slot& slot, const RegionRef& ref) const {
    const Bytes range = slot.value.memory.bytes().subspan(
        ref.offset, std::min<std::uint64_t>(ref.length, probed_bytes_max));
    return na::is_accessible(arena_, range, allows(ref.access, Access::write));
}

bool Regions::is_exposed(const Entry& entry, const core::EndpointSlot& endpoint) {
    return (entry.unfenced >> endpoint.index & 1) != 0 && endpoint.endpoint->caps().fences_region;
}

Regions::GrantSlot* Regions::add_grant(Slot& slot, core::Peer& peer, base::SlotId rendezvous_id,
                                       base::SlotId transfer) {
    core::Traffic& traffic = peer.traffic;
    GrantSlot* const taken = traffic.granted < grants_per_peer_max ? grants_.take() : nullptr;
    if (!taken) return nullptr;
    WEFT_ASSERT(!slot.value.closing && peer.ref);
    Grant& grant = taken->value;
    grant.peer = peer.ref;
    grant.region = slot.slot;
    grant.generation = slot.generation;
    grant.revoke_sent = grant.is_unsent = false;
    grant.rendezvous_id = rendezvous_id;
    grant.transfer = transfer;
    slot.value.held.push_back(grant);
    traffic.grants.push_back(grant);
    ++slot.value.grants;
    ++traffic.granted;
    context_->add_interest(peer);
    return taken;
}

std::uint64_t Regions::grant_rendezvous(std::uint32_t region, std::uint32_t generation,
                                        core::Peer& peer, base::SlotId rendezvous_id,
                                        bool is_unsent) {
    Slot* slot = regions_.find({region, generation});
    WEFT_ASSERT(slot != nullptr && !slot->value.closing);  // The sender owns the region.
    GrantSlot* grant = add_grant(*slot, peer, rendezvous_id, {});
    if (grant) grant->value.is_unsent = is_unsent;
    return grant ? number_of(*grant) : 0;
}

void Regions::withdraw(core::Peer& peer, std::uint64_t number) {
    GrantSlot* grant = find_grant(peer, number);
    if (!grant) return;
    context_->drop_interest(peer);
    end_grant(*grant);
}

std::optional<na::FabricKey> Regions::fabric_key(std::uint32_t region, std::uint32_t generation,
                                                 const core::EndpointSlot& endpoint) {
    Slot* slot = regions_.find({region, generation});
    if (!slot || !is_exposed(slot->value, endpoint)) return std::nullopt;
    return slot->value.fabric[endpoint.index];
}

void Regions::send_grant(core::Peer& peer, const OpenFrame& open, const Status& status,
                         na::FabricKey fabric, std::uint64_t number) {
    const std::string_view text = base::truncate_utf8(status.text(), grant_text_bytes_max);
    const std::size_t bytes = sizeof(GrantFrame) + text.size();
    const core::Context::Claim claim = context_->claim(peer, bytes);
    if (!claim.data) {
        if (context_->queues().has_full_queue(peer, bytes)) {
            return context_->close_malformed(peer, "more bulk_open than it reads replies for");
        }
        return context_->fail_connection(
            peer, fail(Code::unavailable, "connection closed: no memory to answer a bulk_open"));
    }
    GrantFrame grant;
    grant.head.bytes = static_cast<std::uint32_t>(bytes);
    grant.head.aux = static_cast<std::uint16_t>(status.code());
    grant.transfer_slot = open.transfer_slot;
    grant.transfer_generation = open.transfer_generation;
    grant.fabric = fabric;
    grant.grant = number;
    base::store(claim.data, grant);
    if (!text.empty()) std::memcpy(claim.data + sizeof grant, text.data(), text.size());
    context_->commit(peer, claim, bytes);
}

void Regions::on_close(core::Peer& peer, ByteView frame) {
    withdraw(peer, base::load<CloseFrame>(frame.data()).grant);  // No effect if forged or repeated.
}

Regions::GrantSlot* Regions::find_grant(const core::Peer& peer, std::uint64_t number) {
    GrantSlot* grant = grants_.find(
        {static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32)});
    return grant && grant->value.peer == peer.ref ? grant : nullptr;
}

void Regions::end_grant(GrantSlot& grant) {
    const base::SlotId rendezvous_id = grant.value.rendezvous_id;
    Slot* slot = regions_.find({grant.value.region, grant.value.generation});
    WEFT_ASSERT(slot != nullptr);  // A region outlives its grants.
    WEFT_ASSERT(slot->value.grants != 0);
    erase_grant(grant);
    if (--slot->value.grants == 0 && slot->value.closing) fence(*slot);
    if (rendezvous_id) rendezvous_sender_->on_rendezvous_released(rendezvous_id);
}

void Regions::erase_grant(GrantSlot& grant) {
    core::PeerGrant& peer_node = grant.value;
    RegionNode& region_node = grant.value;
    peer_node.unlink();
    region_node.unlink();
    WEFT_ASSERT(grant.value.peer.at->traffic.granted != 0);
    --grant.value.peer.at->traffic.granted;
    grants_.release(grant);
}

void Regions::on_peer_down(core::Peer& peer, const Status&) {
    // The provider has cut the connection: no access of this peer arrives after the fence.
    base::IntrusiveList<core::PeerGrant> lost;  // Later grants are for its next connection.
    lost.splice_back(peer.traffic.grants);
    while (core::PeerGrant* one = lost.front()) {
        auto& grant = static_cast<Grant&>(*one);
        if (retain_unsent(peer, grant)) continue;
        context_->drop_interest(peer);
        regions_.find({grant.region, grant.generation})->value.holders = na::Holders::lost;
        end_grant(base::SlotTable<Grant>::entry_of(grant));
    }
}

void Regions::close_all() {
    for (const auto& endpoint : context_->endpoints()) {
        if (!endpoint->caps.fenced_by_end) continue;
        fenced_by_end_ |= std::uint64_t{1} << endpoint->index;
    }
    regions_.for_each([&](Slot& slot) { close_on_context(slot.slot, slot.generation, nullptr); });
}

bool Regions::is_fenced_at_end(const Entry& entry) const {
    return (entry.unfenced & ~fenced_by_end_) == 0;
}

std::uint32_t Regions::unfenced_regions() {
    std::uint32_t unfenced = 0;
    regions_.for_each([&](Slot& slot) { unfenced += !is_fenced_at_end(slot.value); });
    return unfenced;
}

void Regions::shutdown() {
    grants_.for_each([&](GrantSlot& grant) { erase_grant(grant); });
    std::uint32_t kept = 0;
    std::size_t bytes = 0;
    regions_.for_each([&](Slot& slot) {
        Entry& entry = slot.value;
        context_->timers().cancel(entry.expiry);
        if (is_fenced_at_end(entry)) return finish(slot);
        ++kept;
        bytes += entry.memory.size();
        keep_forever(std::exchange(entry.memory, Buffer()), std::move(entry.fenced));
    });
    if (kept != 0) {
        context_->log().error(
            std::to_string(kept) + " exposed regions of " + std::to_string(bytes) +
            " bytes in all are kept until the process ends, and not released: a suspended peer "
            "(SIGSTOP?) may still write to them; resume or end such peers before this runtime");
    }
    const std::lock_guard lock(end_mutex_);
    context_ = nullptr;
}

}  // namespace weft::bulk
