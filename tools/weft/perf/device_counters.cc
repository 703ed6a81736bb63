#include "perf/device_counters.h"

#include <sstream>

#include "api/runtime_impl.h"
#include "perf/service.h"

#ifdef WEFT_WITH_VERBS
#include "na/verbs/verbs.h"
#endif

namespace weft::tool {

DeviceCounts read_device_counters([[maybe_unused]] Runtime& runtime) {
    DeviceCounts counts;
#ifdef WEFT_WITH_VERBS
    for (const auto& slot : impl_of(runtime).current().context.endpoints()) {
        const na::verbs::DeviceCounters* device_counters = na::device_counters_of(*slot->endpoint);
        if (!device_counters) continue;
        for (const auto& row : na::verbs::DeviceCounters::counters()) {
            counts.push_back({std::string(row.name), device_counters->*row.count});
        }
        const na::verbs::PcieCost cost = na::verbs::pcie_cost(*device_counters);
        counts.push_back({"PCIe writes by the processor", cost.processor_writes});
        counts.push_back({"PCIe reads by the card", cost.device_reads});
        counts.push_back({"PCIe writes by the card", cost.device_writes});
        break;
    }
#endif
    return counts;
}

std::string encode(const DeviceCounts& counts) {
    std::string text;
    for (const DeviceCount& row : counts) text += std::to_string(row.count) + " " + row.name + "\n";
    return text;
}

Result<DeviceCounts> DeviceCounterMeter::query_server() {
    Result<std::string> reply = client_.call(perf_device_counters, {});
    if (!reply) return std::move(reply).status();
    std::istringstream lines(*reply);
    DeviceCounts counts;
    DeviceCount row;
    while (lines >> row.count && lines.get() == ' ' && std::getline(lines, row.name)) {
        counts.push_back(row);
    }
    if (counts.empty()) return fail(Code::failed_precondition, "the server has no RDMA device");
    return counts;
}

// Both sides read their counters after the query, which therefore is not counted.
Status DeviceCounterMeter::begin() {
    Result<DeviceCounts> there = query_server();
    if (!there) return std::move(there).status();
    server_before_ = *std::move(there);
    client_before_ = read_device_counters(client_.runtime());
    if (client_before_.empty())
        return fail(Code::failed_precondition, "--ledger is for verbs only");
    return {};
}

Result<std::vector<CounterRow>> DeviceCounterMeter::end(std::uint64_t operations) {
    const DeviceCounts here = read_device_counters(client_.runtime());
    Result<DeviceCounts> there = query_server();
    if (!there) return std::move(there).status();
    if (here.size() != client_before_.size() || there->size() != here.size() ||
        server_before_.size() != here.size()) {
        return fail(Code::failed_precondition,
                    "the server counts other things than this program: use one version of weft");
    }
    std::vector<CounterRow> rows;
    const auto each = [&](std::uint64_t after, std::uint64_t before) {
        return static_cast<double>(after - before) / static_cast<double>(operations);
    };
    for (std::size_t i = 0; i < here.size(); ++i) {
        rows.push_back({here[i].name, each(here[i].count, client_before_[i].count),
                        each((*there)[i].count, server_before_[i].count)});
    }
    return rows;
}

}  // namespace weft::tool
