// The cpus that a thread may run on, as many as any kernel has: one where more than the 1024 of a
// cpu_set_t are possible refuses a smaller set.
#pragma once

#include <sched.h>

#include <array>
#include <optional>

namespace weft::base {

class CpuSet {
  public:
    static constexpr unsigned most = 8192;

    // Of the calling thread. nullopt: the system does not say.
    static std::optional<CpuSet> here() {
        CpuSet cpus;
        if (::sched_getaffinity(0, sizeof cpus.words_, cpus.raw()) != 0) return std::nullopt;
        return cpus;
    }
    // False: the calling thread can't run there, and runs where it did.
    bool run_here() const {
        CpuSet copy = *this;
        return ::sched_setaffinity(0, sizeof copy.words_, copy.raw()) == 0;
    }

    // Requires: less than `most`.
    void add(unsigned cpu) { words_[cpu / word_bits] |= 1ul << cpu % word_bits; }
    bool contains(unsigned cpu) const {
        return cpu < most && (words_[cpu / word_bits] >> cpu % word_bits & 1) != 0;
    }
    friend bool operator==(const CpuSet&, const CpuSet&) = default;

  private:
    static constexpr unsigned word_bits = 8 * sizeof(unsigned long);
    cpu_set_t* raw() { return reinterpret_cast<cpu_set_t*>(words_.data()); }

    std::array<unsigned long, most / word_bits> words_{};
};

}  // namespace weft::base
