// What coroutines of one context wait for each other with. Nothing here is for other threads.
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

// A suspended coroutine, to be resumed by a turn of its own: what wakes it runs on undisturbed.
struct Sleeper {
    std::coroutine_handle<> handle;
    weft::Executor* home = nullptr;

    static Sleeper here(std::coroutine_handle<> handle) {
        return {handle, weft::Executor::current()};
    }
    void wake() const {
        home->post([handle = handle] { handle.resume(); });
    }
};

// A line of coroutines: each takes its place when it comes, waits until all before it are through,
// and is through when its place is destroyed, whether it waited or not.
class Line {
  public:
    class Place {
      public:
        explicit Place(Line& line) : line_(line), number_(line.next_++) {}
        Place(const Place&) = delete;
        Place& operator=(const Place&) = delete;
        ~Place() { leave(); }
        // Lets the next one go ahead of the end of this one's scope.
        void leave() {
            if (!std::exchange(is_through_, true)) line_.leave(number_);
        }

        bool await_ready() const { return line_.first_ == number_; }
        void await_suspend(std::coroutine_handle<> handle) {
            line_.waiting_.emplace(number_, Sleeper::here(handle));
        }
        void await_resume() const {}

      private:
        Line& line_;
        const std::uint64_t number_;
        bool is_through_ = false;
    };

  private:
    void leave(std::uint64_t number) {
        left_.insert(number);
        while (!left_.empty() && *left_.begin() == first_) {
            left_.erase(left_.begin());
            ++first_;
        }
        const auto next = waiting_.find(first_);
        if (next == waiting_.end()) return;
        const Sleeper sleeper = next->second;
        waiting_.erase(next);
        sleeper.wake();
    }

    std::uint64_t next_ = 0;
    std::uint64_t first_ = 0;  // Whose turn it is.
    std::map<std::uint64_t, Sleeper> waiting_;
    std::set<std::uint64_t> left_;  // Out of their order.
};

// A status that comes once; one coroutine awaits it.
class Outcome {
  public:
    bool is_set() const { return status_.has_value(); }
    // Requires: is_set().
    const weft::Status& status() const { return *status_; }
    // The first one counts.
    void set(weft::Status status) {
        if (status_) return;
        status_ = std::move(status);
        if (sleeper_.handle) sleeper_.wake();
    }

    bool await_ready() const { return is_set(); }
    void await_suspend(std::coroutine_handle<> handle) { sleeper_ = Sleeper::here(handle); }
    weft::Status await_resume() const { return *status_; }

  private:
    std::optional<weft::Status> status_;
    Sleeper sleeper_;
};

}  // namespace storage
