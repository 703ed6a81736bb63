// What the calling thread has used so far.
#pragma once

#include <weft/time.h>

namespace weft::base {

struct ThreadUse {
    Duration computed{};
    long waits = 0;  // It slept so often, or waited for something; not: for a processor.
};
ThreadUse thread_use();

}  // namespace weft::base
