// What a thread keeps for its next uses, without a destructor of thread_local storage.
#pragma once

namespace weft::detail {

// Let go of at the end of its thread, behind all that is thread_local there, as a runtime may be.
// No thread_local object with a destructor: the first use of one takes a lock of the loader, which
// dlopen() holds while constructors of a library run. Of constant initialisation, thread_local.
// Implemented in core/thread_kept.cc.
struct ThreadKept {
    void (*release)(ThreadKept&) noexcept;
    ThreadKept* next = nullptr;  // Of this thread.
    bool is_known = false;
};

// Before anything is kept. False: this thread is at its end, or there is no memory: keep nothing.
bool keep_for_thread(ThreadKept& kept) noexcept;

}  // namespace weft::detail
