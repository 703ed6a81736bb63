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

// True in this share of cases, from 0 to 1. A share of 0 draws no number.
inline bool bernoulli(Random& random, double share) {
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

// getrandom(2), or /dev/urandom where that is refused, for region keys and incarnations. Aborts
// with a message where both are refused.
class KernelRandom final : public Random {
  public:
    std::uint64_t next() override;
};

}  // namespace weft::base
