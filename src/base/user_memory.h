// Memory of the program, which may be read-only, unmapped, or a page of a file that is not there: a
// copy of our own would end the process, one that the kernel makes fails.
#pragma once

#include <weft/bytes.h>

namespace weft::base {

// All of it. False: not all of it can be written, or read; some may have been copied.
// Cost: a system call.
bool copy_to_user(Bytes to, ByteView from) noexcept;
bool copy_from_user(ByteView from, Bytes to) noexcept;

// Whether it can be read, or written, right now: its pages are made present. For code that copies
// by itself, like libfabric. True where the kernel can't tell (before Linux 5.14).
// Cost: a system call, and a walk over the pages.
bool can_touch(ByteView memory, bool to_write) noexcept;

}  // namespace weft::base
