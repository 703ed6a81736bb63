// The root of coroutines that await each other: the coroutine that owns itself.
#pragma once

#include <weft/async_frame.h>

#include "core/context.h"

namespace weft::detail {

// nullptr: the coroutine type is the program's own, or nothing awaits the coroutine. Then the
// program must destroy it: in the last rounds of after-end work it stays suspended.
AsyncRoot* root_of(AsyncFrame* async_frame);
// The context of the root. nullptr: this thread is in no turn of that context.
core::Context* entered_home_context(const AsyncRoot& root);
// The call of the root, while that call is open. Requires: a turn of `home`.
core::CallScope* open_scope(const AsyncRoot& root, const core::Context& home);

// While the root lives, the services that its runtime made live, too.
void keep_services(AsyncRoot& root);

// Destroys the root in a turn of `at`, or in its after-end work, once nothing below the root runs
// or pins it.
void end_root(AsyncRoot& root, core::Context& at);

}  // namespace weft::detail
