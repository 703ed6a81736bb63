// The regions that an endpoint exposes, and the fences that its next poll reports. Every access is
// checked here when it lands.
#pragma once

#include <vector>

#include "base/assert.h"
#include "na/provider.h"
#include "na/tcp/bulk_stream.h"

namespace weft::na::tcp {

class ExposedRegions {
  public:
    // Errors: RESOURCE_EXHAUSTED.
    Result<FabricKey> expose(const Exposure& exposure);
    // Refuses every later access. The fence is due: next_fenced().
    void revoke(std::uint32_t region);
    Refusal validate(const BulkHead& head, Access access) const noexcept;
    // Requires: validate() refused nothing.
    std::byte* at(const BulkHead& head) const noexcept {
        WEFT_DCHECK(head.region < regions_.size());
        WEFT_DCHECK(head.offset < regions_[head.region].memory.size());
        return regions_[head.region].memory.data() + head.offset;
    }

    bool has_fenced() const { return !fenced_.empty(); }
    std::uint32_t next_fenced() {
        WEFT_DCHECK(has_fenced());
        const std::uint32_t region = fenced_.back();
        fenced_.pop_back();
        return region;
    }

  private:
    std::vector<Exposure> regions_;  // By index; access none: not exposed.
    std::vector<std::uint32_t> fenced_;
};

}  // namespace weft::na::tcp
