// The exposed regions of a runtime with several contexts, where each context finds those of the
// others. A context that a peer accesses a region of another one through adopts the region
// (exposure_row.h), and is asked for a fence before its memory is released.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/assert.h"
#include "na/exposure_row.h"
#include "na/provider.h"

namespace weft::na {

class Exposures {
  public:
    explicit Exposures(std::uint16_t contexts)
        : rows_each_(rows_of(contexts)),
          rows_(std::make_unique<ExposureRow[]>(std::size_t{rows_each_} * contexts)),
          count_(rows_each_ * contexts) {}

    // Of each context of a runtime with so many.
    static constexpr std::uint32_t rows_of(std::uint32_t contexts) {
        constexpr std::uint32_t alone = 4096;
        return contexts * alone <= regions_max ? alone : regions_max / contexts;
    }
    std::uint32_t rows_each() const { return rows_each_; }
    std::uint16_t home_of(std::uint32_t region) const {
        return static_cast<std::uint16_t>(region / rows_each_);
    }

    // Thread: the home's.
    void publish(const Exposure& exposure) {
        row(exposure.region)
            .publish(exposure.generation, exposure.key,
                     reinterpret_cast<std::uintptr_t>(exposure.memory.data()),
                     exposure.memory.size(), static_cast<std::uint32_t>(exposure.access));
    }
    std::uint64_t revoke(std::uint32_t region) { return row(region).revoke(); }
    // Thread: that of `context`. nullopt: that generation of the region is not exposed. `region`
    // may come from a peer.
    std::optional<Exposure> adopt(std::uint32_t region, std::uint32_t generation,
                                  std::uint16_t context) {
        if (region >= count_) return std::nullopt;
        ExposureRow& row = rows_[region];
        if (!row.adopt(generation, std::uint64_t{1} << context)) return std::nullopt;
        // Constant until this context has fenced the region.
        Exposure found;
        found.region = region;
        found.generation = generation;
        found.key = row.key.load(std::memory_order_relaxed);
        auto* const at = reinterpret_cast<std::byte*>(
            static_cast<std::uintptr_t>(row.address.load(std::memory_order_relaxed)));
        found.memory = {at, row.bytes.load(std::memory_order_relaxed)};
        found.access = static_cast<Access>(row.access.load(std::memory_order_relaxed));
        return found;
    }

    // Contexts with peers that read this runtime's tables themselves (sm): each fence asks them.
    // Thread: any.
    void add_readers_at(std::uint16_t context) {
        readers_.fetch_or(std::uint64_t{1} << context, std::memory_order_seq_cst);
    }
    std::uint64_t readers() const { return readers_.load(std::memory_order_seq_cst); }

  private:
    ExposureRow& row(std::uint32_t region) {
        WEFT_ASSERT(region < count_);
        return rows_[region];
    }

    const std::uint32_t rows_each_;
    const std::unique_ptr<ExposureRow[]> rows_;
    const std::uint32_t count_;
    alignas(128) std::atomic<std::uint64_t> readers_{0};
};

}  // namespace weft::na
