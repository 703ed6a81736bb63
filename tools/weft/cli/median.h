// The median of measured figures.
#pragma once

#include <algorithm>
#include <vector>

namespace weft::tool {

// The upper median of an even number; 0 of none.
inline double median_of(std::vector<double> values) {
    if (values.empty()) return 0;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

}  // namespace weft::tool
