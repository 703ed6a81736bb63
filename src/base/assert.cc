#include "base/assert.h"

#include <cstdlib>
#include <string>

#include <weft/function.h>

#include "base/flight_recorder.h"
#include "base/standard_error.h"

namespace weft::base {

void assertion_failed(const char* what, const char* file, int line) {
    write_fatal_message(
        {"weft: assertion failed: ", what, " (", file, ":", std::to_string(line), ")\n"});
    FlightRecorder::print_all();
    std::abort();
}

void abort_misused(const char* call, const char* why) {
    write_fatal_message({"weft: ", call, ": ", why, "\n"});
    std::abort();
}

}  // namespace weft::base

void weft::detail::refuse_empty(const char* call) {
    base::abort_misused(call,
                        "an empty function, which can't be called later; pass "
                        "one that does nothing, as [](auto&&...) {}");
}
