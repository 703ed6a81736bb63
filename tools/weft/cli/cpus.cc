#include "cli/cpus.h"

#include "base/cpu_set.h"

namespace weft::tool {

std::vector<int> allowed_cpus() {
    std::vector<int> cpus;
    const std::optional<base::CpuSet> allowed = base::CpuSet::of_this_thread();
    if (!allowed) return cpus;
    for (unsigned cpu = 0; cpu < base::CpuSet::cpus_max; ++cpu) {
        if (allowed->contains(cpu)) cpus.push_back(static_cast<int>(cpu));
    }
    return cpus;
}

bool bind_to_cpus(const std::vector<int>& cpus) {
    base::CpuSet set;
    for (const int cpu : cpus) {
        if (cpu < 0 || static_cast<unsigned>(cpu) >= base::CpuSet::cpus_max) return false;
        set.add(static_cast<unsigned>(cpu));
    }
    return set.apply_to_this_thread();
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
