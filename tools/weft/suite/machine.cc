#include "suite/machine.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "info/limits.h"
#include "info/rdma.h"

namespace weft::tool {

namespace {

// The value of a line "name : value"; empty: there is none.
std::string value_in(const std::string& path, std::string_view name) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        if (!line.starts_with(name)) continue;
        const std::size_t at = line.find(':');
        const std::size_t begin = line.find_first_not_of(" \t", at + 1);
        return at == std::string::npos || begin == std::string::npos ? "" : line.substr(begin);
    }
    return "";
}

// The library has no function for it; the name of its file ends in it: libibverbs.so.1.14.44.0.
std::string rdma_core_version() {
    constexpr std::string_view name = "/libibverbs.so.1.";
    std::ifstream file("/proc/self/maps");
    for (std::string line; std::getline(file, line);) {
        const std::size_t at = line.find(name);
        if (at == std::string::npos) continue;
        const std::string version = line.substr(at + name.size());
        const std::size_t dot = version.find('.');
        return dot == std::string::npos ? version : version.substr(dot + 1);
    }
    return "";
}

CpuPair cpus_near(const std::string& list) {
    std::vector<int> near = parse_cpu_list(list);
    const std::vector<int> allowed = allowed_cpus();
    std::erase_if(near, [&](int cpu) { return !std::ranges::binary_search(allowed, cpu); });
    return near.size() < 2 ? pick_cpus() : CpuPair{near[0], near[1]};
}

Json own_device(const na::RdmaLocation& location, const Json& devices) {
    for (const Json& device : devices) {
        if (device["name"] == location.device) return device;
    }
    return nullptr;
}

SuiteHost describe_suite_host(const na::RdmaLocation& location) {
    const Json all = rdma_to_json();
    const Json device = own_device(location, all["devices"]);
    const bool known = device.is_object() && device["cpus"].is_string();
    return {location, known ? cpus_near(device["cpus"].get<std::string>()) : pick_cpus()};
}

}  // namespace

Result<std::string> to_numeric(const std::string& host) {
    addrinfo wanted{};
    wanted.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    char text[NI_MAXHOST] = "";
    const int error = ::getaddrinfo(host.c_str(), nullptr, &wanted, &found);
    if (error == 0) {
        (void)::getnameinfo(found->ai_addr, found->ai_addrlen, text, sizeof text, nullptr, 0,
                            NI_NUMERICHOST);
        ::freeaddrinfo(found);
    }
    if (!*text) {
        return fail(Code::invalid_argument,
                    "'" + host + "' is no host: " + (error ? ::gai_strerror(error) : "no address"));
    }
    return std::string(text);
}

Result<SuiteHost> find_suite_host(const std::string& host) {
    Result<na::RdmaLocation> location = na::find_rdma_location(host);
    if (!location) return std::move(location).status();
    return describe_suite_host(*location);
}

Result<SuiteHost> find_suite_host_towards(const std::string& host) {
    Result<na::RdmaLocation> location = na::find_rdma_location_towards(host);
    if (!location) return std::move(location).status();
    return describe_suite_host(*location);
}

Json describe_machine(const SuiteHost& suite_host) {
    utsname kernel{};
    (void)::uname(&kernel);
    Json json;
    json["weft"] = WEFT_VERSION;
    json["kernel"] = std::string(kernel.release) + " " + kernel.machine;
    json["cpu"] = value_in("/proc/cpuinfo", "model name");
    json["cpus"] = ::sysconf(_SC_NPROCESSORS_ONLN);
    json["cpus_used"] = {suite_host.cpus.client, suite_host.cpus.server};
    const std::string flags = value_in("/proc/cpuinfo", "flags");
    json["virtual_machine"] = flags.find(" hypervisor") != std::string::npos;
    const Json all = rdma_to_json();
    json["rdma_core"] = rdma_core_version();
    json["device"] = own_device(suite_host.location, all["devices"]);
    json["port"] = suite_host.location.port;
    json["gid"] = suite_host.location.gid;
    json["limits"] = Json::object();
    for (const Finding& finding : examine_limits()) {
        const bool is_reported = finding.name == "locked memory" || finding.name == "huge pages";
        if (is_reported) json["limits"][finding.name] = finding.value;
    }
    json["counters"] = Json::object();
    for (const na::RdmaCounter& counter : na::read_rdma_counters(suite_host.location)) {
        json["counters"][counter.name] = counter.count;
    }
    return json;
}

}  // namespace weft::tool
