#include "base/thread_usage.h"

#include <sys/resource.h>

namespace weft::base {

static Duration time_of(const timeval& time) {
    return std::chrono::seconds(time.tv_sec) + std::chrono::microseconds(time.tv_usec);
}

ThreadUsage thread_usage() {
    rusage used{};
    (void)::getrusage(RUSAGE_THREAD, &used);
    return {time_of(used.ru_utime) + time_of(used.ru_stime), used.ru_nvcsw};
}

}  // namespace weft::base
