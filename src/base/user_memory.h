// Access to memory of the program, which may be read-only, unmapped, or a missing page of a file. A
// plain copy would end the process; a copy by the kernel fails instead.
#pragma once

#include <weft/bytes.h>

namespace weft::base {

// Copies all of it. False: not all of it can be written, or read; a part may have been copied.
// Cost: a system call.
bool copy_to_user(Bytes to, ByteView from) noexcept;
bool copy_from_user(ByteView from, Bytes to) noexcept;

// Whether `memory` can be read, or written, at this moment; makes its pages present. For libraries
// that copy by themselves, such as libfabric. True where the kernel lacks the check (before Linux
// 5.14). Cost: a system call, and a walk over the pages.
bool is_accessible(ByteView memory, bool to_write) noexcept;

}  // namespace weft::base
