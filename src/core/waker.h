// Wakes the thread of a context from a sleep on a descriptor.
#pragma once

#include <atomic>

#include "base/thread_annotations.h"
#include "base/unique_fd.h"

namespace weft::core {

class Waker {
  public:
    Waker();

    // Between begin_sleep() and end_sleep() wake() makes the descriptor readable.
    void begin_sleep() { sleeping_.store(true, std::memory_order_seq_cst); }
    void cancel_sleep() { sleeping_.store(false, std::memory_order_relaxed); }
    void end_sleep();
    // -1: the system gave none, or it is closed. Thread: the context's, or the one that closes it.
    int fd() const WEFT_UNCHECKED_THREADS { return fd_.get(); }

    // Thread: any.
    void wake();
    // As wake(). Thread: the context's, between turns.
    void request() {
        if (sleeping_.load(std::memory_order_relaxed)) [[unlikely]] {
            wake();
        }
    }
    // No thread is woken any more.
    void close();
    // The descriptor is the parent's.
    void on_forked() noexcept { is_forked_ = true; }

  private:
    std::atomic<bool> sleeping_{false};
    bool is_forked_ = false;  // Set while no other thread exists.
    base::Mutex mutex_;
    base::UniqueFd fd_ WEFT_GUARDED_BY(mutex_);
};

}  // namespace weft::core
