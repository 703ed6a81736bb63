// The coroutines of threads that are in Runtime::block_on(), which end with their runtime.
#pragma once

#include <mutex>
#include <vector>

#include <weft/runtime.h>

namespace weft::api {

class Waiters {
  public:
    // From before its task starts until its thread continues.
    class Registration {
      public:
        Registration(Waiters& waiters, detail::BlockedThread& waiter);
        Registration(const Registration&) = delete;
        Registration& operator=(const Registration&) = delete;
        ~Registration();

      private:
        Waiters& waiters_;
        detail::BlockedThread& waiter_;
    };

    // Destroys the waiting coroutines: weft resumes none of them any more. Thread: the one that
    // runs after-end work of the context (Context::close_submissions()), inside of that work.
    void destroy_all();
    bool have_ended() const;

  private:
    detail::BlockedThread* take();

    mutable std::mutex mutex_;
    std::vector<detail::BlockedThread*> all_;
    bool have_ended_ = false;
};

}  // namespace weft::api
