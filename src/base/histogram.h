// Counts values in buckets that widen with the value (log-linear, after HdrHistogram by Gil Tene):
// recording is a shift and an increment, and a percentile is off by less than 1 in 2^(bits + 1).
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>

#include "base/assert.h"

namespace weft::base {

// 2^bits buckets per power of two; values below 2^(bits + 1) have a bucket each. Values beyond
// 2^value_bits count as the largest. Size: 2^bits * (value_bits - bits + 1) counts.
template <unsigned bits, unsigned value_bits, class Count>
class Histogram {
  public:
    void record(std::uint64_t value) {
        value = std::min(value, value_max);
        WEFT_DCHECK(index_of(value) < counts_.size());
        ++counts_[index_of(value)];
        ++count_;
        sum_ += value;
        largest_ = std::max(largest_, value);
    }

    std::uint64_t count() const { return count_; }
    std::uint64_t largest() const { return largest_; }
    // Exact. 0 when empty.
    double mean() const {
        return count_ == 0 ? 0 : static_cast<double>(sum_) / static_cast<double>(count_);
    }
    // The smallest value that `share` (0..1) of the recorded values do not exceed; 0 when empty.
    double percentile(double share) const {
        WEFT_DCHECK(share >= 0 && share <= 1);
        if (count_ == 0) return 0;
        const auto wanted =
            static_cast<std::uint64_t>(std::llround(share * static_cast<double>(count_)));
        const std::uint64_t rank = std::clamp<std::uint64_t>(wanted, 1, count_);
        std::uint64_t seen = 0;
        for (std::size_t i = 0; i < counts_.size(); ++i) {
            seen += counts_[i];
            if (seen >= rank) return middle_of(i);
        }
        return 0;
    }
    void clear() { *this = {}; }

  private:
    static constexpr std::uint64_t value_max = ~std::uint64_t{0} >> (64 - value_bits);

    static std::size_t index_of(std::uint64_t value) {
        const auto width = static_cast<unsigned>(std::bit_width(value | 1));
        const unsigned shift = width > bits + 1 ? width - (bits + 1) : 0;
        return (static_cast<std::size_t>(shift) << bits) + static_cast<std::size_t>(value >> shift);
    }
    static double middle_of(std::size_t index) {
        if (index < (std::size_t{2} << bits)) return static_cast<double>(index);
        const std::size_t shift = (index >> bits) - 1;
        const std::uint64_t low = std::uint64_t{index - (shift << bits)} << shift;
        const double width = static_cast<double>(std::uint64_t{1} << shift);
        return static_cast<double>(low) + (width - 1) / 2;
    }

    std::array<Count, std::size_t{value_bits - bits + 1} << bits> counts_{};
    std::uint64_t count_ = 0;
    std::uint64_t sum_ = 0;
    std::uint64_t largest_ = 0;
};

// Times in nanoseconds up to 18 minutes, off by at most 6 %. Size: 1.2 KiB.
using Latencies = Histogram<3, 40, std::uint32_t>;

// "n = 12, p50 1.5 us, p99 20 us, at most 21 us".
std::string text_of(const Latencies& latencies);

}  // namespace weft::base
