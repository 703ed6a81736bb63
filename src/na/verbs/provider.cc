#include <ifaddrs.h>

#include "na/verbs/endpoint.h"
#include "na/verbs/verbs.h"

namespace weft::na {
namespace {

class VerbsProvider final : public Provider {
  public:
    std::string_view scheme() const override { return "verbs"; }

    Diagnosis probe() override {
        std::string names;
        for (const std::string& name : verbs::list_devices()) {
            names += (names.empty() ? "" : ", ") + name;
        }
        if (!names.empty()) return {true, "RDMA devices: " + names};
        return {false,
                "this machine has no RDMA device; a software one is made by `rdma link add rxe0 "
                "type rxe netdev ...` where the kernel has rdma_rxe"};
    }

    Result<std::unique_ptr<Endpoint>> open(const Address* listen, EndpointParts parts,
                                           TimePoint now) override {
        return verbs::VerbsEndpoint::open(devices_, listen, std::move(parts), now);
    }

    Result<std::shared_ptr<Door>> open_door(const Address& listen, DoorParts parts,
                                            TimePoint) override {
        Result<std::shared_ptr<verbs::VerbsDoor>> door =
            verbs::VerbsDoor::open(listen, std::move(parts));
        if (!door) return std::move(door).status();
        return std::shared_ptr<Door>(*std::move(door));
    }

  private:
    verbs::SharedDevices devices_;
};

}  // namespace

// The name of an address that other hosts can reach without naming a device; nullopt: it is
// another.
static std::optional<SocketName> global_name(const sockaddr* address) {
    if (!address) return std::nullopt;
    std::size_t bytes = sizeof(sockaddr_in);
    if (address->sa_family == AF_INET6) {
        if (IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr)) {
            return std::nullopt;
        }
        bytes = sizeof(sockaddr_in6);
    } else if (address->sa_family != AF_INET) {
        return std::nullopt;
    }
    auto name = SocketName::from_kernel(address, bytes);
    if (!name || name->is_loopback()) return std::nullopt;
    return *name;
}

std::optional<std::string> find_rdma_host() {
    const verbs::Owned<rdma_event_channel> channel = verbs::open_event_channel();
    ifaddrs* all = nullptr;
    if (!channel || ::getifaddrs(&all) != 0) return std::nullopt;
    std::optional<std::string> found;
    for (const ifaddrs* one = all; one && !found; one = one->ifa_next) {
        const auto name = global_name(one->ifa_addr);
        rdma_cm_id* made = nullptr;
        if (!name || ::rdma_create_id(channel.get(), &made, nullptr, RDMA_PS_TCP) != 0) {
            continue;
        }
        const verbs::Owned<rdma_cm_id> probe(made);
        if (::rdma_bind_addr(made, one->ifa_addr) == 0 && made->verbs) found = name->host();
    }
    ::freeifaddrs(all);
    return found;
}

const verbs::DeviceCounters* device_counters_of(const Endpoint& endpoint) {
    const auto* ours = dynamic_cast<const verbs::VerbsEndpoint*>(&endpoint);
    return ours ? &ours->counters() : nullptr;
}

std::unique_ptr<Provider> make_verbs_provider() { return std::make_unique<VerbsProvider>(); }

}  // namespace weft::na
