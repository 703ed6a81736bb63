// Limits of this machine and this account on resources that weft needs, and their remedies.
#pragma once

#include <string>
#include <vector>

namespace weft::tool {

struct Finding {
    std::string name;    // "open files"
    std::string value;   // "1024"
    std::string remedy;  // Empty: none is needed.
};

std::vector<Finding> examine_limits();

// The WEFT_ variables in force, "NAME=value".
std::vector<std::string> weft_environment();

}  // namespace weft::tool
