// Whether a transport works on this machine.
#pragma once

#include <string>

#include "api/node.h"

namespace weft::test {

inline bool is_usable(const std::string& scheme) {
    const api::NodeParts parts = api::real_parts();
    const Result<na::Provider*> provider = parts.providers->find(scheme);
    return provider && (*provider)->probe().usable;
}

}  // namespace weft::test
