// Of coroutines that await each other, the one that owns itself.
#pragma once

#include <weft/level.h>

#include "core/context.h"

namespace weft::detail {

// nullptr: the coroutine is its program's own, or nothing awaits it, and so is its end: in the last
// rounds it is left suspended.
Root* root_of(Level* level);
// The context of the root. nullptr: this thread is in no turn of it.
core::Context* entered_home(const Root& root);
// The call of the root, while that is open. Requires: a turn of its home.
core::Scope* open_scope(const Root& root, const core::Context& home);

// Destroys it in that context's turns, or late work, once nothing runs in it and nothing holds it.
void end_root(Root& root, core::Context& at);

}  // namespace weft::detail
