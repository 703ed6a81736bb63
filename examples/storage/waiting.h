// What coroutines of one context wait for each other with. Nothing here is for other threads.
#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <weft/buffer.h>
#include <weft/executor.h>
#include <weft/result.h>

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

// A bounded set of buffers, lent in order of asking. Lifetime: outlives its loans.
class BufferPool {
  public:
    using Make = std::function<weft::Result<weft::Buffer>()>;
    // Makes each of `size` buffers when it is first needed.
    BufferPool(std::size_t size, Make make) : missing_(size), make_(std::move(make)) {}

    class Loan {
      public:
        Loan(BufferPool& pool, weft::Buffer buffer) : pool_(&pool), buffer_(std::move(buffer)) {}
        Loan(Loan&& other) noexcept
            : pool_(std::exchange(other.pool_, nullptr)), buffer_(std::move(other.buffer_)) {}
        Loan& operator=(Loan&&) = delete;
        ~Loan() {
            if (pool_) pool_->take_back(std::move(buffer_));
        }
        const weft::Buffer& operator*() const { return buffer_; }
        const weft::Buffer* operator->() const { return &buffer_; }
        // A transfer that failed may still touch the memory: nobody gets it again.
        void spoil() { buffer_ = weft::Buffer(); }

      private:
        BufferPool* pool_;
        weft::Buffer buffer_;
    };

    // `co_await pool.borrow()`.
    class Borrowing {
      public:
        explicit Borrowing(BufferPool& pool) : pool_(pool) {}
        bool await_ready() {
            if (!pool_.waiting_.empty() || !pool_.refill()) return false;
            buffer_ = std::move(pool_.free_.back());
            pool_.free_.pop_back();
            return true;
        }
        void await_suspend(std::coroutine_handle<> handle) {
            sleeper_ = Sleeper::here(handle);
            pool_.waiting_.push_back(this);
        }
        Loan await_resume() { return Loan(pool_, std::move(buffer_)); }

      private:
        friend class BufferPool;
        BufferPool& pool_;
        weft::Buffer buffer_;
        Sleeper sleeper_;
    };
    Borrowing borrow() { return Borrowing(*this); }

  private:
    // True: there is one to lend. What can't be made now is tried again with the next use.
    bool refill() {
        if (!free_.empty()) return true;
        if (missing_ == 0) return false;
        weft::Result<weft::Buffer> made = make_();
        if (!made) return false;
        --missing_;
        free_.push_back(*std::move(made));
        return true;
    }
    void take_back(weft::Buffer buffer) {
        if (buffer) {
            free_.push_back(std::move(buffer));
        } else {
            ++missing_;
        }
        while (!waiting_.empty() && refill()) {
            Borrowing& next = *waiting_.front();
            waiting_.pop_front();
            next.buffer_ = std::move(free_.back());
            free_.pop_back();
            next.sleeper_.wake();
        }
    }

    std::vector<weft::Buffer> free_;
    std::size_t missing_;  // To be made.
    const Make make_;
    std::deque<Borrowing*> waiting_;
};

}  // namespace storage
