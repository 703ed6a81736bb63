#include "bulk/regions.h"

#include <algorithm>
#include <optional>

#include "base/assert.h"

namespace weft::bulk {

// The time for the holder of a revoked grant to return it. Ticks are counted instead of time, so
// that a suspension of this process does not count against a peer.
static constexpr Duration revoke_tick = 400ms;
static constexpr std::uint32_t revoke_ticks_max = 25;

Regions::Regions(core::Context& context, na::Incarnation owner, const na::Arena& arena,
                 RegionFamily* family)
    : context_(&context),
      arena_(arena),
      owner_(owner),
      family_(family),
      index_(context.member()),
      numbers_(family ? family->exposures.numbers() : na::RegionNumbers(1)),
      first_user_(numbers_.first_of(index_)) {
    if (family_) family_->members[index_] = this;
    context.set_sink(core::FrameKind::bulk_open, *this);
    context.set_sink(core::FrameKind::bulk_close, *this);
}

// A runtime that could not be made has exposed nothing.
Regions::~Regions() { WEFT_DCHECK(context_ == nullptr || counters_.exposed == 0); }

// Memory that could be written after its release is not exposed at all.
Result<na::FabricKey> Regions::expose_at(core::EndpointSlot& slot, const na::Exposure& exposure) {
    if (!slot.endpoint->caps().fences_region) {  // Some detect this while connecting.
        return fail(Code::unimplemented,
                    std::string(slot.endpoint->scheme()) +
                        " can't fence memory in this process, so none is exposed (`weft info` and "
                        "docs/environment.md say what it needs)");
    }
    return slot.endpoint->expose(exposure);
}

// An endpoint that came after the region may have lacked memory for it, and have some now.
Status Regions::ensure_exposed(Entry& entry, core::EndpointSlot& endpoint) {
    if (is_exposed(entry, endpoint)) return Status();
    if (!endpoint.caps.rma)
        return fail(Code::unimplemented, "the owner can't expose memory over this transport");
    Result<na::FabricKey> fabric = expose_at(endpoint, exposure_of(entry));
    if (!fabric) return std::move(fabric).status();
    entry.fabric[endpoint.index] = *fabric;
    entry.unfenced |= std::uint64_t{1} << endpoint.index;
    return Status();
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
                    "all " + std::to_string(numbers_.each) + " regions of this " +
                        (family_ ? "context" : "runtime") + " are in use; close one first");
    }
    ++counters_.exposed;
    Entry& entry = slot->value;
    const std::uint32_t number = number_of(*slot);
    entry.region = number;
    entry.generation = slot->generation;
    entry.memory = memory;
    entry.access = options.access;
    entry.key = context_->random().next() | 1;
    entry.closing = false;
    entry.grants = 0;
    entry.holders = na::Holders::done;
    entry.ticks = 0;
    entry.unfenced = 0;
    entry.lease_ends = options.lease == Duration::zero()
                           ? never
                           : saturating_add(context_->clock().now(), options.lease);
    entry.asked = 0;
    entry.fabric = std::move(fabrics);
    for (const auto& endpoint : context_->endpoints()) {
        if (!endpoint->caps.rma) continue;
        Status exposed = ensure_exposed(entry, *endpoint);
        if (!exposed.ok()) {
            close_on_context(number, slot->generation, nullptr);
            return exposed;
        }
    }
    // Before the reference leaves: no context meets a reference that it does not find.
    if (family_ && use == Purpose::user)
        family_->exposures.publish(exposure_of(entry), entry.lease_ends);
    if (entry.lease_ends != never) expire_at(entry, entry.lease_ends);
    Region region;  // Closes it if the rest throws.
    region.owner_ = shared_from_this();
    region.ref_.version = 1;
    region.ref_.access = options.access;
    region.ref_.region = number;
    region.ref_.generation = slot->generation;
    region.ref_.key = entry.key;
    region.ref_.length = memory.size();
    region.ref_.owner = owner_.low;
    if (family_ && use == Purpose::user && entry.lease_ends != never) watch_lease(entry);
    return region;
}

void Regions::expire_at(Use& use, TimePoint at) {
    Expiry& expiry = use.expiry;
    expiry.owner = this;
    expiry.region = use.region;
    expiry.generation = use.generation;
    expiry.fire = [](base::Timer& timer, TimePoint) {
        auto& due = static_cast<Expiry&>(timer);
        due.owner->on_expiry(due.region, due.generation);
    };
    context_->timers().arm(expiry, at);
}

void Regions::on_expiry(std::uint32_t region, std::uint32_t generation) {
    Use* const use = find_use(region, generation);
    WEFT_ASSERT(use != nullptr);
    if (!use->closing) return close_on_context(region, generation, nullptr);
    if (++use->ticks < revoke_ticks_max) {
        send_revokes(*use);
        return expire_in(*use, revoke_tick);
    }
    std::vector<core::PeerRef> holders;
    use->held.for_each([&](const Grant& grant) { holders.push_back(grant.peer); });
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
    for_each([&](Slot& slot) {
        Entry& entry = slot.value;
        entry.fabric.resize(context_->endpoints().size());
        if (entry.closing || !endpoint.caps.rma) return;
        const Status exposed = ensure_exposed(entry, endpoint);
        if (exposed.ok()) return;
        context_->log().warning("a region can't be reached over " +
                                std::string(endpoint.endpoint->scheme()) + ": " +
                                exposed.to_string());
    });
}

void Regions::close(std::uint32_t region, std::uint32_t generation, Function<void()> fenced) {
    if (!process_.is_this()) return;
    std::optional<core::ThreadOwnership::UseGuard> here;
    {
        const std::lock_guard lock(end_mutex_);
        if (context_ && !here.emplace(*context_)) {
            // The context may be blocked. It asks for the fences, and finds the region revoked.
            if (family_ && region >= body_regions) family_->exposures.revoke(region, generation);
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
    Slot* slot = find(region, generation);
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
    if (entry.closing) return;
    context_->timers().cancel(entry.expiry);
    if (family_ && entry.use == Purpose::user) ask_others(*slot);
    end_use(entry);
}

// From here on no peer of this context may use the region, which is fenced when its grants have
// ended.
void Regions::end_use(Use& use) {
    WEFT_ASSERT(!use.closing);
    use.closing = true;
    // Where the transport checks each access, the revocation takes effect at once.
    for (const auto& endpoint : context_->endpoints()) {
        const std::uint64_t bit = std::uint64_t{1} << endpoint->index;
        if ((use.unfenced & bit) && endpoint->caps.rma_checked) {
            endpoint->endpoint->fence(use.region, na::Holders::done);
        }
    }
    if (use.grants == 0) return fence(use);
    use.ticks = 0;
    send_revokes(use);
    expire_in(use, revoke_tick);
}

// No grant is left: transports without access checks can prove the end now.
void Regions::fence(Use& use) {
    WEFT_ASSERT(use.closing && use.grants == 0);
    context_->timers().cancel(use.expiry);
    for (const auto& endpoint : context_->endpoints()) {
        const std::uint64_t bit = std::uint64_t{1} << endpoint->index;
        if ((use.unfenced & bit) && !endpoint->caps.rma_checked) {
            endpoint->endpoint->fence(use.region, use.holders);
        }
    }
    finish_if_fenced(use);
}

void Regions::on_region_fenced(std::uint32_t region, core::EndpointSlot& endpoint) {
    Slot* const own = find_at(region);
    const auto foreign = foreign_.find(region);
    if (!own && foreign == foreign_.end()) return;
    Use& use = own ? own->value : foreign->second;
    if (!use.closing) return;
    use.unfenced &= ~(std::uint64_t{1} << endpoint.index);
    finish_if_fenced(use);
}

void Regions::finish_if_fenced(Use& use) {
    if (use.unfenced != 0 || use.grants != 0) return;
    if (Slot* const own = find(use.region, use.generation)) {
        if (own->value.asked == 0) finish(*own);
        return;
    }
    const auto [region, generation] = std::pair(use.region, use.generation);
    foreign_.erase(region);
    answer(*family_->members[numbers_.home_of(region)], region, generation);
}

void Regions::finish(Slot& slot) {
    Function<void()> fenced = std::move(slot.value.fenced);
    const Buffer memory = std::exchange(slot.value.memory, Buffer());
    release(slot);
    if (fenced) fenced();
}

// ---- references of this process ----------------------------------------------------------------

Status Regions::no_such_region() {
    return fail(
        Code::permission_denied,
        "the region was revoked, expired or never existed: get a new reference from its owner");
}

static Status other_key() {
    return fail(Code::permission_denied,
                "the reference has another key than the region: get a new one from its owner");
}

// Against a region with this key, access and size.
static Status why_refused(const RegionRef& ref, std::uint64_t key, Access access,
                          std::size_t bytes) {
    if (key != ref.key) return other_key();
    if (!allows(access, ref.access))
        return fail(Code::permission_denied, "the region does not grant this access");
    if (ref.offset <= bytes && ref.length <= bytes - ref.offset) return {};
    return fail(Code::permission_denied,
                "range " + std::to_string(ref.offset) + "+" + std::to_string(ref.length) +
                    " is outside the region of " + std::to_string(bytes) + " bytes");
}

// A region of another context stays as it is at least until the end of this turn: from its adoption
// on, its context asks this one before it releases the memory.
Result<Bytes> Regions::range_of(const RegionRef& ref) {
    if (ref.owner != owner_.low) {
        return fail(Code::permission_denied,
                    "the reference is to memory of another process, or of an earlier incarnation "
                    "of this one");
    }
    const bool is_others = family_ && ref.region >= body_regions && !is_own(ref.region);
    na::Exposure found;
    if (is_others) {
        na::Exposures& exposures = family_->exposures;
        const auto adopted =
            exposures.adopt(ref.region, ref.generation, ref.key, index_, context_->current_time());
        if (!adopted) {
            return exposures.has_other_key(ref.region, ref.generation, ref.key) ? other_key()
                                                                                : no_such_region();
        }
        found = *adopted;
    } else {
        Slot* const slot = find(ref.region, ref.generation);
        if (!slot || slot->value.closing || has_ended(slot->value)) return no_such_region();
        found = exposure_of(slot->value);
    }
    Status why = why_refused(ref, found.key, found.access, found.memory.size());
    if (!why.ok()) return why;
    return found.memory.subspan(ref.offset, ref.length);
}

Bytes Regions::memory_of(const RegionRef& ref) {
    const Result<Bytes> range = range_of(ref);
    return range ? *range : Bytes();
}

Status Regions::write(const RegionRef& to, ByteView data) {
    WEFT_ASSERT(data.size() == to.length);
    const Result<Bytes> range = range_of(to);
    const bool written = range && na::write_memory(arena_, *range, data);
    if (written) return Status();
    const std::string what = std::to_string(data.size()) + " bytes for offset " +
                             std::to_string(to.offset) + " of region " + std::to_string(to.region);
    if (!range) return Status(range.status()).in(what);
    return fail(Code::failed_precondition, what + ": " + na::memory_text_unwritable);
}

// ---- the end -----------------------------------------------------------------------------------

void Regions::close_all() {
    for (const auto& endpoint : context_->endpoints()) {
        if (!endpoint->caps.fenced_by_end) continue;
        fenced_by_end_ |= std::uint64_t{1} << endpoint->index;
    }
    for_each([&](Slot& slot) { close_on_context(number_of(slot), slot.generation, nullptr); });
}

bool Regions::is_fenced_at_end(const Entry& entry) const {
    // Other contexts have readers, or have exposed it; or their endpoints fence it by their end.
    const std::uint64_t unfenced_there =
        family_ ? entry.asked & (family_->exposures.reading() | family_->exposing.load()) : 0;
    return (entry.unfenced & ~fenced_by_end_) == 0 && unfenced_there == 0;
}

std::uint32_t Regions::unfenced_regions() {
    std::uint32_t unfenced = 0;
    for_each([&](Slot& slot) { unfenced += !is_fenced_at_end(slot.value); });
    return unfenced;
}

void Regions::shutdown() {
    grants_.for_each([&](GrantSlot& grant) { erase_grant(grant); });
    context_->timers().cancel(lease_watch_);
    for (auto& [region, use] : foreign_) context_->timers().cancel(use.expiry);
    foreign_.clear();
    std::uint32_t kept = 0;
    std::size_t bytes = 0;
    for_each([&](Slot& slot) {
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
