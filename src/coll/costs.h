// What it costs to ask members, as answers tell: from which the tree of the next collective is
// made. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <weft/time.h>

#include "coll/tree.h"

namespace weft::coll {

class Costs {
  public:
    // Some members with nobody below them were asked one after the other, with bodies of that many
    // bytes; the first answer came after `first`, the last after `last`. What lies between two is
    // what one costs whoever asks; the first is the way there and back, which each level of a tree
    // takes once more. Handlers that take long, or
    // not the same time, look like a long way, or like dear messages: then wide trees, or deep
    // ones, cost little more. Requires: members >= 2.
    void note(std::size_t bytes, std::uint32_t members, Duration first, Duration last);

    // For bodies of that many bytes to so many ranks: a flat one for a few, which often share their
    // cpus, so that another level saves little. Until something is known: as if a message is sent
    // on five sends later, or, of large ones, at once.
    static constexpr std::uint32_t few = 8;
    Tree tree(std::uint32_t ranks, std::size_t bytes) const;

  private:
    // By the size's magnitude: to 64 bytes, 512, 4 KiB, 32 KiB, 256 KiB, 2 MiB, 16 MiB, more.
    static constexpr std::size_t classes = 8;
    static constexpr std::size_t large_class = 5;
    // Of each new sample; the old ones fade.
    static constexpr double weight = 1.0 / 8;
    struct Cost {
        double busy_ns = 0;
        double trip_ns = 0;
        std::uint32_t samples = 0;
    };
    static std::size_t class_of(std::size_t bytes);

    std::array<Cost, classes> costs_{};
};

}  // namespace weft::coll
