// Addresses that no other test listens on.
#pragma once

#include <unistd.h>

#include <string>

namespace weft::test {

// An address of this scheme on this machine; each call returns another one.
inline std::string fresh_uri(const std::string& scheme) {
    static int count = 0;
    const std::string name = std::to_string(::getpid()) + "-" + std::to_string(++count);
    if (scheme == "sm") return "sm://fresh-" + name;
    if (scheme == "unix") return "unix:///tmp/weft-fresh-" + name;
    return scheme + "://127.0.0.1:0";
}

}  // namespace weft::test
