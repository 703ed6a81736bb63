// Resource usage of the calling thread so far.
#pragma once

#include <weft/time.h>

namespace weft::base {

struct ThreadUsage {
    Duration cpu_time{};
    long voluntary_switches = 0;  // Sleeps and waits, except for a processor.
};
ThreadUsage thread_usage();

}  // namespace weft::base
