// A condition on which the coroutines of one runtime wait for changes. For its thread only.
#pragma once

#include <coroutine>
#include <vector>

#include <weft/executor.h>

class Changes {
  public:
    // `co_await changes.next()` resumes after the next tell(), whatever changed. A coroutine that
    // is destroyed meanwhile (weft/combine.h) is removed from the list.
    class Next {
      public:
        explicit Next(Changes& changes) : changes_(changes) {}
        Next(const Next&) = delete;
        Next& operator=(const Next&) = delete;
        ~Next() { std::erase(changes_.waiting_, this); }

        bool await_ready() const { return false; }
        void await_suspend(std::coroutine_handle<> handle) {
            handle_ = handle;
            changes_.waiting_.push_back(this);
        }
        void await_resume() const {}

      private:
        friend class Changes;
        Changes& changes_;
        std::coroutine_handle<> handle_;
    };
    Next next() { return Next(*this); }

    // The coroutines resume later in this turn or in the next turn, not inside this call.
    void tell() {
        weft::Executor::current()->post([this, told = waiting_]() {
            for (Next* next : told) {
                // A coroutine resumed before this one may have destroyed it.
                if (std::erase(waiting_, next) != 0) next->handle_.resume();
            }
        });
    }

  private:
    std::vector<Next*> waiting_;
};
