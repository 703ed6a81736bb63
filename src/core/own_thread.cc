#include "core/own_thread.h"

#include "base/assert.h"

namespace weft::core {

constinit thread_local OwnThread::Entered* OwnThread::innermost_ = nullptr;
constinit std::atomic<std::uint64_t> OwnThread::last_number_{0};

std::vector<Executor*> OwnThread::entered() {
    std::vector<Executor*> all;
    if (current_) all.push_back(current_);
    for (const Entered* one = innermost_; one; one = one->outer_) {
        if (one->around_) all.push_back(one->around_);
    }
    return all;
}

bool OwnThread::is_in(const Executor& context) {
    if (current_ == &context) return true;
    for (const Entered* one = innermost_; one; one = one->outer_) {
        if (one->around_ == &context) return true;
    }
    return false;
}

bool OwnThread::begin_turns() {
    if (borrower_.load(std::memory_order_relaxed) == identity()) return false;
    begins_.fetch_add(1, std::memory_order_relaxed);
    const std::lock_guard behind(borrowing_);
    adopt_thread();
    forget_maker();
    has_turned_.store(true, std::memory_order_release);
    return true;
}

void OwnThread::give_away() {
    begins_.fetch_add(1, std::memory_order_relaxed);
    {
        const std::lock_guard behind(borrowing_);
        forget_maker();
    }
    begins_.fetch_sub(1, std::memory_order_relaxed);
}

OwnThread::Here::Here(OwnThread& of) : is_here_(of.on_thread()) {
    if (is_here_ || !of.waits_here()) return;
    alone_ = std::unique_lock(of.borrowing_, std::try_to_lock);
    is_here_ = alone_ && of.waits_here();
    if (is_here_) return;
    // Another thread has it by now. What this one hands over from here on stays in order.
    of.forget_maker();
    if (alone_) alone_.unlock();
}

OwnThread::Here OwnThread::require_end_here(const char* what) {
    Here here(*this);
    if (!here && !has_no_thread()) {
        abort_elsewhere(
            what,
            "destroyed before its end on a thread that does not turn its runtime, where "
            "it may be ending just now: destroy it, and the coroutine that it is a part "
            "of, there (Executor::post())");
    }
    return here;
}

OwnThread::Borrowed::Borrowed(OwnThread& of) : of_(of), lock_(of.borrowing_, std::try_to_lock) {
    if (lock_ && of_.begins()) lock_.unlock();
    if (!lock_) return;
    // From the first thread on that did not make it it is no thread's between such turns.
    if (!of_.waits_here()) of_.forget_maker();
    of_.borrower_.store(identity(), std::memory_order_relaxed);
}

OwnThread::Borrowed::~Borrowed() {
    if (!lock_) return;
    of_.borrower_.store(nullptr, std::memory_order_relaxed);
    of_.thread_.store(&of_.borrower_, std::memory_order_relaxed);
}

void OwnThread::abort_nested_turn() {
    base::abort_misused("Runtime::turn()",
                        "called in a callback, handler or coroutine of the same runtime, which "
                        "runs inside a turn: return from it, or co_await what it waits for");
}

void OwnThread::abort_elsewhere(const char* call, const char* why) {
    base::abort_misused(call, why);
}

}  // namespace weft::core
