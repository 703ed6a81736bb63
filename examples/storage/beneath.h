#pragma once

#include "file.h"

namespace storage {

// openat() that refuses, in the kernel and so without a race, to leave `directory` by "..", an
// absolute path or a link: openat2(RESOLVE_BENEATH). Where that is missing (Linux before 5.6, some
// sandboxes) no link is followed at all. Fails with errno; EXDEV means that it would have left.
Fd open_beneath(int directory, const char* path, int flags);

}  // namespace storage
