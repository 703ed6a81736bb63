// Whether a thread is in exit(), which destroys the objects of static storage on its own thread.
#pragma once

#include <cstdlib>

namespace weft::base {

// From this call on is_exiting() detects an exit() on this thread.
void watch_exit();
// From this call on is_exiting() detects an exit() on any thread, for objects created before the
// call. Works 100 000 times in a process at most. No child is forked during the call of `at_exit`.
void mark_exit(int (*at_exit)(void (*)()) = std::atexit) noexcept;
// True: this thread called exit() or returned from main(), or another thread did and has destroyed
// the objects created after the last mark_exit(). Requires: not called by a thread_local object at
// the end of its thread.
bool is_exiting();

}  // namespace weft::base
