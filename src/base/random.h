// The source of randomness: seeded in simulations, from the kernel in production.
#pragma once

#include <cstdint>
#include <string>

namespace weft::base {

class Random {
  public:
    virtual ~Random() = default;
    virtual std::uint64_t next() = 0;
};

// Something that happens in this share of cases, from 0 to 1. Draws nothing where chance decides
// nothing.
inline bool happens(Random& random, double share) {
    return share > 0 && static_cast<double>(random.next() >> 11) * 0x1p-53 < share;
}

// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
// Predictable: for simulations, tests and jitter, never for keys.
class SeededRandom final : public Random {
  public:
    explicit SeededRandom(std::uint64_t seed) : state_(seed) {}
    std::uint64_t next() override;

  private:
    std::uint64_t state_;
};

// getrandom(2), or /dev/urandom where that is refused, for region keys and incarnations. Ends the
// program with a sentence where neither is to be had.
class KernelRandom final : public Random {
  public:
    std::uint64_t next() override;
};

}  // namespace weft::base
