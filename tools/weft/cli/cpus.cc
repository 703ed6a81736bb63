#include "cli/cpus.h"

#include <sched.h>

namespace weft::tool {

std::vector<int> allowed_cpus() {
    std::vector<int> cpus;
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (CPU_ISSET(static_cast<unsigned>(cpu), &set)) cpus.push_back(cpu);
    }
    return cpus;
}

bool bind_to_cpu(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<unsigned>(cpu), &set);
    return sched_setaffinity(0, sizeof set, &set) == 0;
}

CpuPair pick_cpus() {
    const std::vector<int> cpus = allowed_cpus();
    if (cpus.empty()) return {};
    return {cpus.front(), cpus.size() > 1 ? cpus[1] : cpus.front()};
}

std::string why_cpus_hurt(const CpuPair& cpus) {
    if (cpus.two()) return "";
    return "only cpu " + std::to_string(cpus.client) +
           " may be used: client and server take turns on it, which measures the scheduler";
}

}  // namespace weft::tool
