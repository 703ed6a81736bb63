// Runtimes with several contexts, for tests.
#pragma once

#include <string>
#include <vector>

#include <weft/options.h>

#include "support/seed.h"

namespace weft::test {

// Of the servers of tests that run once with one context and once with several: TEST_CONTEXTS=n.
inline unsigned server_contexts() { return static_cast<unsigned>(setting("TEST_CONTEXTS", 1)); }

inline RuntimeOptions with_contexts(unsigned contexts) {
    RuntimeOptions options;
    options.contexts = contexts;
    options.log_level = LogLevel::off;
    return options;
}

// The transports that reach each context through one address; verbs is in an executable of its own
// (verbs.cmake).
#ifndef WEFT_TEST_STEERING
#define WEFT_TEST_STEERING "tcp", "unix", "sm"
#endif
inline const std::vector<std::string> steering{WEFT_TEST_STEERING};

}  // namespace weft::test
