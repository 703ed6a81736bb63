// What a Group refers to: the group, and the collectives of its runtime.
#pragma once

#include <memory>

#include "coll/engine.h"

namespace weft::coll {

// Why `call` can't be made here, which waits for a turn of the groups' context: a forked child, or
// a turn of another context of the runtime. Thread: any. Errors: FAILED_PRECONDITION.
Status why_not_here(const core::Context& of_groups, const char* call);

class GroupImpl {
  public:
    GroupImpl(Engine& of, std::shared_ptr<GroupState> with) : engine(of), group(std::move(with)) {}

    Engine& engine;
    const std::shared_ptr<GroupState> group;  // Keeps the engine alive.
};

}  // namespace weft::coll
