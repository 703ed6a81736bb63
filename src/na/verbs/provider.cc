#include "na/verbs/endpoint.h"
#include "na/verbs/verbs.h"

namespace weft::na {
namespace {

class VerbsProvider final : public Provider {
  public:
    std::string_view scheme() const override { return "verbs"; }

    Diagnosis probe() override {
        int count = 0;
        ibv_device** devices = ::ibv_get_device_list(&count);
        std::string names;
        for (int i = 0; i < count; ++i) {
            if (!names.empty()) names += ", ";
            names += ::ibv_get_device_name(devices[i]);
        }
        if (devices) ::ibv_free_device_list(devices);
        if (!names.empty()) return {true, "RDMA devices: " + names};
        return {false,
                "this machine has no RDMA device; a software one is made by `rdma link add rxe0 "
                "type rxe netdev ...` where the kernel has rdma_rxe"};
    }

    Result<std::unique_ptr<Endpoint>> open(const Address* listen, EndpointParts parts,
                                           TimePoint now) override {
        return verbs::VerbsEndpoint::open(listen, std::move(parts), now);
    }
};

}  // namespace

std::unique_ptr<Provider> make_verbs_provider() { return std::make_unique<VerbsProvider>(); }

}  // namespace weft::na
