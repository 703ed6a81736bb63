#include "base/assert.h"

#include <cstdio>
#include <cstdlib>

namespace weft::base {

void assertion_failed(const char* what, const char* file, int line) {
    std::fprintf(stderr, "weft: assertion failed: %s (%s:%d)\n", what, file, line);
    std::abort();
}

}  // namespace weft::base
