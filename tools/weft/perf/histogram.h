#pragma once

#include "base/histogram.h"

namespace weft::tool {

// Of ticks; the error of percentiles is below 0.4 %.
using Histogram = base::Histogram<7, 64, std::uint64_t>;

}  // namespace weft::tool
