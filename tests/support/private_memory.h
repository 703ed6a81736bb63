// Whether this machine lets processes access each other's private memory.
#pragma once

#include "na/sm/peer_memory.h"
#include "support/capability.h"

namespace weft::test {

// False where the kernel is old or a container's seccomp profile refuses it: then sm transfers only
// memory of Runtime::allocate(), and the calling test has nothing to check.
inline bool has_private_memory() {
    if (na::sm::PeerMemory::is_allowed()) return true;
    note_capability("sm", "private memory of peers is not reached here (process_vm_readv)");
    return false;
}

}  // namespace weft::test
