// What this machine and this account limit that weft needs, and how to mend it.
#pragma once

#include <string>
#include <vector>

namespace weft::tool {

struct Finding {
    std::string name;   // "open files"
    std::string value;  // "1024"
    std::string mend;   // Empty: fine as it is.
};

std::vector<Finding> examine_limits();

// The WEFT_ variables in force, "NAME=value".
std::vector<std::string> weft_environment();

}  // namespace weft::tool
