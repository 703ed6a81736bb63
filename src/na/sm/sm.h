// Shared memory between processes of one user on one machine.
//
// Trust: a peer is a process of the same uid (SO_PEERCRED; others are refused). It holds a mapping
// of this endpoint's arena and could write to it at will; its invalid bytes end only its own
// connection.
// A process forked from one that has an endpoint must not use it, only drop it or exec. It holds
// none of the endpoint's descriptors (base/fork.h), so peers notice the death of the parent, and
// the parent's name is free then.
#pragma once

#include <memory>

#include "na/provider.h"

namespace weft::na {

std::unique_ptr<Provider> make_sm_provider();

}  // namespace weft::na
