// The refusals of an endpoint without room for another peer, with the same text on every transport.
#pragma once

#include <string>

#include "na/hello.h"
#include "na/provider.h"

namespace weft::na {

// Of connect().
inline Status at_peers_max(const Address& to, std::size_t peers_max) {
    return fail(Code::resource_exhausted, "connecting to " + to.uri() + ": all " +
                                              std::to_string(peers_max) +
                                              " peers of this endpoint are in use "
                                              "(RuntimeOptions::peers_max)");
}
inline Status without_memory(const Address& to) {
    return fail(Code::resource_exhausted, "connecting to " + to.uri() + ": no memory");
}

// Of a listener: the connector receives the text.
inline Status listener_at_peers_max(std::size_t peers_max) {
    return fail(Code::resource_exhausted, "all " + std::to_string(peers_max) +
                                              " peers of the listener are in use "
                                              "(RuntimeOptions::peers_max)");
}
// busy_code: before the hello; the connect is repeated.
inline Status listener_without_memory(Code code = Code::resource_exhausted) {
    return fail(code, "the listener has no memory for another peer");
}
// The connect is repeated.
inline Status listener_context_is_full(std::uint16_t context) {
    return fail(busy_code, "context " + std::to_string(context) +
                               " of the listener takes no more connections now");
}

}  // namespace weft::na
