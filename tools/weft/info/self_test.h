// Tests a transport with two endpoints in this process: echoed messages and transfers.
#pragma once

#include <optional>
#include <string>

#include <weft/status.h>

#include "na/provider.h"

namespace weft::tool {

struct SelfTest {
    Status status;
    na::Caps caps;  // Of the opened endpoint.
    std::string address;
    // Of an echoed message of 64 bytes with both ends in one thread: the median.
    std::optional<double> round_trip_ns;
    // Of a one-sided get of 4 KiB, where the transport has one.
    std::optional<double> get_ns;
};

// Takes at most about three seconds, also when nothing ever arrives.
SelfTest test_transport(const std::string& scheme);

}  // namespace weft::tool
