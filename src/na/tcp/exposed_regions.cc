#include "na/tcp/exposed_regions.h"

#include <algorithm>
#include <new>

#include "na/common/exposure.h"

namespace weft::na::tcp {

Exposure* ExposedRegions::make(std::uint32_t region) noexcept {
    WEFT_ASSERT(region < regions_max);
    std::unique_ptr<Page>& page = pages_[region / page_rows];
    if (!page) page.reset(new (std::nothrow) Page());
    return page ? &(*page)[region % page_rows] : nullptr;
}

Result<FabricKey> ExposedRegions::expose(const Exposure& exposure) {
    if (exposure.region >= regions_max) {
        return fail(Code::resource_exhausted, "tcp: region " + std::to_string(exposure.region) +
                                                  " is beyond the table of " +
                                                  std::to_string(regions_max));
    }
    Exposure* const entry = make(exposure.region);
    if (!entry) return fail(Code::resource_exhausted, "tcp: no memory for the table of regions");
    if (entry->access != Access::none) return already_exposed(exposure.region);
    *entry = exposure;
    return FabricKey{reinterpret_cast<std::uintptr_t>(exposure.memory.data()), exposure.key};
}

void ExposedRegions::revoke(std::uint32_t region) {
    if (find(region)) {
        Exposure& exposure = *make(region);
        exposure.memory = {};
        exposure.access = Access::none;
    }
    if (std::ranges::find(fenced_, region) == fenced_.end()) fenced_.push_back(region);
}

Refusal ExposedRegions::validate(const BulkHead& head, Access access, TimePoint now) noexcept {
    const Refusal refusal = judge(find(head.region), head, access);
    if (!others_ || refusal > Refusal::revoked) return refusal;
    if (refusal == Refusal::none) {
        // Another thread may have closed it.
        const bool has_ended = others_->has_ended(head.region, head.generation, now);
        return has_ended ? Refusal::revoked : refusal;
    }
    const std::optional<Exposure> found =
        others_->adopt(head.region, head.generation, head.key, context_, now);
    Exposure* const entry = found ? make(head.region) : nullptr;
    if (!entry) {
        const bool has_other_key = others_->has_other_key(head.region, head.generation, head.key);
        return has_other_key ? Refusal::key : refusal;
    }
    // Its context may revoke the region at any time: each access adopts it again.
    *entry = *found;
    entry->access = Access::none;
    return judge(&*found, head, access);
}

Refusal ExposedRegions::judge(const Exposure* exposure, const BulkHead& head,
                              Access access) noexcept {
    if (!exposure || exposure->generation == 0) return Refusal::no_region;
    if (exposure->generation != head.generation) return Refusal::stale;
    if (exposure->access == Access::none) return Refusal::revoked;
    if (exposure->key != head.key) return Refusal::key;
    if (!allows(exposure->access, access)) {
        return access == Access::read ? Refusal::not_readable : Refusal::not_writable;
    }
    const std::uint64_t bytes = exposure->memory.size();
    if (head.offset > bytes || head.length > bytes - head.offset) return Refusal::range;
    return Refusal::none;
}

}  // namespace weft::na::tcp
