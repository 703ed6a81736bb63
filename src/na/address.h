// Addresses that users type: scheme://rest, judged in one place.
#pragma once

#include <string>
#include <string_view>

#include <weft/result.h>

namespace weft::na {

// sm://name, sim://node, unix:///path, tcp://host:port, ofi+tcp://host:port, ofi+verbs://…,
// verbs://….
struct Address {
    std::string scheme;
    std::string name;        // sm, sim: the name. unix: the path.
    std::string host;        // Others. Without brackets for IPv6; empty: loopback. A link-local
                             // one has its interface behind it, "fe80::1%eth0".
    std::uint16_t port = 0;  // Others. 0 when listening: any free port.
    // A peer chose it, and not this program: no endpoint is opened to reach it, and its host name
    // waits among those of peers (resolver.h).
    bool named_by_peer = false;

    std::string uri() const;
    friend bool operator==(const Address&, const Address&) = default;
};

// Errors: INVALID_ARGUMENT, one sentence that quotes the text and says what a good one looks like.
// Knows the forms, not which transports this build has: that is registry.h.
Result<Address> parse_address(std::string_view uri);

}  // namespace weft::na
