#include "base/histogram.h"

#include "base/duration_text.h"

namespace weft::base {

static std::string ns_text(double ns) {
    return duration_text(Duration(static_cast<Duration::rep>(ns)));
}

std::string text_of(const Latencies& latencies) {
    if (latencies.count() == 0) return "n = 0";
    return "n = " + std::to_string(latencies.count()) + ", p50 " +
           ns_text(latencies.percentile(0.5)) + ", p99 " + ns_text(latencies.percentile(0.99)) +
           ", at most " + ns_text(static_cast<double>(latencies.largest()));
}

}  // namespace weft::base
