// Addresses that users type: scheme://rest, parsed in one place.
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
    std::string host;        // Other schemes. Without brackets for IPv6; empty: loopback. A
                             // link-local address carries its interface, "fe80::1%eth0".
    std::uint16_t port = 0;  // Other schemes. 0 when listening: any free port.
    // A peer chose this address: no endpoint is opened to reach it, and its host name is resolved
    // in the queue of peers' names (resolver.h).
    bool named_by_peer = false;
    // The context of the listening runtime that a connect wants, as Hello::wanted. No part of the
    // URI.
    std::uint16_t wanted = 0;

    std::string uri() const;
    friend bool operator==(const Address&, const Address&) = default;
};

// Errors: INVALID_ARGUMENT, one sentence that quotes the text and gives the expected form.
// Checks the form only: a build may lack the transport (registry.h).
Result<Address> parse_address(std::string_view uri);

}  // namespace weft::na
