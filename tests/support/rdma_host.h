// An address for tests of real verbs: that of an RDMA device of this machine, which `make softroce`
// passes in TEST_RDMA_HOST.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

#include "support/capability.h"

namespace weft::test {

// "verbs://HOST:0", or another transport over such a device. Empty: no device is given.
inline std::optional<std::string> rdma_uri(const std::string& scheme = "verbs") {
    const char* host = std::getenv("TEST_RDMA_HOST");
    if (!host || !*host) return std::nullopt;
    return scheme + "://" + host + ":0";
}

// The same for tests of verbs only: a missing device is noted.
inline std::optional<std::string> rdma_uri_or_note() {
    const auto uri = rdma_uri();
    if (!uri) note_capability("verbs", "not tested here: faults; `make softroce` has a device");
    return uri;
}

}  // namespace weft::test
