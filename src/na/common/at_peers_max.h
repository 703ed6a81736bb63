// The refusals of an endpoint that has all its peers, with the same text on every transport.
#pragma once

#include <string>

#include "na/provider.h"

namespace weft::na {

// Of connect().
inline Status at_peers_max(const Address& to, std::size_t peers_max) {
    return fail(Code::resource_exhausted, "connecting to " + to.uri() + ": all " +
                                              std::to_string(peers_max) +
                                              " peers of this endpoint are in use "
                                              "(RuntimeOptions::peers_max)");
}

// Of a listener: the connector receives the text.
inline Status listener_at_peers_max(std::size_t peers_max) {
    return fail(Code::resource_exhausted, "all " + std::to_string(peers_max) +
                                              " peers of the listener are in use "
                                              "(RuntimeOptions::peers_max)");
}

}  // namespace weft::na
