// The regions that an endpoint exposes, and the fences that its next poll reports. Every access is
// checked here when it lands.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "base/assert.h"
#include "na/exposures.h"
#include "na/provider.h"
#include "na/tcp/bulk_stream.h"

namespace weft::na::tcp {

class ExposedRegions {
  public:
    // `others`: the regions of the other contexts; nullptr: there is one.
    ExposedRegions(Exposures* others, std::uint16_t context) : others_(others), context_(context) {}

    // Errors: RESOURCE_EXHAUSTED.
    Result<FabricKey> expose(const Exposure& exposure);
    // Refuses every later access. The fence is due: next_fenced().
    void revoke(std::uint32_t region);
    Refusal validate(const BulkHead& head, Access access, TimePoint now) noexcept;
    // Requires: validate() refused nothing.
    std::byte* at(const BulkHead& head) const noexcept {
        const Exposure* const exposure = find(head.region);
        WEFT_DCHECK(exposure && head.offset < exposure->memory.size());
        return exposure->memory.data() + head.offset;
    }

    bool has_fenced() const { return !fenced_.empty(); }
    std::uint32_t next_fenced() {
        WEFT_DCHECK(has_fenced());
        const std::uint32_t region = fenced_.back();
        fenced_.pop_back();
        return region;
    }

  private:
    static constexpr std::uint32_t page_rows = 256;
    using Page = std::array<Exposure, page_rows>;

    const Exposure* find(std::uint32_t region) const noexcept {
        const Page* const page = region < regions_max ? pages_[region / page_rows].get() : nullptr;
        return page ? &(*page)[region % page_rows] : nullptr;
    }
    // nullptr: no memory.
    Exposure* make(std::uint32_t region) noexcept;
    static Refusal judge(const Exposure* exposure, const BulkHead& head, Access access) noexcept;

    // By number; access none: not exposed by this context.
    std::array<std::unique_ptr<Page>, regions_max / page_rows> pages_;
    std::vector<std::uint32_t> fenced_;
    Exposures* const others_;
    const std::uint16_t context_;
};

}  // namespace weft::na::tcp
