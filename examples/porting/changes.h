// What coroutines of one runtime wait with for something to change. For its thread only.
#pragma once

#include <coroutine>
#include <utility>
#include <vector>

#include <weft/executor.h>

class Changes {
  public:
    // `co_await changes.next()` goes on after the next tell(), whatever changed.
    auto next() {
        struct Awaiter {
            std::vector<std::coroutine_handle<>>& waiting;

            bool await_ready() const { return false; }
            void await_suspend(std::coroutine_handle<> handle) { waiting.push_back(handle); }
            void await_resume() const {}
        };
        return Awaiter{waiting_};
    }

    // They go on later in this turn or in the next one, not in here.
    void tell() {
        for (const auto handle : std::exchange(waiting_, {})) {
            weft::Executor::current()->post([handle] { handle.resume(); });
        }
    }

  private:
    std::vector<std::coroutine_handle<>> waiting_;
};
