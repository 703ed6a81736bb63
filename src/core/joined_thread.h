// Threads of weft's own that run callbacks of the program, and that the program's threads join.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>

namespace weft::core {

// A callback on such a thread may wait for a context whose thread is the one that joins it. Neither
// would go on: the one that joins does in its place what the callback waits for.
class JoinedThread {
  public:
    JoinedThread() = default;
    JoinedThread(const JoinedThread&) = delete;
    JoinedThread& operator=(const JoinedThread&) = delete;

    // Around the body of the thread.
    class Running {
      public:
        explicit Running(JoinedThread& thread);
        Running(const Running&) = delete;
        Running& operator=(const Running&) = delete;
        ~Running();
    };

    // While it lives the calling thread waits for a context. `help` runs on the thread that joins
    // this one, which waits for its end here: does a part of what is waited for, or returns false
    // where it can't or need not. On other threads than such it does nothing, nor inside of another
    // one.
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

    std::mutex mutex_;  // Guards the rest; held while help runs, so that its wait goes on there.
    std::condition_variable changed_;
    const std::function<bool()>* help_ = nullptr;  // Only the thread itself changes it.
    bool has_ended_ = false;
};

}  // namespace weft::core
