// Whether this machine lets processes reach each other's private memory.
#pragma once

#include "na/sm/peer_memory.h"
#include "support/capability.h"

namespace weft::test {

// False where the kernel is old or a container's seccomp profile refuses it: then sm carries no
// memory but what comes from Runtime::allocate(), and the test that asks has nothing to look at.
inline bool has_private_memory() {
    if (na::sm::PeerMemory::is_allowed()) return true;
    note_capability("sm", "private memory of peers is not reached here (process_vm_readv)");
    return false;
}

}  // namespace weft::test
