// A sequence of events as one number, for comparing two runs. Not for hash tables, and not
// collision resistant.
#pragma once

#include <cstdint>

namespace weft::base {

class TraceHash {
  public:
    void mix(std::uint64_t value) {
        value_ = (value_ ^ value) * 0x9e3779b97f4a7c15;  // 2^64 over the golden ratio.
        value_ ^= value_ >> 32;
    }
    std::uint64_t value() const { return value_; }

  private:
    std::uint64_t value_ = 0;
};

}  // namespace weft::base
