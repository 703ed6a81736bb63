#include "na/verbs/device_report.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "na/socket_name.h"
#include "na/verbs/device.h"
#include "na/verbs/rdma.h"
#include "na/verbs/sysfs.h"

namespace weft::na {

using namespace verbs;

namespace {

constexpr std::size_t gids_max = 1024;

const char* name_of(ibv_node_type type) {
    switch (type) {
        case IBV_NODE_CA: return "channel adapter";
        case IBV_NODE_SWITCH: return "switch";
        case IBV_NODE_ROUTER: return "router";
        case IBV_NODE_RNIC: return "RNIC (iWARP)";
        case IBV_NODE_USNIC:
        case IBV_NODE_USNIC_UDP: return "usNIC";
        default: return "of an unknown kind";
    }
}

const char* name_of(ibv_port_state state) {
    switch (state) {
        case IBV_PORT_DOWN: return "down";
        case IBV_PORT_INIT: return "initialising";
        case IBV_PORT_ARMED: return "armed";
        case IBV_PORT_ACTIVE: return "active";
        case IBV_PORT_ACTIVE_DEFER: return "active, its link is interrupted";
        default: return "in no known state";
    }
}

const char* link_layer_of(const ibv_port_attr& port) {
    // Devices that report no link layer are InfiniBand, which is older.
    return port.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand";
}

const char* type_of_gid(std::uint32_t type) {
    switch (type) {
        case IBV_GID_TYPE_IB: return "IB";
        case IBV_GID_TYPE_ROCE_V1: return "RoCE v1";
        case IBV_GID_TYPE_ROCE_V2: return "RoCE v2";
        default: return "unknown";
    }
}

std::uint32_t bytes_of(ibv_mtu mtu) { return mtu >= 1 && mtu <= 5 ? 128u << mtu : 0; }

std::vector<ibv_gid_entry> read_gids(ibv_context* context) {
    std::vector<ibv_gid_entry> gids(gids_max);
    const ssize_t count = ::ibv_query_gid_table(context, gids.data(), gids.size(), 0);
    gids.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    return gids;
}

RdmaPort read_port(const RdmaDevice& device, ibv_context* context, std::uint8_t number,
                   const std::vector<ibv_gid_entry>& gids) {
    RdmaPort port;
    port.number = number;
    ibv_port_attr attr{};
    if (const int error = ::ibv_query_port(context, number, &attr)) {
        port.state = "silent: " + describe(error);
        return port;
    }
    port.state = name_of(attr.state);
    port.link_layer = link_layer_of(attr);
    port.mtu_active = bytes_of(attr.active_mtu);
    port.mtu_max = bytes_of(attr.max_mtu);
    port.rate =
        first_line(class_folder(device.name) + "/ports/" + std::to_string(number) + "/rate");
    for (const ibv_gid_entry& gid : gids) {
        if (gid.port_num != number) continue;
        char network[IF_NAMESIZE] = "";
        if (gid.ndev_ifindex != 0) (void)::if_indextoname(gid.ndev_ifindex, network);
        port.gids.push_back({gid.gid_index, type_of_gid(gid.gid_type), as_text(gid.gid), network});
    }
    return port;
}

// The inline bytes that the device grants, which are known only by trying.
std::uint32_t try_inline(ibv_context* context) {
    const Owned<ibv_pd> domain(::ibv_alloc_pd(context));
    const Owned<ibv_cq> queue(::ibv_create_cq(context, 1, nullptr, nullptr, 0));
    if (!domain || !queue) return 0;
    for (std::uint32_t wanted = inline_bytes_wanted; wanted > 0; wanted /= 2) {
        ibv_qp_init_attr attr{};
        attr.send_cq = queue.get();
        attr.recv_cq = queue.get();
        attr.qp_type = IBV_QPT_RC;
        attr.cap = {.max_send_wr = 1,
                    .max_recv_wr = 1,
                    .max_send_sge = 1,
                    .max_recv_sge = 1,
                    .max_inline_data = wanted};
        if (const Owned<ibv_qp> qp(::ibv_create_qp(domain.get(), &attr)); qp) return wanted;
    }
    return 0;
}

std::vector<RdmaLimit> limits_of(const ibv_device_attr& attr, std::uint32_t inline_bytes) {
    const auto number = [](int value) { return static_cast<std::uint64_t>(std::max(value, 0)); };
    return {{"max_qp", number(attr.max_qp)},
            {"max_qp_wr", number(attr.max_qp_wr)},
            {"max_cq", number(attr.max_cq)},
            {"max_cqe", number(attr.max_cqe)},
            {"max_srq", number(attr.max_srq)},
            {"max_srq_wr", number(attr.max_srq_wr)},
            {"max_mr", number(attr.max_mr)},
            {"max_mr_size", attr.max_mr_size},
            {"max_pd", number(attr.max_pd)},
            {"max_qp_rd_atom", number(attr.max_qp_rd_atom)},
            {"max_qp_init_rd_atom", number(attr.max_qp_init_rd_atom)},
            {"inline_bytes", inline_bytes}};
}

// The network devices of its GIDs, and those that the kernel lists for it.
std::vector<RdmaNetwork> networks_of(const RdmaDevice& device) {
    std::vector<std::string> names = names_in(class_folder(device.name) + "/device/net");
    if (const std::string parent = first_line(class_folder(device.name) + "/parent");
        !parent.empty()) {
        names.push_back(parent);
    }
    for (const RdmaPort& port : device.ports) {
        for (const RdmaGid& gid : port.gids) {
            if (!gid.network.empty()) names.push_back(gid.network);
        }
    }
    std::ranges::sort(names);
    names.erase(std::unique(names.begin(), names.end()), names.end());
    std::vector<RdmaNetwork> networks;
    networks.reserve(names.size());
    for (std::string& name : names) networks.push_back({std::move(name), {}});

    ifaddrs* all = nullptr;
    if (::getifaddrs(&all) != 0) return networks;
    for (const ifaddrs* one = all; one; one = one->ifa_next) {
        if (!one->ifa_addr) continue;
        const bool v6 = one->ifa_addr->sa_family == AF_INET6;
        if (!v6 && one->ifa_addr->sa_family != AF_INET) continue;
        const auto name =
            SocketName::from_kernel(one->ifa_addr, v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
        for (RdmaNetwork& network : networks) {
            if (name && network.name == one->ifa_name) network.addresses.push_back(name->host());
        }
    }
    ::freeifaddrs(all);
    return networks;
}

// Adds a remedy for each property of a port that costs speed or keeps it from working.
void check_port(const RdmaDevice& device, const RdmaPort& port,
                std::vector<std::string>& remedies) {
    const std::string port_name = "port " + std::to_string(port.number);
    const bool ethernet = port.link_layer == "Ethernet";
    if (port.state != "active") {
        remedies.push_back(port_name + " is " + port.state +
                           (ethernet ? ": cable, switch, `ip link set NAME up`"
                                     : ": cable, switch, and a subnet manager (opensm) that runs "
                                       "somewhere on its network"));
        return;
    }
    // 4096 bytes of payload and at most 96 of headers (the kernel's iboe_get_mtu()).
    if (ethernet && port.mtu_active < port.mtu_max) {
        remedies.push_back(port_name + " sends " + std::to_string(port.mtu_active) +
                           " bytes a packet, " + std::to_string(port.mtu_max) +
                           " are possible: `ip link set NAME mtu 4200` or more, on both hosts and "
                           "the switches between them");
    }
    const auto is_v2 = [](const RdmaGid& gid) { return gid.type == "RoCE v2"; };
    const bool iwarp = device.kind.starts_with("RNIC");
    if (ethernet && !iwarp && std::ranges::none_of(port.gids, is_v2)) {
        remedies.push_back(
            port_name +
            " has no RoCE v2 address: give its network device an IP address; a device "
            "that only has RoCE v1 is reached on one Ethernet segment");
    }
}

void check_device(RdmaDevice& device) {
    for (const RdmaPort& port : device.ports) check_port(device, port, device.remedies);
    const auto has_address = [](const RdmaNetwork& network) { return !network.addresses.empty(); };
    if (std::ranges::none_of(device.networks, has_address)) {
        device.remedies.emplace_back(
            "no network device of it has an IP address, which connections are made by: `ip address "
            "add ADDRESS/24 dev NAME`; InfiniBand needs IPoIB (module ib_ipoib) for that");
    }
    if (::access("/dev/infiniband/rdma_cm", R_OK | W_OK) != 0) {
        device.remedies.push_back("/dev/infiniband/rdma_cm: " + describe(errno) +
                                  ": `modprobe rdma_ucm`, or give it to the container "
                                  "(`--device=/dev/infiniband/rdma_cm`)");
    }
}

RdmaDevice report_one(ibv_device* device) {
    RdmaDevice report;
    report.name = ::ibv_get_device_name(device);
    report.kind = name_of(device->node_type);
    const std::string bus = class_folder(report.name) + "/device";
    if (const std::string speed = first_line(bus + "/current_link_speed"); !speed.empty()) {
        report.pci = speed + " x" + first_line(bus + "/current_link_width");
    }
    report.cpus = first_line(bus + "/local_cpulist");
    if (const std::string node = first_line(bus + "/numa_node"); !node.empty()) {
        report.numa_node = static_cast<int>(std::strtol(node.c_str(), nullptr, 10));
    }
    const Owned<ibv_context> context = open_context(device);
    if (!context) {
        report.remedies.push_back(std::string("can't be opened: ") + describe(errno) +
                                  ": /dev/infiniband/" + device->dev_name +
                                  " must be there and open to this user (rdma-core's udev rules do "
                                  "that; a container needs `--device=/dev/infiniband`)");
        return report;
    }
    ibv_device_attr attr{};
    if (const int error = ::ibv_query_device(context.get(), &attr)) {
        report.remedies.push_back("does not answer: " + describe(error));
        return report;
    }
    report.firmware = attr.fw_ver;
    report.limits = limits_of(attr, try_inline(context.get()));
    const std::vector<ibv_gid_entry> gids = read_gids(context.get());
    for (std::uint8_t port = 1; port != 0 && port <= attr.phys_port_cnt; ++port) {
        report.ports.push_back(read_port(report, context.get(), port, gids));
    }
    report.networks = networks_of(report);
    check_device(report);
    return report;
}

}  // namespace

std::vector<RdmaDevice> report_rdma_devices() {
    int count = 0;
    ibv_device** devices = ::ibv_get_device_list(&count);
    std::vector<RdmaDevice> reports;
    reports.reserve(static_cast<std::size_t>(std::max(count, 0)));
    for (int i = 0; i < count; ++i) reports.push_back(report_one(devices[i]));
    if (devices) ::ibv_free_device_list(devices);
    return reports;
}

std::string why_no_rdma_device() {
    const std::vector<std::string> known = names_in("/sys/class/infiniband");
    if (known.empty()) {
        return "the kernel has no RDMA device: a network card needs its driver (`lspci -k`, "
               "mlx5_ib, "
               "irdma, "
               "bnxt_re, ...); without one, `modprobe rdma_rxe` and `rdma link add rxe0 type "
               "rxe "
               "netdev NAME` make a device in software";
    }
    std::string names;
    for (const std::string& name : known) names += (names.empty() ? "" : ", ") + name;
    std::error_code none;
    if (!std::filesystem::exists("/dev/infiniband", none)) {
        return "the kernel has " + names +
               ", but there is no /dev/infiniband: `modprobe ib_uverbs rdma_ucm`; a container must "
               "be given it (`--device=/dev/infiniband`)";
    }
    return "the kernel has " + names +
           ", for which rdma-core has no driver here: install ibverbs-providers, or the vendor's";
}

}  // namespace weft::na
