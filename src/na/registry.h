// The providers of a runtime, by scheme. production_parts() in src/api/commons.cc adds those
// of this build by name: no static registrars.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "na/provider.h"

namespace weft::na {

class Registry {
  public:
    void add(std::unique_ptr<Provider> provider) { providers_.push_back(std::move(provider)); }

    // Errors: UNIMPLEMENTED, one sentence that names the available transports.
    Result<Provider*> find(std::string_view scheme) const;
    const std::vector<std::unique_ptr<Provider>>& all() const { return providers_; }

  private:
    std::vector<std::unique_ptr<Provider>> providers_;
};

}  // namespace weft::na
