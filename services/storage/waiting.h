// Synchronization of coroutines of one context. Not for other threads.
#pragma once

#include <coroutine>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <weft/executor.h>
#include <weft/status.h>

namespace storage {

// A suspended coroutine, resumed by a turn of its own, so that the waking code runs on undisturbed.
struct Waiter {
    std::coroutine_handle<> handle;
    weft::Executor* executor = nullptr;

    static Waiter current(std::coroutine_handle<> handle) {
        return {handle, weft::Executor::current()};
    }
    void resume_later() const {
        executor->post([handle = handle] { handle.resume(); });
    }
};

// A queue of coroutines: each takes its place on arrival and waits until all before it have passed.
// It passes when its place is destroyed, whether it waited or not.
class FifoGate {
  public:
    class Pass {
      public:
        explicit Pass(FifoGate& gate) : gate_(gate), number_(gate.next_++) {}
        Pass(const Pass&) = delete;
        Pass& operator=(const Pass&) = delete;
        ~Pass() { release(); }
        // Lets the next coroutine pass before this scope ends.
        void release() {
            if (!std::exchange(is_released_, true)) gate_.release(number_);
        }

        bool await_ready() const { return gate_.first_ == number_; }
        void await_suspend(std::coroutine_handle<> handle) {
            gate_.waiting_.emplace(number_, Waiter::current(handle));
        }
        void await_resume() const {}

      private:
        FifoGate& gate_;
        const std::uint64_t number_;
        bool is_released_ = false;
    };

  private:
    void release(std::uint64_t number) {
        released_.insert(number);
        while (!released_.empty() && *released_.begin() == first_) {
            released_.erase(released_.begin());
            ++first_;
        }
        const auto next = waiting_.find(first_);
        if (next == waiting_.end()) return;
        const Waiter waiter = next->second;
        waiting_.erase(next);
        waiter.resume_later();
    }

    std::uint64_t next_ = 0;
    std::uint64_t first_ = 0;  // The number that may pass.
    std::map<std::uint64_t, Waiter> waiting_;
    std::set<std::uint64_t> released_;  // Places released out of order.
};

// A status that is set once; one coroutine awaits it.
class OneShotStatus {
  public:
    bool is_set() const { return status_.has_value(); }
    // Requires: is_set().
    const weft::Status& status() const { return *status_; }
    // Only the first call has an effect.
    void set(weft::Status status) {
        if (status_) return;
        status_ = std::move(status);
        if (waiter_.handle) waiter_.resume_later();
    }

    bool await_ready() const { return is_set(); }
    void await_suspend(std::coroutine_handle<> handle) { waiter_ = Waiter::current(handle); }
    weft::Status await_resume() const { return *status_; }

  private:
    std::optional<weft::Status> status_;
    Waiter waiter_;
};

}  // namespace storage
