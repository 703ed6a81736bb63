// The cpus that a measurement may use, and binding a thread to one.
#pragma once

#include <string>
#include <vector>

namespace weft::tool {

// Cpus this process may run on, in order; empty when the kernel does not report them.
std::vector<int> allowed_cpus();

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
