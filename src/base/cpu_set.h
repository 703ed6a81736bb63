// The cpus that a thread may run on. sched_getaffinity() fails if the set is smaller than the
// kernel's number of possible cpus, which may exceed the 1024 of a cpu_set_t. Linux: 8192 at most.
#pragma once

#include <sched.h>

#include <array>
#include <bit>
#include <optional>

#include "base/assert.h"

namespace weft::base {

class CpuSet {
  public:
    static constexpr unsigned cpus_max = 8192;

    // The cpus of the calling thread. nullopt: the system refuses to report them.
    static std::optional<CpuSet> of_this_thread() {
        CpuSet cpus;
        if (::sched_getaffinity(0, sizeof cpus.words_, cpus.raw()) != 0) return std::nullopt;
        return cpus;
    }
    // False: the calling thread can't run on these cpus and keeps its previous set.
    bool apply_to_this_thread() const {
        CpuSet copy = *this;
        return ::sched_setaffinity(0, sizeof copy.words_, copy.raw()) == 0;
    }

    // Requires: cpu < cpus_max.
    void add(unsigned cpu) {
        WEFT_ASSERT(cpu < cpus_max);
        words_[cpu / word_bits] |= 1ul << cpu % word_bits;
    }
    bool contains(unsigned cpu) const {
        return cpu < cpus_max && (words_[cpu / word_bits] >> cpu % word_bits & 1) != 0;
    }
    unsigned size() const {
        unsigned count = 0;
        for (const unsigned long word : words_) count += static_cast<unsigned>(std::popcount(word));
        return count;
    }
    friend bool operator==(const CpuSet&, const CpuSet&) = default;

  private:
    static constexpr unsigned word_bits = 8 * sizeof(unsigned long);
    cpu_set_t* raw() { return reinterpret_cast<cpu_set_t*>(words_.data()); }

    std::array<unsigned long, cpus_max / word_bits> words_{};
};

}  // namespace weft::base
