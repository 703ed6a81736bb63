// Regions of other contexts, and their fences: the context that exposed a region asks those that
// may use it, and each answers once its peers have no grant and its endpoints have fenced it.
#include "base/assert.h"
#include "bulk/regions.h"

namespace weft::bulk {

// Exposes a region of another context at an endpoint of this one: a peer there has requested it.
// Requires: range_of() finds it. It stays exposed there until its context asks for the fence.
Result<Regions::Use*> Regions::adopt(core::EndpointSlot& endpoint, const RegionRef& ref) {
    const auto exposure = family_->exposures.adopt(ref.region, ref.generation, index_);
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

// From here on no other context begins to use the region; those that may use it are asked.
void Regions::ask_others(Slot& slot) {
    Entry& entry = slot.value;
    const std::uint32_t number = number_of(slot);
    entry.asked = family_->exposures.revoke(number);
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

}  // namespace weft::bulk
