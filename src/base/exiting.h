// Whether a thread is in exit(): the objects of static storage are destroyed on it then, wherever
// it was called.
#pragma once

#include <cstdlib>

namespace weft::base {

// From here on is_exiting() knows of an exit() on this thread.
void watch_exit();
// And of one on any thread, for what was made before this, 100 000 times in a process at most.
// `at_exit` is called while no child is forked.
void mark_exit(int (*at_exit)(void (*)()) = std::atexit) noexcept;
// This thread called exit(), or returned from main(), or another one did, and what was made after
// the last mark_exit() is gone. Requires: not asked by a thread_local object at the end of its
// thread.
bool is_exiting();

}  // namespace weft::base
