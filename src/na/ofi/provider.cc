#include "na/ofi/endpoint.h"
#include "na/ofi/ofi.h"
#include "na/ofi/settings.h"

namespace weft::na {
namespace ofi {

class OfiProvider final : public Provider {
  public:
    explicit OfiProvider(const FabricTraits& traits) : traits_(traits) {}

    std::string_view scheme() const override { return traits_.scheme; }

    Diagnosis probe() override {
        const auto info = find_info(traits_, nullptr);
        if (!info) return {false, std::string(info.status().text())};
        return {true, std::string("libfabric ") + version_text() + ", provider " +
                          (*info)->fabric_attr->prov_name +
                          (can_fence(traits_) ? "" : "; regions can't be fenced") +
                          "; messages in clear text, for trusted networks only"};
    }

    Result<std::unique_ptr<Endpoint>> open(const Address* listen, EndpointParts parts,
                                           TimePoint now) override {
        if (const auto info = find_info(traits_, nullptr); !info) return info.status();
        auto endpoint = std::make_unique<OfiEndpoint>(traits_, std::move(parts), now);
        if (listen) {
            if (listen->scheme != traits_.scheme) {
                return fail(Code::invalid_argument, "can't listen at " + listen->uri() + " with " +
                                                        std::string(traits_.scheme));
            }
            if (Status status = endpoint->listen(*listen); !status.ok()) return status;
        }
        return std::unique_ptr<Endpoint>(std::move(endpoint));
    }

  private:
    const FabricTraits& traits_;
};

}  // namespace ofi

std::unique_ptr<Provider> make_ofi_tcp_provider() {
    return std::make_unique<ofi::OfiProvider>(ofi::tcp_traits);
}
std::unique_ptr<Provider> make_ofi_verbs_provider() {
    return std::make_unique<ofi::OfiProvider>(ofi::verbs_traits);
}

}  // namespace weft::na
