#include "base/assert.h"

#include <cstdio>
#include <cstdlib>

#include <weft/function.h>

#include "base/flight_recorder.h"

namespace weft::base {

void assertion_failed(const char* what, const char* file, int line) {
    std::fprintf(stderr, "weft: assertion failed: %s (%s:%d)\n", what, file, line);
    FlightRecorder::print_all();
    std::abort();
}

void abort_misused(const char* call, const char* why) {
    std::fprintf(stderr, "weft: %s: %s\n", call, why);
    std::abort();
}

}  // namespace weft::base

void weft::detail::refuse_empty(const char* call) {
    base::abort_misused(call,
                        "an empty function, which can't be called when its time comes; pass "
                        "one that does nothing, as [](auto&&...) {}");
}
