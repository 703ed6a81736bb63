// Which thread a context belongs to, and which contexts a thread is in.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include <weft/executor.h>

namespace weft::core {

// Thread: any, unless said otherwise.
class OwnThread {
  public:
    // One of its own, never 0: another context may come to the same address.
    std::uint64_t number() const { return number_; }
    // The calling thread is the one that turned last, or that made the context, unless that waits
    // for its first turn.
    bool on_thread() const { return thread_.load(std::memory_order_relaxed) == identity(); }
    // The calling thread made it, and no thread has turned it yet. Another one may begin to at any
    // time: see Here.
    bool waits_here() const { return maker_.load(std::memory_order_relaxed) == identity(); }
    bool may_be_here() const { return on_thread() || waits_here(); }
    // It is no thread's, as at the end.
    bool has_no_thread() const { return thread_.load(std::memory_order_relaxed) == nullptr; }
    // It is that of another thread.
    bool is_elsewhere() const { return !may_be_here() && !has_no_thread(); }
    // Some thread has begun to turn the context, which is its own since; one that borrows the turns
    // does not count. Once it is true, on_thread() is true on the thread that turns and no other.
    bool has_turned() const { return has_turned_.load(std::memory_order_acquire); }
    // A thread is about to, or gives it away, and waits for one that borrows the turns; none
    // borrows them anew.
    bool begins() const { return begins_.load(std::memory_order_relaxed) != 0; }
    // Before the first turn of a thread: from here on none borrows the turns. Returns when none
    // does any more; false: this one does.
    bool begin_turns();
    // Makes the calling thread the one that may call; a turn does it too.
    void adopt_thread() { thread_.store(identity(), std::memory_order_relaxed); }
    // From here on no thread may, until one turns.
    void release_thread() {
        thread_.store(nullptr, std::memory_order_relaxed);
        forget_maker();
    }
    // From here on any thread may be the first to turn; the calling one, which made the context,
    // may use it until then (Here).
    void wait_for_turns() {
        thread_.store(&borrower_, std::memory_order_relaxed);
        maker_.store(identity(), std::memory_order_relaxed);
    }
    // Until one turns it is another thread's, whichever asks. Waits for a thread that uses it or
    // borrows its turns.
    void give_away();
    // Aborts with "weft: CALL: WHY" where is_elsewhere(). For doors that a finished operation does
    // not pass.
    void require_thread(const char* call, const char* why) const {
        if (is_elsewhere()) [[unlikely]]
            abort_elsewhere(call, why);
    }

    // While it lives and is true the calling thread may use the context, which is its own, or which
    // it made: the first turn of another thread waits then. It turns it as Borrowed only. False:
    // another thread's, which may be about to begin, or none's. Thread: any.
    class Here {
      public:
        explicit Here(OwnThread& of);
        explicit operator bool() const { return is_here_; }

      private:
        std::unique_lock<std::recursive_mutex> alone_;
        bool is_here_;
    };

    // As require_thread() for `what`, an operation or task that is destroyed before its end, which
    // it may be while the result lives.
    [[nodiscard]] Here require_end_here(const char* what);

    // While it lives the calling thread is in that context as in a turn: for work outside of one
    // that may run user code.
    class Entered {
      public:
        explicit Entered(Executor& context) : around_(current_), outer_(innermost_) {
            if (around_ == &context) [[unlikely]]
                abort_nested_turn();
            innermost_ = this;
            current_ = &context;
        }
        Entered(const Entered&) = delete;
        Entered& operator=(const Entered&) = delete;
        ~Entered() {
            current_ = around_;
            innermost_ = outer_;
        }

      private:
        friend class OwnThread;
        Executor* const around_;
        Entered* const outer_;
    };

    // While it lives the calling thread may turn a context that none has turned, which is as it was
    // afterwards. Empty: one has, or uses it just now. Thread: any.
    class Borrowed {
      public:
        explicit Borrowed(OwnThread& of);
        Borrowed(const Borrowed&) = delete;
        Borrowed& operator=(const Borrowed&) = delete;
        ~Borrowed();
        explicit operator bool() const { return lock_.owns_lock(); }

      private:
        OwnThread& of_;
        std::unique_lock<std::recursive_mutex> lock_;
    };

    // While it lives and is true the calling thread may turn the context: it turned it last, or
    // made it, and borrows the turns. Thread: any.
    class Turning {
      public:
        explicit Turning(OwnThread& of) : is_own_(of.on_thread()) {
            if (!is_own_ && of.waits_here()) borrowed_.emplace(of);
        }
        explicit operator bool() const { return is_own_ || (borrowed_ && *borrowed_); }

      private:
        const bool is_own_;
        std::optional<Borrowed> borrowed_;
    };

    // This thread is in some context.
    static bool is_any_entered() { return current_ != nullptr; }
    // Those that this thread is in, one inside the other, the innermost first.
    static std::vector<Executor*> entered();

  protected:
    static bool is_in(const Executor& context);
    [[noreturn]] static void abort_nested_turn();

    // The innermost that this thread is in; its address tells threads apart.
    static constinit thread_local Executor* current_;
    std::atomic<const void*> thread_{nullptr};

  private:
    friend class weft::Executor;
    void forget_maker() { maker_.store(nullptr, std::memory_order_relaxed); }
    static const void* identity() { return &current_; }
    [[noreturn]] static void abort_elsewhere(const char* call, const char* why);

    static constinit thread_local Entered* innermost_;
    static constinit std::atomic<std::uint64_t> last_number_;
    const std::uint64_t number_ = last_number_.fetch_add(1, std::memory_order_relaxed) + 1;
    std::atomic<unsigned> begins_{0};
    std::atomic<bool> has_turned_{false};
    std::recursive_mutex borrowing_;  // Guards the turns, and the next, until one has turned.
    std::atomic<const void*> borrower_{nullptr};
    std::atomic<const void*> maker_{nullptr};  // While it waits for its first turn.
};

}  // namespace weft::core
