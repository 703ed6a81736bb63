// Latencies counted in buckets whose width grows with the value (log-linear, after HdrHistogram by
// Gil Tene): recording is a shift and an increment, and a percentile is off by less than 0.4 %.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

namespace weft::tool {

class Histogram {
  public:
    void record(std::uint64_t value) {
        ++counts_[index_of(value)];
        ++count_;
        sum_ += value;
    }

    std::uint64_t count() const { return count_; }
    // Exact. 0 when empty.
    double mean() const {
        return count_ == 0 ? 0 : static_cast<double>(sum_) / static_cast<double>(count_);
    }

    // The smallest value that `share` (0..1) of the recorded ones do not exceed; 0 when empty.
    double percentile(double share) const {
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

    void clear() {
        std::fill(counts_.begin(), counts_.end(), 0);
        count_ = 0;
        sum_ = 0;
    }

  private:
    // 128 buckets per power of two; values below 256 have a bucket each.
    static constexpr unsigned bits = 7;
    static constexpr std::size_t octaves = 64 - bits;

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

    std::vector<std::uint64_t> counts_ = std::vector<std::uint64_t>((octaves + 1) << bits);
    std::uint64_t count_ = 0;
    std::uint64_t sum_ = 0;
};

}  // namespace weft::tool
