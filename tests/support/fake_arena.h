// An arena for tests: the real one once na/arena.cc exists, else plain memory.
// Delete this file and fake_arena.cc when it does, and call Arena::make().
#pragma once

#include <memory>

#include "na/arena.h"

namespace weft::test {

std::shared_ptr<na::Arena> make_arena();

}  // namespace weft::test
