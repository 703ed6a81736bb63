// Which thread a context belongs to, and which contexts a thread is in.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include <weft/executor.h>

#include "base/assert.h"

namespace weft::core {

// Thread: any, unless stated otherwise.
class ThreadOwnership {
  public:
    // Unique in the process, never 0: another context may get the same address.
    std::uint64_t number() const { return number_; }
    // The contexts of one runtime are of one family. While a thread is in a turn of one, the others
    // are not its own, even if it turns all of them: work goes from one to another by post() only,
    // as between threads. Call before the first turn.
    // `member`: its number in the family.
    void join_family(const ThreadOwnership& of, std::uint16_t member) {
        family_ = of.family_;
        member_ = member;
    }
    std::uint16_t member() const { return member_; }
    std::uint64_t family() const { return family_; }  // Never 0.
    // The other context of the family that the calling thread is in a turn of, the innermost turn
    // of the thread. nullopt: it is in none.
    std::optional<std::uint16_t> relative_here() const;
    // The calling thread is in a turn of another context of the family, however nested, and in none
    // of this one, so that it must not wait for this one.
    bool is_entered_elsewhere() const;
    // The calling thread turned the context last, or created it, unless it waits for its first
    // turn; and it is in no turn of another context of the family.
    bool on_thread() const {
        return thread_.load(std::memory_order_relaxed) == identity() &&
               (current_ == nullptr || !is_in_relative());
    }
    // The calling thread created the context, no thread has turned it yet, and it is in no turn of
    // another context of the family. Another thread may begin its first turn at any time: see
    // UseGuard.
    bool is_creator_thread() const {
        return creator_.load(std::memory_order_relaxed) == identity() &&
               (current_ == nullptr || !is_in_relative());
    }
    bool is_owner_or_creator() const { return on_thread() || is_creator_thread(); }
    // No thread owns the context, as at its end.
    bool is_unowned() const { return thread_.load(std::memory_order_relaxed) == nullptr; }
    // Another thread owns the context.
    bool is_on_other_thread() const { return !is_owner_or_creator() && !is_unowned(); }
    // Some thread has begun to turn the context, and owns it since; borrowed turns do not count.
    // From then on, on_thread() is true only on the thread that turns.
    bool has_turned() const { return has_turned_.load(std::memory_order_acquire); }
    // A thread is about to turn the context first, or gives it away, and waits for the end of
    // borrowed turns; no thread borrows them anew.
    bool is_first_turn_pending() const {
        return first_turn_pending_.load(std::memory_order_relaxed) != 0;
    }
    // Before the first turn of a thread: no thread borrows the turns from now on. Returns when none
    // does any more; false: the calling thread does.
    bool end_borrowing();
    // Makes the calling thread the owner; a turn does so, too.
    void bind_thread() { thread_.store(identity(), std::memory_order_relaxed); }
    // No thread owns the context until one turns it.
    void unbind_thread() {
        thread_.store(nullptr, std::memory_order_relaxed);
        clear_creator();
    }
    // Any thread may be the first to turn from now on; the calling thread, which created the
    // context, may use it until then (UseGuard).
    void unbind_until_first_turn() {
        WEFT_ASSERT(!has_turned() && !is_on_other_thread());
        thread_.store(&borrower_, std::memory_order_relaxed);
        creator_.store(identity(), std::memory_order_relaxed);
    }
    // Until a thread turns the context, it is another thread's for every caller. Waits for a thread
    // that uses it or borrows its turns.
    void give_away();
    // Aborts with "weft: CALL: WHY" where is_on_other_thread(). For calls that a completed
    // operation does not make.
    void require_thread(const char* call, const char* why) const {
        if (is_on_other_thread()) [[unlikely]]
            abort_on_other_thread(call, why);
    }

    // While it lives and is true, the calling thread may use the context as its owner or its
    // creator; for the creator, the first turn of another thread waits. It may turn the context by
    // BorrowedTurns only. False: the context is another thread's, possibly before its first turn,
    // or no thread's. Thread: any.
    class UseGuard {
      public:
        explicit UseGuard(ThreadOwnership& of);
        explicit operator bool() const { return may_use_; }

      private:
        std::unique_lock<std::recursive_mutex> lock_;
        bool may_use_;
    };

    // As require_thread() for `what`, an operation or task that is destroyed before its end; it may
    // be destroyed while the result lives.
    [[nodiscard]] UseGuard require_end_on_thread(const char* what);

    // While it lives, the calling thread is in the context as in a turn: for work outside of a turn
    // that may run user code.
    class EnterGuard {
      public:
        explicit EnterGuard(Executor& context) : previous_(current_), outer_(innermost_) {
            if (previous_ == &context) [[unlikely]]
                abort_nested_turn();
            innermost_ = this;
            current_ = &context;
        }
        EnterGuard(const EnterGuard&) = delete;
        EnterGuard& operator=(const EnterGuard&) = delete;
        ~EnterGuard() {
            WEFT_DCHECK(innermost_ == this);
            current_ = previous_;
            innermost_ = outer_;
        }

      private:
        friend class ThreadOwnership;
        Executor* const previous_;
        EnterGuard* const outer_;
    };

    // While it lives, the calling thread may turn a context that no thread has turned, and which
    // counts as not turned afterwards. False: a thread has turned it, or uses it now. Thread: any.
    class BorrowedTurns {
      public:
        explicit BorrowedTurns(ThreadOwnership& of);
        BorrowedTurns(const BorrowedTurns&) = delete;
        BorrowedTurns& operator=(const BorrowedTurns&) = delete;
        ~BorrowedTurns();
        explicit operator bool() const { return lock_.owns_lock(); }

      private:
        ThreadOwnership& of_;
        std::unique_lock<std::recursive_mutex> lock_;
    };

    // While it lives and is true, the calling thread may turn the context: it owns it, or created
    // it and borrows the turns. Thread: any.
    class TurnPermit {
      public:
        explicit TurnPermit(ThreadOwnership& of) : is_owner_(of.on_thread()) {
            if (!is_owner_ && of.is_creator_thread()) borrowed_.emplace(of);
        }
        explicit operator bool() const { return is_owner_ || (borrowed_ && *borrowed_); }

      private:
        const bool is_owner_;
        std::optional<BorrowedTurns> borrowed_;
    };

    // Whether this thread is in a context.
    static bool is_any_entered() { return current_ != nullptr; }
    // The nested contexts that this thread is in, the innermost first.
    static std::vector<Executor*> entered_contexts();

  protected:
    static bool is_in(const Executor& context);
    [[noreturn]] static void abort_nested_turn();

    // The innermost context of this thread; the address of the variable identifies the thread.
    static constinit thread_local Executor* current_;
    std::atomic<const void*> thread_{nullptr};

  private:
    friend class weft::Executor;
    bool is_in_relative() const;  // Requires: in a context.
    void clear_creator() { creator_.store(nullptr, std::memory_order_relaxed); }
    static const void* identity() { return &current_; }
    [[noreturn]] static void abort_on_other_thread(const char* call, const char* why);

    static constinit thread_local EnterGuard* innermost_;
    static constinit std::atomic<std::uint64_t> last_number_;
    const std::uint64_t number_ = last_number_.fetch_add(1, std::memory_order_relaxed) + 1;
    std::uint64_t family_ = number_;  // The number of its first context.
    std::uint16_t member_ = 0;
    std::atomic<unsigned> first_turn_pending_{0};
    std::atomic<bool> has_turned_{false};
    std::recursive_mutex borrowing_;  // Guards the turns and borrower_, until a thread has turned.
    std::atomic<const void*> borrower_{nullptr};
    std::atomic<const void*> creator_{nullptr};  // Until the first turn.
};

}  // namespace weft::core
