// The cpus that a measurement may use, and binding a thread to one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft::tool {

// Cpus this process may run on, in order; empty when the kernel does not report them.
std::vector<int> allowed_cpus();

// A list as the kernel writes it, "0-3,8", of cpus or NUMA nodes; empty when it is malformed, or
// has more numbers than a machine has cpus.
std::vector<int> parse_cpu_list(std::string_view text);
// The same list of ascending numbers as text.
std::string cpu_list_text(const std::vector<int>& numbers);

// Binds the calling thread, and threads and processes that it starts. False: nothing changed.
bool bind_to_cpus(const std::vector<int>& cpus);
inline bool bind_to_cpu(int cpu) { return bind_to_cpus({cpu}); }

// The pair of a measurement: the client on the first allowed cpu, the server on the second.
struct CpuPair {
    int client = 0;
    int server = 0;
    bool two() const { return client != server; }
};
CpuPair pick_cpus();

// One sentence when a measurement on `cpus` is less meaningful than usual; empty otherwise.
std::string why_cpus_hurt(const CpuPair& cpus);

}  // namespace weft::tool
