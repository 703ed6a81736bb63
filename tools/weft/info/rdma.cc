#include "info/rdma.h"

#ifdef WEFT_WITH_VERBS
#include "na/verbs/device_report.h"
#endif

namespace weft::tool {

#ifdef WEFT_WITH_VERBS

namespace {

// A port may have hundreds of addresses; all are in the JSON.
constexpr std::size_t gids_shown = 16;

Json to_json(const na::RdmaPort& port) {
    Json json = {{"number", port.number},         {"state", port.state},
                 {"link_layer", port.link_layer}, {"rate", port.rate},
                 {"mtu_active", port.mtu_active}, {"mtu_max", port.mtu_max}};
    json["gids"] = Json::array();
    for (const na::RdmaGid& gid : port.gids) {
        json["gids"].push_back(
            {{"index", gid.index},
             {"type", gid.type},
             {"address", gid.address},
             {"network", gid.network.empty() ? Json(nullptr) : Json(gid.network)}});
    }
    return json;
}

Json to_json(const na::RdmaDevice& device) {
    Json json = {{"name", device.name},
                 {"kind", device.kind},
                 {"firmware", device.firmware},
                 {"pci", device.pci.empty() ? Json(nullptr) : Json(device.pci)},
                 {"numa_node", device.numa_node < 0 ? Json(nullptr) : Json(device.numa_node)},
                 {"cpus", device.cpus.empty() ? Json(nullptr) : Json(device.cpus)}};
    json["ports"] = Json::array();
    for (const na::RdmaPort& port : device.ports) json["ports"].push_back(to_json(port));
    json["networks"] = Json::object();
    for (const na::RdmaNetwork& network : device.networks) {
        json["networks"][network.name] = network.addresses;
    }
    json["limits"] = Json::object();
    for (const na::RdmaLimit& limit : device.limits) {
        json["limits"][std::string(limit.name)] = limit.value;
    }
    json["mends"] = device.remedies;
    return json;
}

std::string to_text(const na::RdmaPort& port) {
    std::string text = "    port " + std::to_string(port.number) + ": " + port.state;
    if (!port.link_layer.empty()) text += ", " + port.link_layer;
    if (!port.rate.empty()) text += ", " + port.rate;
    if (port.mtu_max != 0) {
        text += ", MTU " + std::to_string(port.mtu_active) + " of " + std::to_string(port.mtu_max);
    }
    text += "\n";
    for (std::size_t i = 0; i < port.gids.size(); ++i) {
        if (i == gids_shown) {
            text += "      and " + std::to_string(port.gids.size() - i) + " more\n";
            break;
        }
        const na::RdmaGid& gid = port.gids[i];
        text += "      GID " + std::to_string(gid.index) + ": " + gid.type + ", " + gid.address;
        if (!gid.network.empty()) text += ", " + gid.network;
        text += "\n";
    }
    return text;
}

std::string to_text(const na::RdmaDevice& device) {
    std::string text = "  " + device.name + ": " + device.kind;
    if (!device.firmware.empty()) text += ", firmware " + device.firmware;
    if (!device.pci.empty()) text += ", " + device.pci;
    if (device.numa_node >= 0) text += ", NUMA node " + std::to_string(device.numa_node);
    if (!device.cpus.empty()) text += ", close to cpus " + device.cpus;
    text += "\n";
    for (const na::RdmaPort& port : device.ports) text += to_text(port);
    for (const na::RdmaNetwork& network : device.networks) {
        text += "    network " + network.name + ":";
        for (const std::string& address : network.addresses) text += " " + address;
        text += network.addresses.empty() ? " no address\n" : "\n";
    }
    std::string line;
    for (const na::RdmaLimit& limit : device.limits) {
        line += (line.empty() ? "" : ", ") + std::string(limit.name) + " " +
                std::to_string(limit.value);
    }
    if (!line.empty()) text += "    limits: " + line + "\n";
    for (const std::string& remedy : device.remedies) text += "    mend: " + remedy + "\n";
    return text;
}

}  // namespace

Json rdma_to_json() {
    Json json;
    json["devices"] = Json::array();
    for (const na::RdmaDevice& device : na::report_rdma_devices()) {
        json["devices"].push_back(to_json(device));
    }
    json["missing"] = json["devices"].empty() ? Json(na::why_no_rdma_device()) : Json(nullptr);
    return json;
}

std::string rdma_to_text() {
    std::string text;
    for (const na::RdmaDevice& device : na::report_rdma_devices()) text += to_text(device);
    return text.empty() ? "  none: " + na::why_no_rdma_device() + "\n" : text;
}

#else

Json rdma_to_json() { return nullptr; }
std::string rdma_to_text() { return "  this build of weft has no verbs (-DWEFT_VERBS=ON)\n"; }

#endif

}  // namespace weft::tool
