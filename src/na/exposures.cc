#include "na/exposures.h"

#include <algorithm>

#include "base/assert.h"

namespace weft::na {

Exposure Exposures::exposure_at(std::uint32_t row, std::uint32_t generation) const {
    const ExposureRow& from = rows_[row];
    Exposure exposure;
    exposure.region = row + RegionNumbers::bodies;
    exposure.generation = generation;
    exposure.key = from.key.load(std::memory_order_relaxed);
    auto* const at = reinterpret_cast<std::byte*>(
        static_cast<std::uintptr_t>(from.address.load(std::memory_order_relaxed)));
    exposure.memory = {at, from.bytes.load(std::memory_order_relaxed)};
    exposure.access = static_cast<Access>(from.access.load(std::memory_order_relaxed));
    return exposure;
}

static std::int64_t ns_of(TimePoint at) { return at.time_since_epoch().count(); }

void Exposures::publish(const Exposure& exposure, TimePoint ends) {
    WEFT_ASSERT(is_row(exposure.region));
    const std::uint32_t row = exposure.region - RegionNumbers::bodies;
    rows_[row].publish(
        exposure.generation, exposure.key, reinterpret_cast<std::uintptr_t>(exposure.memory.data()),
        exposure.memory.size(), static_cast<std::uint32_t>(exposure.access), ns_of(ends));
    // A reader that is added later finds the row.
    const base::MutexLock lock(mutex_);
    const std::uint32_t home = numbers_.home_of(exposure.region);
    for (const Reading& one : readers_) {
        if (one.context != home) one.reader->publish(exposure);
    }
}

std::uint64_t Exposures::revoke(std::uint32_t region, std::uint32_t generation) {
    WEFT_ASSERT(is_row(region));
    const std::uint32_t row = region - RegionNumbers::bodies;
    const std::uint64_t touched = rows_[row].revoke(generation);
    // A reader that is added later finds the row revoked. Another thread that has revoked the row
    // may not have come to the readers yet.
    const base::MutexLock lock(mutex_);
    for (const Reading& one : readers_) one.reader->revoke(region, generation);
    return (touched | reading()) & ~bit(numbers_.home_of(region));
}

bool Exposures::has_other_key(std::uint32_t region, std::uint32_t generation,
                              std::uint64_t key) const {
    return is_row(region) && rows_[region - RegionNumbers::bodies].has_other_key(generation, key);
}

std::optional<Exposure> Exposures::adopt(std::uint32_t region, std::uint32_t generation,
                                         std::uint64_t key, std::uint16_t context, TimePoint now) {
    const bool is_others = is_row(region) && numbers_.home_of(region) != context;
    if (!is_others) return std::nullopt;
    const std::uint32_t row = region - RegionNumbers::bodies;
    if (!rows_[row].adopt(generation, key, bit(context))) return std::nullopt;
    if (rows_[row].ends.load(std::memory_order_relaxed) <= ns_of(now)) return std::nullopt;
    return exposure_at(row, generation);  // Constant until this context has fenced the region.
}

bool Exposures::has_ended(std::uint32_t region, std::uint32_t generation, TimePoint now) const {
    return is_row(region) &&
           rows_[region - RegionNumbers::bodies].has_ended(generation, ns_of(now));
}

void Exposures::add_reader(std::uint16_t context, Reader& reader) {
    const base::MutexLock lock(mutex_);
    reading_.fetch_or(bit(context), std::memory_order_seq_cst);
    readers_.push_back({&reader, context});
    for (std::uint32_t row = 0; row < count_; ++row) {
        const std::uint32_t region = row + RegionNumbers::bodies;
        const std::uint64_t state = rows_[row].state.load(std::memory_order_acquire);
        const auto generation = static_cast<std::uint32_t>(state >> 1);
        const bool is_live = (state & 1) != 0;
        if (numbers_.home_of(region) == context) {
            // It is there already, and another thread may have revoked it meanwhile.
            if (!is_live && state != 0) reader.revoke(region, generation);
        } else if (is_live) {
            // The end of a lease revokes it at the readers.
            const std::uint64_t key = rows_[row].key.load(std::memory_order_relaxed);
            if (rows_[row].adopt(generation, key, bit(context)))
                reader.publish(exposure_at(row, generation));
        }
    }
}

void Exposures::remove_reader(const Reader& reader) {
    const base::MutexLock lock(mutex_);
    std::erase_if(readers_, [&](const Reading& one) { return one.reader == &reader; });
}

}  // namespace weft::na
