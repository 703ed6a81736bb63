#include "suite/results.h"

#include <algorithm>

namespace weft::tool {

std::optional<double> Series::median() const {
    if (rounds.empty()) return std::nullopt;
    std::vector<double> sorted = rounds;
    std::ranges::sort(sorted);
    return sorted[(sorted.size() - 1) / 2];
}

}  // namespace weft::tool
