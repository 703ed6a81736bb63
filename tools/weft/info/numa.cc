#include "info/numa.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "base/text.h"
#include "cli/cpus.h"
#include "na/hello.h"

namespace weft::tool {

namespace {

// More than the longest list of cpus.
constexpr std::size_t file_bytes_max = std::size_t{64} << 10;
constexpr int nodes_max = 1024;  // Linux.
constexpr std::size_t devices_shown = 16;

// The first line; empty: there is no such file.
std::string read_line(const std::filesystem::path& path) {
    std::ifstream file(path);
    std::string line(file_bytes_max, '\0');
    file.read(line.data(), static_cast<std::streamsize>(line.size()));
    line.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
    return line.substr(0, line.find('\n'));
}

// Sorted; empty: there is no such folder.
std::vector<std::string> names_in(const std::string& folder) {
    std::vector<std::string> names;
    std::error_code error;
    std::filesystem::directory_iterator at(folder, error);
    for (; !error && at != std::filesystem::directory_iterator(); at.increment(error))
        names.push_back(at->path().filename().string());
    std::ranges::sort(names);
    return names;
}

// -1: it is no number from 0 on.
int number_in(std::string_view text) {
    int number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool is_whole = error == std::errc() && end == text.data() + text.size();
    return is_whole && number >= 0 ? number : -1;
}

std::vector<int> common(const std::vector<int>& some, const std::vector<int>& allowed) {
    std::vector<int> both;
    std::ranges::set_intersection(some, allowed, std::back_inserter(both));
    return both;
}

std::vector<NumaNode> read_nodes(const std::string& folder) {
    const std::vector<int> online = parse_cpu_list(read_line(folder + "/online"));
    std::vector<NumaNode> nodes;
    for (const std::string& name : names_in(folder)) {
        const int number = name.starts_with("node") ? number_in(name.substr(4)) : -1;
        if (number < 0 || number >= nodes_max) continue;
        if (!online.empty() && std::ranges::find(online, number) == online.end()) continue;
        NumaNode node;
        node.number = number;
        node.cpus = parse_cpu_list(read_line(std::filesystem::path(folder) / name / "cpulist"));
        std::ranges::sort(node.cpus);
        node.cpus.erase(std::unique(node.cpus.begin(), node.cpus.end()), node.cpus.end());
        nodes.push_back(std::move(node));
    }
    std::ranges::sort(nodes, {}, &NumaNode::number);
    return nodes;
}

void add_devices(const std::string& folder, std::vector<NumaNode>& nodes) {
    for (const std::string& name : names_in(folder)) {
        const int number =
            number_in(read_line(std::filesystem::path(folder) / name / "device/numa_node"));
        const auto node = std::ranges::find(nodes, number, &NumaNode::number);
        if (number >= 0 && node != nodes.end()) node->devices.push_back(name);
    }
}

std::string names_of(const std::vector<std::string>& devices) {
    std::string text;
    for (std::size_t i = 0; i < std::min(devices.size(), devices_shown); ++i)
        text += (i == 0 ? "" : ", ") + base::printable(devices[i]);
    if (devices.size() > devices_shown)
        text += " and " + std::to_string(devices.size() - devices_shown) + " more";
    return text;
}

// Whether contexts there are close to a network device.
bool is_near(const NumaNode& node) { return !node.devices.empty() && !node.allowed.empty(); }

// The cpus close to network devices first.
std::vector<int> by_nearness(const NumaMachine& machine) {
    std::vector<int> order;
    for (const NumaNode& node : machine.nodes) {
        if (is_near(node)) order.insert(order.end(), node.allowed.begin(), node.allowed.end());
    }
    for (const int cpu : machine.allowed) {
        if (std::ranges::find(order, cpu) == order.end()) order.push_back(cpu);
    }
    return order;
}

std::string numbers_text(std::size_t first, std::size_t last) {
    return first == last ? std::to_string(first)
                         : std::to_string(first) + "-" + std::to_string(last);
}

// Contexts that share a cpu, and those on cpus that this process can't use.
void check_cpus(const NumaMachine& machine, ContextPlan& plan) {
    std::map<int, std::size_t> first_on;
    std::set<int> named;
    for (std::size_t i = 0; i < plan.places.size(); ++i) {
        const int cpu = plan.places[i].cpu;
        const auto [other, is_new] = first_on.try_emplace(cpu, i);
        const bool is_usable =
            machine.allowed.empty() || std::ranges::binary_search(machine.allowed, cpu);
        if (!is_usable && named.insert(cpu).second) {
            plan.remedies.push_back("this process can't use cpu " + std::to_string(cpu) +
                                    " of WEFT_CPUS, so that no runtime starts: name some of " +
                                    cpu_list_text(machine.allowed));
        } else if (!is_new && named.insert(cpu).second) {
            plan.remedies.push_back("contexts " + std::to_string(other->second) + " and " +
                                    std::to_string(i) + " are both on cpu " + std::to_string(cpu) +
                                    ": name as many cpus in WEFT_CPUS as there are contexts");
        }
    }
}

void check_nearness(const NumaMachine& machine, ContextPlan& plan) {
    std::vector<std::string> devices;
    std::size_t near_cpus = 0, used_near = 0;
    std::set<int> near;
    for (const NumaNode& node : machine.nodes) {
        if (!is_near(node)) continue;
        near.insert(node.number);
        near_cpus += node.allowed.size();
        devices.insert(devices.end(), node.devices.begin(), node.devices.end());
    }
    for (const ContextPlan::Place& place : plan.places) used_near += near.contains(place.node);
    if (near.empty() || used_near >= std::min(near_cpus, plan.places.size())) return;
    plan.remedies.push_back("contexts are on other nodes than " + names_of(devices) +
                            ": WEFT_CPUS=" + cpu_list_text(plan.suggested) + " is closer");
}

}  // namespace

int NumaMachine::node_of(int cpu) const {
    for (const NumaNode& node : nodes) {
        if (std::ranges::binary_search(node.cpus, cpu)) return node.number;
    }
    return -1;
}

std::size_t NumaMachine::usable() const {
    const std::size_t count = std::max<std::size_t>(allowed.size(), 1);
    return quota ? std::min<std::size_t>(count, *quota) : count;
}

NumaMachine read_numa(const std::string& sysfs, std::vector<int> allowed,
                      std::optional<unsigned> quota) {
    NumaMachine machine;
    machine.quota = quota;
    std::ranges::sort(allowed);
    machine.allowed = std::move(allowed);
    const std::string folder = sysfs + "/devices/system/node";
    machine.nodes = read_nodes(folder);
    if (machine.nodes.empty()) {
        machine.missing = "the kernel names no NUMA node in " + folder;
        return machine;
    }
    add_devices(sysfs + "/class/net", machine.nodes);
    add_devices(sysfs + "/class/infiniband", machine.nodes);
    for (NumaNode& node : machine.nodes) node.allowed = common(node.cpus, machine.allowed);
    return machine;
}

ContextPlan plan_contexts(const NumaMachine& machine, unsigned contexts,
                          const std::vector<unsigned>& cpus) {
    const std::size_t usable = machine.usable();
    const std::size_t count =
        contexts != 0 ? contexts : std::min(usable, std::size_t{na::contexts_max});
    ContextPlan plan;
    plan.suggested = by_nearness(machine);
    plan.suggested.resize(std::min(plan.suggested.size(), count));
    for (std::size_t i = 0; i < count; ++i) {
        ContextPlan::Place place;
        if (!cpus.empty()) place.cpu = static_cast<int>(cpus[i % cpus.size()]);
        if (!cpus.empty()) place.node = machine.node_of(place.cpu);
        plan.places.push_back(place);
    }
    if (count > usable)
        plan.remedies.push_back(std::to_string(count) + " contexts take turns on " +
                                std::to_string(usable) +
                                " cpus: WEFT_CONTEXTS=cpus has one for each");
    if (!cpus.empty()) {
        check_cpus(machine, plan);
        check_nearness(machine, plan);
    } else if (machine.nodes.size() > 1 && !plan.suggested.empty()) {
        plan.remedies.push_back("contexts move between nodes, away from their memory: WEFT_CPUS=" +
                                cpu_list_text(plan.suggested));
    }
    return plan;
}

Json numa_to_json(const NumaMachine& machine, const ContextPlan& plan) {
    Json json;
    json["nodes"] = Json::array();
    for (const NumaNode& node : machine.nodes) {
        json["nodes"].push_back({{"node", node.number},
                                 {"cpus", cpu_list_text(node.cpus)},
                                 {"allowed", cpu_list_text(node.allowed)},
                                 {"devices", Json::array()}});
        for (const std::string& device : node.devices)
            json["nodes"].back()["devices"].push_back(base::printable(device));
    }
    json["missing"] = machine.missing.empty() ? Json(nullptr) : Json(machine.missing);
    json["contexts"] = Json::array();
    const auto number = [](int one) { return one < 0 ? Json(nullptr) : Json(one); };
    for (std::size_t i = 0; i < plan.places.size(); ++i) {
        json["contexts"].push_back({{"context", i},
                                    {"cpu", number(plan.places[i].cpu)},
                                    {"node", number(plan.places[i].node)}});
    }
    json["suggested_cpus"] = cpu_list_text(plan.suggested);
    json["mends"] = plan.remedies;
    return json;
}

std::string numa_to_text(const NumaMachine& machine, const ContextPlan& plan) {
    std::string text;
    for (const NumaNode& node : machine.nodes) {
        text += "  node " + std::to_string(node.number) + ": ";
        text += node.cpus.empty() ? "no cpu" : "cpus " + cpu_list_text(node.cpus);
        if (!node.cpus.empty() && node.allowed.empty()) text += ", none for this process";
        else if (node.allowed.size() != node.cpus.size())
            text += ", for this process " + cpu_list_text(node.allowed);
        if (!node.devices.empty()) text += "; " + names_of(node.devices);
        text += "\n";
    }
    if (!machine.missing.empty()) text += "  " + machine.missing + "\n";
    const std::vector<ContextPlan::Place>& places = plan.places;
    for (std::size_t first = 0; first < places.size();) {
        std::size_t last = first;
        const auto continues = [&](const ContextPlan::Place& next) {
            const ContextPlan::Place& before = places[last];
            const int step = before.cpu < 0 ? 0 : 1;
            return next.cpu == before.cpu + step && next.node == before.node;
        };
        while (last + 1 < places.size() && continues(places[last + 1])) ++last;
        text += (first == last ? "  context " : "  contexts ") + numbers_text(first, last) + ": ";
        if (places[first].cpu < 0) {
            text += "not bound (WEFT_CPUS), on any of cpus " +
                    (machine.allowed.empty() ? "unknown" : cpu_list_text(machine.allowed));
        } else {
            text += (first == last ? "cpu " : "cpus ") +
                    numbers_text(static_cast<std::size_t>(places[first].cpu),
                                 static_cast<std::size_t>(places[last].cpu));
            if (places[first].node >= 0) text += ", node " + std::to_string(places[first].node);
        }
        text += "\n";
        first = last + 1;
    }
    for (const std::string& remedy : plan.remedies) text += "    mend: " + remedy + "\n";
    return text;
}

}  // namespace weft::tool
