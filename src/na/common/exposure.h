// What expose() refuses before it registers memory. Core requests none of it (provider.h).
#pragma once

#include <string>

#include "na/provider.h"

namespace weft::na {

inline Status validate_exposure(const Exposure& exposure) {
    if (exposure.region >= regions_max) {
        return fail(Code::invalid_argument, "region " + std::to_string(exposure.region) +
                                                " is over the limit of " +
                                                std::to_string(regions_max) + " regions");
    }
    if (exposure.memory.empty()) {
        return fail(Code::invalid_argument, "can't expose an empty range");
    }
    if (exposure.access == Access::none) {
        return fail(Code::invalid_argument, "can't expose memory with Access::none");
    }
    return {};
}

inline Status already_exposed(std::uint32_t region) {
    return fail(Code::already_exists, "region " + std::to_string(region) + " is exposed already");
}

}  // namespace weft::na
