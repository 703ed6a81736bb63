#include "base/assert.h"

#include <cstdio>
#include <cstdlib>

#include "base/flight_recorder.h"

namespace weft::base {

void assertion_failed(const char* what, const char* file, int line) {
    std::fprintf(stderr, "weft: assertion failed: %s (%s:%d)\n", what, file, line);
    FlightRecorder::print_all();
    std::abort();
}

void misused(const char* sentence) {
    std::fprintf(stderr, "weft: %s\n", sentence);
    std::abort();
}

}  // namespace weft::base
