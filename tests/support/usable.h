// Whether a transport is in this build, and works on this machine.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <string>

#include "api/runtime_impl.h"
#include "base/unique_fd.h"
#include "support/capability.h"
#include "support/catch.h"

namespace weft::test {

inline bool is_usable(const std::string& scheme) {
    const api::RuntimeParts parts = api::production_parts();
    const Result<na::Provider*> provider = parts.providers->find(scheme);
    return provider && (*provider)->probe().usable;
}

// Whether this build has the transport of `uri`, as it was configured: a missing one fails the
// test, and one that was left out is noted.
inline bool is_in_this_build(const std::string& uri) {
    const std::string scheme = uri.substr(0, uri.find(':'));
#ifdef WEFT_WITH_OFI
    const bool has_ofi = true;
#else
    const bool has_ofi = false;
#endif
#ifdef WEFT_WITH_VERBS
    const bool has_verbs = true;
#else
    const bool has_verbs = false;
#endif
    const bool is_expected = scheme == "verbs" ? has_verbs : has_ofi || !scheme.starts_with("ofi");
    CAPTURE(scheme);
    const api::RuntimeParts parts = api::production_parts();
    CHECK(bool(parts.providers->find(scheme)) == is_expected);
    if (!is_expected) note_capability(scheme, "not in this build");
    return is_expected;
}

// Whether this machine has IPv6; noted if not.
inline bool has_ipv6() {
    const base::UniqueFd socket(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in6 name{};
    name.sin6_family = AF_INET6;
    name.sin6_addr = in6addr_loopback;
    const auto* const at = reinterpret_cast<const sockaddr*>(&name);
    if (socket && ::bind(socket.get(), at, sizeof name) == 0) return true;
    note_capability("tcp", "no IPv6 on this machine");
    return false;
}

}  // namespace weft::test
