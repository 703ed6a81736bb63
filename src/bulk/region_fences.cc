// Regions of other contexts, and their fences: the context that exposed a region asks those that
// may use it, and each answers once its peers have no grant and its endpoints have fenced it.
#include "base/assert.h"
#include "bulk/regions.h"

namespace weft::bulk {

// Exposes a region of another context at an endpoint of this one: a peer there has requested it.
// Requires: range_of() finds it. It stays exposed there until its context asks for the fence.
Result<Regions::Use*> Regions::adopt(core::EndpointSlot& endpoint, const RegionRef& ref) {
    const auto exposure = family_->exposures.adopt(ref.region, ref.generation, ref.key, index_,
                                                   context_->current_time());
    if (!exposure) return no_such_region();
    Use& use = foreign_[ref.region];
    WEFT_ASSERT(!use.closing);
    use.region = ref.region;
    use.generation = ref.generation;
    use.fabric.resize(context_->endpoints().size());
    if (is_exposed(use, endpoint)) return &use;
    Result<na::FabricKey> fabric = expose_at(endpoint, *exposure);
    if (!fabric) {
        if (use.unfenced == 0) foreign_.erase(ref.region);
        return std::move(fabric).status();
    }
    use.fabric[endpoint.index] = *fabric;
    use.unfenced |= std::uint64_t{1} << endpoint.index;
    if (!endpoint.caps.fenced_by_end) family_->exposing |= std::uint64_t{1} << index_;
    return &use;
}

// From here on no other context begins to use the region; those that may use it are asked. Another
// thread may have revoked it before (Regions::close()).
void Regions::ask_others(Slot& slot) {
    Entry& entry = slot.value;
    const std::uint32_t number = number_of(slot);
    if (entry.lease_ends != never) family_->leases.remove(lease_of(entry));
    entry.asked = family_->exposures.revoke(number, slot.generation);
    for (std::uint32_t k = 0; k < family_->members.size(); ++k) {
        if ((entry.asked >> k & 1) == 0) continue;
        ++counters_.asked;
        Regions& other = *family_->members[k];
        // At the end of the runtime: its endpoints have ended.
        if (!other.context_) {
            entry.asked &= ~(std::uint64_t{1} << k);
            continue;
        }
        other.context_->post([&other, this, number, generation = slot.generation] {
            other.fence_for(*this, number, generation);
        });
    }
}

void Regions::fence_for(Regions& home, std::uint32_t region, std::uint32_t generation) {
    if (!context_) return answer(home, region, generation);
    Use& use = foreign_[region];  // There already if a peer has been granted the region.
    WEFT_ASSERT(use.unfenced == 0 || use.generation == generation);
    use.region = region;
    use.generation = generation;
    for (const auto& endpoint : context_->endpoints()) {
        if (!endpoint->caps.rma || !endpoint->caps.rma_checked) continue;
        use.unfenced |= std::uint64_t{1} << endpoint->index;
    }
    end_use(use);
}

void Regions::answer(Regions& home, std::uint32_t region, std::uint32_t generation) {
    if (!home.context_) return;
    home.context_->post([&home, context = index_, region, generation] {
        home.on_answer(context, region, generation);
    });
}

void Regions::on_answer(std::uint32_t context, std::uint32_t region, std::uint32_t generation) {
    Slot* const slot = find(region, generation);
    if (!slot) return;
    slot->value.asked &= ~(std::uint64_t{1} << context);
    finish_if_fenced(slot->value);
}

// ---- leases ------------------------------------------------------------------------------------

void Regions::watch_lease(const Entry& entry) {
    const std::uint64_t notified = family_->leases.add(lease_of(entry), index_);
    for (std::uint32_t k = 0; k < family_->members.size(); ++k) {
        if ((notified >> k & 1) == 0) continue;
        Regions& other = *family_->members[k];
        if (!other.context_) continue;  // At the end of the runtime.
        try {
            other.context_->post([&other] { other.revoke_ended_leases(); });
        } catch (...) {
            family_->leases.forget_notifications(notified >> k << k);
            throw;
        }
    }
}

void Regions::revoke_ended_leases() {
    if (!context_) return;
    lease_watch_.owner = this;
    lease_watch_.fire = [](base::Timer& timer, TimePoint) {
        static_cast<LeaseWatch&>(timer).owner->revoke_ended_leases();
    };
    context_->timers().cancel(lease_watch_);
    const TimePoint now = context_->clock().now();
    context_->timers().arm(lease_watch_,
                           family_->leases.revoke_ended(index_, now, family_->exposures));
}

}  // namespace weft::bulk
