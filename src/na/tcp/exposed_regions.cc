#include "na/tcp/exposed_regions.h"

#include <algorithm>

#include "na/common/exposure.h"

namespace weft::na::tcp {

Result<FabricKey> ExposedRegions::expose(const Exposure& exposure) {
    if (exposure.region >= regions_max) {
        return fail(Code::resource_exhausted, "tcp: region " + std::to_string(exposure.region) +
                                                  " is beyond the table of " +
                                                  std::to_string(regions_max));
    }
    if (exposure.region >= regions_.size()) regions_.resize(exposure.region + 1);
    if (regions_[exposure.region].access != Access::none) return already_exposed(exposure.region);
    regions_[exposure.region] = exposure;
    return FabricKey{reinterpret_cast<std::uintptr_t>(exposure.memory.data()), exposure.key};
}

void ExposedRegions::revoke(std::uint32_t region) {
    if (region < regions_.size()) {
        Exposure& exposure = regions_[region];
        exposure.memory = {};
        exposure.access = Access::none;
    }
    if (std::ranges::find(fenced_, region) == fenced_.end()) fenced_.push_back(region);
}

Refusal ExposedRegions::validate(const BulkHead& head, Access access) const noexcept {
    if (head.region >= regions_.size()) return Refusal::no_region;
    const Exposure& exposure = regions_[head.region];
    if (exposure.generation != head.generation) return Refusal::stale;
    if (exposure.access == Access::none) return Refusal::revoked;
    if (exposure.key != head.key) return Refusal::key;
    if (!allows(exposure.access, access)) {
        return access == Access::read ? Refusal::not_readable : Refusal::not_writable;
    }
    const std::uint64_t bytes = exposure.memory.size();
    if (head.offset > bytes || head.length > bytes - head.offset) return Refusal::range;
    return Refusal::none;
}

}  // namespace weft::na::tcp
