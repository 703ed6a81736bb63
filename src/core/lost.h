// What goes on no more, since it awaits what was destroyed after the end of its runtime.
#pragma once

#include <coroutine>

#include <weft/level.h>

namespace weft::detail {

// Nothing at that level goes on. Gives what goes on now: the end of its root, if nothing of that
// goes on, either.
std::coroutine_handle<> end_lost(Level* level) noexcept;

}  // namespace weft::detail
