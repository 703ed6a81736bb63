// The limits of this process's cgroup, and the number of cpus that the process may use.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace weft::base {

struct CgroupLimits {
    std::optional<unsigned> cpus;               // Its quota, rounded up: 1 or more. nullopt: none.
    std::optional<std::uint64_t> memory_bytes;  // nullopt: none.
};

// nullopt: there is no such file.
using FileReader = std::function<std::optional<std::string>(const std::string& path)>;

// The smallest limits of the cgroup and its ancestors, as far as this process sees them: of version
// 2 (cpu.max, memory.max) and version 1 (cpu.cfs_quota_us, memory.limit_in_bytes). A malformed file
// limits nothing.
CgroupLimits read_cgroup_limits(const FileReader& read);
// Those of this process. Without a file descriptor left: none.
CgroupLimits read_cgroup_limits();

// The cpus that the calling thread may run on, at most the quota of the cgroup; 1 where the system
// refuses to report them. Reads files.
unsigned usable_cpus();

}  // namespace weft::base
