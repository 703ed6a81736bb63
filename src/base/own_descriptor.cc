#include "base/own_descriptor.h"

#include "base/assert.h"

namespace weft::base {

void abort_if_closed(int error) {
    if (error != EBADF && error != EINVAL) return;
    abort_misused("a descriptor of a runtime",
                  "the program closed it: close only what the program opened, and where it closes "
                  "all others to go into the background, create the runtime afterwards");
}

}  // namespace weft::base
