#include "na/template/endpoint.h"
#include "na/template/template.h"

namespace weft::na {
namespace {

class TemplateProvider final : public Provider {
  public:
    std::string_view scheme() const override { return "template"; }

    // Here: whether this process can use the network; else what is missing and how to get it.
    Diagnosis probe() override { return {false, "an empty transport: the guide for new ones"}; }

    Result<std::unique_ptr<Endpoint>> open(const Address* listen, EndpointParts parts,
                                           TimePoint) override {
        // Here: open the device, and listen. ALREADY_EXISTS for an address that is in use.
        if (listen) {
            return fail(Code::unavailable, "template can't listen at " + listen->uri());
        }
        return std::unique_ptr<Endpoint>(
            std::make_unique<blank::TemplateEndpoint>(std::move(parts)));
    }
};

}  // namespace

std::unique_ptr<Provider> make_template_provider() { return std::make_unique<TemplateProvider>(); }

}  // namespace weft::na
