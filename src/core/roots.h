// Of coroutines that await each other, the one that owns itself.
#pragma once

#include <weft/level.h>

#include "core/context.h"

namespace weft::detail {

// nullptr: the coroutine is its program's own, or nothing awaits it, and so is its end: in the last
// rounds it is left suspended.
inline Root* root_of(Level* level) {
    if (!level) return nullptr;
    while (level->outer) level = level->outer;
    return level->kind == Level::Kind::root ? static_cast<Root*>(level) : nullptr;
}

// nullptr: this thread is in no turn of it, and it may be gone.
inline core::Context* home_of(const Root& root) {
    for (Executor* const around : core::Context::entered()) {
        if (around == root.home) return static_cast<core::Context*>(around);
    }
    return nullptr;
}

}  // namespace weft::detail
