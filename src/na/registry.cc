#include "na/registry.h"

namespace weft::na {

Result<Provider*> Registry::find(std::string_view scheme) const {
    std::string available;
    for (const auto& provider : providers_) {
        if (provider->scheme() == scheme) return provider.get();
        if (!available.empty()) available += ", ";
        available += provider->scheme();
    }
    return fail(Code::unimplemented, "this runtime has no transport '" + std::string(scheme) +
                                         "'; available: " + available);
}

}  // namespace weft::na
