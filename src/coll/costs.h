// The cost of requests to members, measured by their replies: the tree of the next collective is
// chosen by it. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <weft/time.h>

#include "coll/tree.h"

namespace weft::coll {

// Of a request to one member. `trip_ns` is 0 if unknown; peers may report any values.
struct Cost {
    std::uint32_t busy_ns = 0;  // The time that one request takes at its sender.
    std::uint32_t trip_ns = 0;  // The round trip.
    bool is_known() const { return trip_ns > 0; }
    friend bool operator==(const Cost&, const Cost&) = default;
};

// What one rank learns of costs in one collective. It measures requests to leaves, which it sends
// one after the other; with fewer than two leaves it uses the reports of replies. So costs reach
// the origin, however far it is above the leaves.
//
// The time between two replies is the cost of one request; the time from the first request to the
// first reply is the round trip. Slow or uneven handlers look like a long way, or like costly
// messages: trees that are wider or deeper for that cost little more.
class CostMeter {
  public:
    // A request to a leaf; `now`: when its sending begins.
    void on_sent(TimePoint now) {
        if (first_sent_ == never) first_sent_ = now;
    }
    void on_reply(TimePoint now);
    // The report of a reply, about ranks further below.
    void add_reported(const Cost& cost);
    Cost snapshot() const;

  private:
    TimePoint first_sent_ = never;
    TimePoint first_reply_{};
    TimePoint last_reply_{};
    std::uint64_t reported_busy_ns_ = 0;  // Sums of all reports.
    std::uint64_t reported_trip_ns_ = 0;
    std::uint32_t replies_ = 0;
    std::uint32_t reported_ = 0;
};

class Costs {
  public:
    // Of a collective with bodies of that many bytes.
    void note(std::size_t bytes, const Cost& cost);

    // For bodies of that many bytes to that many ranks. Few ranks get a flat tree: they often share
    // cpus, so that another level saves little. Until costs are known: as if the receiver forwards
    // a message five sends later, or, of large bodies, one send later.
    static constexpr std::uint32_t few = 8;
    Tree tree(std::uint32_t ranks, std::size_t bytes) const;

    bool has_samples(std::size_t bytes) const { return means_[class_of(bytes)].samples > 0; }

  private:
    // By the magnitude of the size: to 64 bytes, 512, 4 KiB, 32 KiB, 256 KiB, 2 MiB, 16 MiB, more.
    static constexpr std::size_t classes = 8;
    static constexpr std::size_t large_class = 5;
    // Of each new sample; older ones fade.
    static constexpr double weight = 1.0 / 8;
    // Plans of trees are kept, and nearly the same tree is as good. So the latency of a tree is a
    // step of a quarter of an octave, which stays until it is off by more than `steps_off`. Off by
    // a factor of at most 1.14, the last rank is reached within 1.08 of the least time.
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
