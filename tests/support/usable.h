// Whether a transport works on this machine.
#pragma once

#include <string>

#include "api/runtime_impl.h"

namespace weft::test {

inline bool is_usable(const std::string& scheme) {
    const api::RuntimeParts parts = api::production_parts();
    const Result<na::Provider*> provider = parts.providers->find(scheme);
    return provider && (*provider)->probe().usable;
}

}  // namespace weft::test
