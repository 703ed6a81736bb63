#include "core/thread_ownership.h"

#include "base/assert.h"
#include "core/context.h"

namespace weft::core {

constinit thread_local ThreadOwnership::EnterGuard* ThreadOwnership::innermost_ = nullptr;
constinit std::atomic<std::uint64_t> ThreadOwnership::last_number_{0};

std::vector<Executor*> ThreadOwnership::entered_contexts() {
    std::vector<Executor*> all;
    if (current_) all.push_back(current_);
    for (const EnterGuard* one = innermost_; one; one = one->outer_) {
        if (one->previous_) all.push_back(one->previous_);
    }
    return all;
}

bool ThreadOwnership::is_in(const Executor& context) {
    if (current_ == &context) return true;
    for (const EnterGuard* one = innermost_; one; one = one->outer_) {
        if (one->previous_ == &context) return true;
    }
    return false;
}

bool ThreadOwnership::is_in_relative() const {
    const ThreadOwnership& here = static_cast<const Context&>(*current_);
    return &here != this && here.family_ == family_;
}

std::optional<std::uint16_t> ThreadOwnership::relative_here() const {
    if (!current_ || !is_in_relative()) return {};
    return static_cast<const Context&>(*current_).member_;
}

bool ThreadOwnership::end_borrowing() {
    if (borrower_.load(std::memory_order_relaxed) == identity()) return false;
    first_turn_pending_.fetch_add(1, std::memory_order_relaxed);
    const std::lock_guard behind(borrowing_);
    bind_thread();
    clear_creator();
    has_turned_.store(true, std::memory_order_release);
    return true;
}

void ThreadOwnership::give_away() {
    first_turn_pending_.fetch_add(1, std::memory_order_relaxed);
    {
        const std::lock_guard behind(borrowing_);
        clear_creator();
    }
    first_turn_pending_.fetch_sub(1, std::memory_order_relaxed);
}

bool ThreadOwnership::is_entered_elsewhere() const {
    bool is_elsewhere = false;
    for (const Executor* one : entered_contexts()) {
        const ThreadOwnership& entered = static_cast<const Context&>(*one);
        if (&entered == this) return false;
        is_elsewhere |= entered.family_ == family_;
    }
    return is_elsewhere;
}

ThreadOwnership::UseGuard::UseGuard(ThreadOwnership& of) : may_use_(of.on_thread()) {
    if (may_use_ || !of.is_creator_thread()) return;
    lock_ = std::unique_lock(of.borrowing_, std::try_to_lock);
    may_use_ = lock_ && of.is_creator_thread();
    if (may_use_) return;
    // Another thread owns it by now. Without creator rights this thread submits its later work in
    // order.
    of.clear_creator();
    if (lock_) lock_.unlock();
}

ThreadOwnership::UseGuard ThreadOwnership::require_end_on_thread(const char* what) {
    UseGuard here(*this);
    if (!here && !is_unowned()) {
        abort_on_other_thread(
            what,
            "destroyed before its end on a thread that does not turn its runtime, where "
            "it may be ending just now: destroy it, and the coroutine that it is a part "
            "of, there (Executor::post())");
    }
    return here;
}

ThreadOwnership::BorrowedTurns::BorrowedTurns(ThreadOwnership& of)
    : of_(of), lock_(of.borrowing_, std::try_to_lock) {
    if (lock_ && of_.is_first_turn_pending()) lock_.unlock();
    if (!lock_) return;
    // Once a thread other than the creator has borrowed the turns, no thread owns it between them.
    if (!of_.is_creator_thread()) of_.clear_creator();
    of_.borrower_.store(identity(), std::memory_order_relaxed);
}

ThreadOwnership::BorrowedTurns::~BorrowedTurns() {
    if (!lock_) return;
    WEFT_ASSERT(of_.borrower_.load(std::memory_order_relaxed) == identity());
    of_.borrower_.store(nullptr, std::memory_order_relaxed);
    of_.thread_.store(&of_.borrower_, std::memory_order_relaxed);
}

void ThreadOwnership::abort_nested_turn() {
    base::abort_misused("Runtime::turn()",
                        "called in a callback, handler or coroutine of the same runtime, which "
                        "runs inside a turn: return from it, or co_await what it waits for");
}

void ThreadOwnership::abort_on_other_thread(const char* call, const char* why) {
    base::abort_misused(call, why);
}

}  // namespace weft::core
