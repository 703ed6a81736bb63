// What it costs to ask members, as answers tell: from which the tree of the next collective is
// made. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <weft/time.h>

#include "coll/tree.h"

namespace weft::coll {

// Of asking one member. Where nothing is known `trip_ns` is 0; peers may say anything.
struct Cost {
    std::uint32_t busy_ns = 0;  // What one question costs whoever asks.
    std::uint32_t trip_ns = 0;  // There and back.
    bool is_known() const { return trip_ns > 0; }
    friend bool operator==(const Cost&, const Cost&) = default;
};

// What one rank learns of costs in one collective: by itself, of members with nobody below them
// that it asks one after the other; or, where there are not two of those, from what answers say. So
// it comes up to whoever began, however far above the last ranks he is.
//
// What lies between two answers is what one question costs; from the first question to the first
// answer is the way there and back. Handlers that take long, or not the same time, look like a long
// way, or like dear messages: then wide trees, or deep ones, cost little more.
class Measured {
  public:
    // One with nobody below it; `now`: when the question begins to be sent.
    void asked(TimePoint now) {
        if (asked_ == never) asked_ = now;
    }
    void answered(TimePoint now);
    // What an answer says, of those further below.
    void hear(const Cost& cost);
    Cost told() const;

  private:
    TimePoint asked_ = never;  // The first one.
    TimePoint first_{};
    TimePoint last_{};
    std::uint64_t busy_ns_heard_ = 0;  // The sums of all.
    std::uint64_t trip_ns_heard_ = 0;
    std::uint32_t answers_ = 0;
    std::uint32_t heard_ = 0;
};

class Costs {
  public:
    // Of a collective with bodies of that many bytes.
    void note(std::size_t bytes, const Cost& cost);

    // For bodies of that many bytes to so many ranks: a flat one for a few, which often share their
    // cpus, so that another level saves little. Until something is known: as if a message is sent
    // on five sends later, or, of large ones, at once.
    static constexpr std::uint32_t few = 8;
    Tree tree(std::uint32_t ranks, std::size_t bytes) const;

    bool knows(std::size_t bytes) const { return means_[class_of(bytes)].samples > 0; }

  private:
    // By the size's magnitude: to 64 bytes, 512, 4 KiB, 32 KiB, 256 KiB, 2 MiB, 16 MiB, more.
    static constexpr std::size_t classes = 8;
    static constexpr std::size_t large_class = 5;
    // Of each new sample; the old ones fade.
    static constexpr double weight = 1.0 / 8;
    // Plans of trees are kept, and nearly the same one is as good: the latency of one is a step of
    // a quarter of an octave, and stays until it is off by more than this many. At most 1.14 of
    // what it should be, the last rank is told within 1.08 of the least time.
    static constexpr double steps_per_octave = 4;
    static constexpr double steps_off = 0.75;
    struct Mean {
        double busy_ns = 0;
        double trip_ns = 0;
        std::uint32_t samples = 0;
        int step = 0;
    };
    static std::size_t class_of(std::size_t bytes);

    std::array<Mean, classes> means_{};
};

}  // namespace weft::coll
