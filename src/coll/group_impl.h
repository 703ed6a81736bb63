// What a Group refers to: the group, and the collectives of its runtime.
#pragma once

#include <memory>

#include "coll/engine.h"

namespace weft::coll {

class GroupImpl {
  public:
    GroupImpl(Engine& of, std::shared_ptr<GroupState> with) : engine(of), group(std::move(with)) {}

    Engine& engine;
    const std::shared_ptr<GroupState> group;  // Keeps the engine alive.
};

}  // namespace weft::coll
