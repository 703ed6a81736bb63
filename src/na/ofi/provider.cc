#include "na/ofi/endpoint.h"
#include "na/ofi/ofi.h"
#include "na/ofi/settings.h"

namespace weft::na {
namespace ofi {

class OfiProvider final : public Provider {
  public:
    explicit OfiProvider(const Row& row) : row_(row) {}

    std::string_view scheme() const override { return row_.scheme; }

    Diagnosis probe() override {
        const auto info = find_info(row_, nullptr);
        if (!info) return {false, std::string(info.status().text())};
        return {true, std::string("libfabric ") + version_text() + ", provider " +
                          (*info)->fabric_attr->prov_name +
                          (can_fence(row_) ? "" : "; regions can't be fenced") +
                          "; messages in clear text, for trusted networks only"};
    }

    Result<std::unique_ptr<Endpoint>> open(const Address* listen, EndpointParts parts,
                                           TimePoint now) override {
        if (const auto info = find_info(row_, nullptr); !info) return info.status();
        auto endpoint = std::make_unique<OfiEndpoint>(row_, std::move(parts), now);
        if (listen) {
            if (listen->scheme != row_.scheme) {
                return fail(Code::invalid_argument, "can't listen at " + listen->uri() + " with " +
                                                        std::string(row_.scheme));
            }
            if (Status status = endpoint->listen(*listen); !status.ok()) return status;
        }
        return std::unique_ptr<Endpoint>(std::move(endpoint));
    }

  private:
    const Row& row_;
};

}  // namespace ofi

std::unique_ptr<Provider> make_ofi_tcp_provider() {
    return std::make_unique<ofi::OfiProvider>(ofi::tcp_row);
}
std::unique_ptr<Provider> make_ofi_verbs_provider() {
    return std::make_unique<ofi::OfiProvider>(ofi::verbs_row);
}

}  // namespace weft::na
