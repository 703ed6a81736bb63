// Internal threads that run callbacks of the program, and that the program's threads join.
#pragma once

#include <condition_variable>
#include <functional>

#include "base/thread_annotations.h"

namespace weft::core {

// A callback on such a thread may wait for the context of the thread that joins it, a deadlock. So
// the joining thread does the work that the callback waits for.
class JoinedThread {
  public:
    JoinedThread() = default;
    JoinedThread(const JoinedThread&) = delete;
    JoinedThread& operator=(const JoinedThread&) = delete;

    // Wraps the body of the thread.
    class Running {
      public:
        explicit Running(JoinedThread& thread);
        Running(const Running&) = delete;
        Running& operator=(const Running&) = delete;
        ~Running();
    };

    // While it lives, the calling thread waits for a context. The thread that joins the calling one
    // runs `help`, which does a part of the awaited work, or returns false where it can't or need
    // not. No effect on other threads, and inside of another Wait.
    class Wait {
      public:
        explicit Wait(std::function<bool()> help);
        Wait(const Wait&) = delete;
        Wait& operator=(const Wait&) = delete;
        ~Wait();

      private:
        const std::function<bool()> help_;
        JoinedThread* thread_ = nullptr;
    };

    // Returns when Running has ended. Thread: the one that joins it next.
    void help_until_end();

  private:
    static constinit thread_local JoinedThread* here_;

    base::Mutex mutex_;  // Held while help runs, so that its Wait outlives it.
    std::condition_variable changed_;
    const std::function<bool()>* help_ = nullptr;  // Only the thread itself changes it.
    bool has_ended_ WEFT_GUARDED_BY(mutex_) = false;
};

}  // namespace weft::core
