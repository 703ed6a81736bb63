// Per-thread caches, without a destructor of thread_local storage.
#pragma once

namespace weft::detail {

// A cache that is released at the end of its thread, after all thread_local objects of that thread,
// of which a runtime may be one. It has no destructor: the first use of a thread_local object with
// a destructor takes a lock of the loader, which dlopen() holds while constructors of a library
// run. Declare it thread_local, with constant initialisation. Implemented in core/thread_cache.cc.
struct ThreadCache {
    void (*release)(ThreadCache&) noexcept;
    ThreadCache* next = nullptr;  // Of this thread.
    bool is_registered = false;
};

// Call before anything is kept. False: this thread is at its end, or there is no memory: keep
// nothing.
bool register_thread_cache(ThreadCache& cache) noexcept;

}  // namespace weft::detail
