// Runtimes with several contexts, for tests.
#pragma once

#include <string>
#include <vector>

#include <weft/options.h>

namespace weft::test {

inline RuntimeOptions with_contexts(unsigned contexts) {
    RuntimeOptions options;
    options.contexts = contexts;
    options.log_level = LogLevel::off;
    return options;
}

// The transports that reach each context through one address.
inline const std::vector<std::string> steering{"tcp", "unix", "sm"};

}  // namespace weft::test
