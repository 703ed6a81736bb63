// Whether a thread is in exit(): the objects of static storage are destroyed on it then, wherever
// it was called.
#pragma once

namespace weft::base {

// From here on is_exiting() knows of this thread.
void watch_exit();
// This thread called exit(), or returned from main(). Requires: not asked by a thread_local object
// at the end of its thread.
bool is_exiting();

}  // namespace weft::base
