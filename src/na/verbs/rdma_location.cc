#include "na/verbs/rdma_location.h"

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "na/socket_name.h"
#include "na/verbs/rdma.h"
#include "na/verbs/sysfs.h"

namespace weft::na {

using namespace verbs;

namespace {

// The location of an identifier that rdma_cm bound to a device.
Result<RdmaLocation> place_of(const rdma_cm_id* id, const std::string& host) {
    if (!id->verbs) {
        return fail(Code::unavailable, "no RDMA device is on " + host + ": `weft info` lists them");
    }
    RdmaLocation location;
    location.device = ::ibv_get_device_name(id->verbs->device);
    location.port = id->port_num;
    location.gid = as_text(id->route.addr.addr.ibaddr.sgid);
    return location;
}

Result<SocketName> numeric(const std::string& host) {
    auto name = SocketName::from_numeric(host, 0);
    if (!name) return fail(Code::invalid_argument, host + " is no numeric address");
    return *name;
}

}  // namespace

Result<RdmaLocation> find_rdma_location(const std::string& host) {
    Result<SocketName> name = numeric(host);
    if (!name) return std::move(name).status();
    const Owned<rdma_event_channel> channel = open_event_channel();
    rdma_cm_id* made = nullptr;
    if (!channel || ::rdma_create_id(channel.get(), &made, nullptr, RDMA_PS_TCP) != 0) {
        return fail(Code::unavailable, "no connection manager for RDMA: " + describe(errno));
    }
    const Owned<rdma_cm_id> id(made);
    // rdma_cm does not change the address.
    if (::rdma_bind_addr(made, const_cast<sockaddr*>(name->get())) != 0) {
        return fail(Code::unavailable, host + " is no address of this machine: " + describe(errno));
    }
    return place_of(made, host);
}

Result<RdmaLocation> find_rdma_location_towards(const std::string& host) {
    Result<SocketName> name = numeric(host);
    if (!name) return std::move(name).status();
    rdma_cm_id* made = nullptr;
    // Without a channel each step blocks until it is done.
    if (::rdma_create_id(nullptr, &made, nullptr, RDMA_PS_TCP) != 0) {
        return fail(Code::unavailable, "no connection manager for RDMA: " + describe(errno));
    }
    const Owned<rdma_cm_id> id(made);
    const SocketName target = name->with_port(1);
    if (::rdma_resolve_addr(made, nullptr, const_cast<sockaddr*>(target.get()), 2000) != 0) {
        return fail(Code::unavailable,
                    "no RDMA device of this machine reaches " + host + ": " + describe(errno));
    }
    return place_of(made, host);
}

std::vector<RdmaCounter> read_rdma_counters(const RdmaLocation& location) {
    std::vector<RdmaCounter> counters;
    for (const char* kind : {"/counters", "/hw_counters"}) {
        const std::filesystem::path folder =
            class_folder(location.device) + "/ports/" + std::to_string(location.port) + kind;
        for (const std::string& name : names_in(folder)) {
            const std::string text = first_line(folder / name);
            if (name == "lifespan" || text.empty()) continue;
            counters.push_back({name, std::strtoull(text.c_str(), nullptr, 10)});
        }
    }
    return counters;
}

}  // namespace weft::na
