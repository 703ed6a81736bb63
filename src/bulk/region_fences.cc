// Fences across the contexts of a runtime: the context that exposed a region asks those that may
// use it, and each answers once its endpoints have fenced the region.
#include "base/assert.h"
#include "bulk/regions.h"

namespace weft::bulk {

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
    std::uint64_t unfenced = 0;
    for (const auto& endpoint : context_->endpoints()) {
        if (!endpoint->caps.rma || !endpoint->caps.rma_checked) continue;
        unfenced |= std::uint64_t{1} << endpoint->index;
        endpoint->endpoint->fence(region, na::Holders::done);
    }
    if (unfenced == 0) return answer(home, region, generation);
    WEFT_ASSERT(!foreign_.contains(region));
    foreign_[region] = {&home, generation, unfenced};
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
    finish_if_fenced(*slot);
}

}  // namespace weft::bulk
