// The NUMA nodes of this machine, the network devices at each, and the cpus that the contexts of a
// runtime would get.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/invocation.h"

namespace weft::tool {

struct NumaNode {
    int number = 0;
    std::vector<int> cpus;             // Online.
    std::vector<int> allowed;          // Of these, the ones that this process may run on.
    std::vector<std::string> devices;  // Of networks and RDMA.
};
struct NumaMachine {
    std::vector<NumaNode> nodes;  // By their numbers.
    std::vector<int> allowed;     // Empty: the kernel does not report them.
    std::string missing;          // Why the nodes are unknown; empty: they are known.
    // Of the cgroup, in cpus; nullopt: none.
    std::optional<unsigned> quota{};

    // -1: unknown.
    int node_of(int cpu) const;
    // How many cpus the process may use: 1 or more.
    std::size_t usable() const;
};
// `sysfs`: /sys, or a folder like it. Malformed and missing files count as empty ones.
NumaMachine read_numa(const std::string& sysfs, std::vector<int> allowed,
                      std::optional<unsigned> quota = {});

struct ContextPlan {
    struct Place {
        int cpu = -1;   // -1: not bound.
        int node = -1;  // -1: unknown.
    };
    std::vector<Place> places;   // Of the contexts, in their order.
    std::vector<int> suggested;  // For WEFT_CPUS: as many as contexts, close to network devices.
    std::vector<std::string> remedies;
};
// As a runtime does with RuntimeOptions::contexts (0: one for each usable cpu) and cpus.
ContextPlan plan_contexts(const NumaMachine& machine, unsigned contexts,
                          const std::vector<unsigned>& cpus);

Json numa_to_json(const NumaMachine& machine, const ContextPlan& plan);
// Lines that end in '\n'.
std::string numa_to_text(const NumaMachine& machine, const ContextPlan& plan);

}  // namespace weft::tool
