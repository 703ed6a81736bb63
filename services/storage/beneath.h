#pragma once

#include "file.h"

namespace storage {

// openat() that refuses to leave `directory` by "..", an absolute path or a link. The kernel checks
// this, and so without a race: openat2(RESOLVE_BENEATH). Without it (Linux before 5.6, some
// sandboxes) no link is followed at all. Fails with errno; EXDEV means that the path leads out.
Fd open_beneath(int directory, const char* path, int flags);

}  // namespace storage
