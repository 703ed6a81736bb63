// Where real verbs can be tested: an address that an RDMA device of this machine is on, which
// `make softroce` gives in TEST_RDMA_HOST.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

#include "support/capability.h"

namespace weft::test {

// "verbs://HOST:0", or another transport over such a device. Nothing: none is known here.
inline std::optional<std::string> rdma_uri(const std::string& scheme = "verbs") {
    const char* host = std::getenv("TEST_RDMA_HOST");
    if (!host || !*host) return std::nullopt;
    return scheme + "://" + host + ":0";
}

// The same for what is about nothing but verbs: that it was not tested here is noted.
inline std::optional<std::string> rdma_uri_or_note() {
    const auto uri = rdma_uri();
    if (!uri) note_capability("verbs", "not tested here: faults; `make softroce` has a device");
    return uri;
}

}  // namespace weft::test
