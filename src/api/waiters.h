// The coroutines of threads that are in Runtime::block_on(), which end with their runtime.
#pragma once

#include <mutex>
#include <vector>

#include <weft/runtime.h>

namespace weft::api {

class Waiters {
  public:
    // From before its task starts until its thread goes on.
    class Within {
      public:
        Within(Waiters& waiters, detail::BlockedThread& waiter);
        Within(const Within&) = delete;
        Within& operator=(const Within&) = delete;
        ~Within();

      private:
        Waiters& waiters_;
        detail::BlockedThread& waiter_;
    };

    // Destroys the coroutines that wait: nothing of weft resumes them any more. Thread: the one
    // that runs late work of the context (Context::close_submissions()), inside of that.
    void end();
    bool have_ended() const;

  private:
    detail::BlockedThread* take();

    mutable std::mutex mutex_;
    std::vector<detail::BlockedThread*> all_;
    bool have_ended_ = false;
};

}  // namespace weft::api
