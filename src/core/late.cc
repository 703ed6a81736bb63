// What a context does after its last turn, and offloaded work where there is no thread for it.
#include "base/fork.h"
#include "base/steady_clock.h"
#include "base/thread_use.h"
#include "core/context.h"

namespace weft::core {

// Work that is posted after the end by such work, and again by that: so often and no more. Then
// coroutines that are about to start or to go on are destroyed for some rounds, and from then on
// whatever is left, with completions that are not called.
static constexpr std::uint32_t late_depth_max = 1000;
static constexpr std::uint32_t ending_rounds = 64;
// Whose destructors begin the next ones; then these are left.
static constexpr std::uint32_t dropping_rounds = 1000;
static constexpr std::uint32_t late_depth_last = late_depth_max + ending_rounds + dropping_rounds;
// Where very many go on, these rounds begin earlier: when so much has run that was this deep.
static constexpr std::uint32_t deep = 64;
static constexpr std::uint64_t deep_works_max = 200'000;

// What one thread runs of others' after the end, when they go on posting.
static constexpr std::uint32_t late_share = 256;

// Offloaded work that waits longer is logged where there is no thread for it.
static constexpr Duration slow_work = 100ms;

// A post that raced with this either sees the flag or is seen here. What there is runs here, before
// this returns, with all that comes of it.
void Context::close_submissions() {
    {
        const std::lock_guard lock(late_mutex_);
        running_late_ = true;
    }
    auto* const last = new Submission;  // Behind all that was posted.
    last->work = [this] {
        is_end_queued_ = false;
        deferred_.splice_back(at_end_);
    };
    last->is_of_end = is_end_queued_ = true;
    end_left_ = 1;
    submissions_.push(*last);
    release_thread();  // What runs from here on does so on any.
    submissions_closed_.store(true, std::memory_order_seq_cst);
    run_late();
}

void Context::close_wake() {
    base::UniqueFd closing;
    const std::lock_guard lock(late_mutex_);  // Of another thread that is about to wake this one.
    closing = std::move(wake_fd_);
}

// Within late work it runs behind that.
void Context::run_deferred_late() {
    if (!in_turn()) post([] {});
}

// One thread at a time: one that finds another running leaves its work to that, which looks once
// more before it ends.
void Context::run_late_submissions() noexcept {
    late_posters_.fetch_add(1, std::memory_order_relaxed);
    {
        const std::lock_guard lock(late_mutex_);
        late_posters_.fetch_sub(1, std::memory_order_relaxed);
        if (std::exchange(running_late_, true)) return;
    }
    run_late();
}

constinit thread_local std::uint32_t Context::late_depth_ = 0;

// What is posted by late work, also by that of another context, comes of it.
void Context::follow_late(Submission& submission) noexcept {
    submission.depth = late_depth_ + 1;
    if (!in_turn()) return;
    submission.is_of_end = runs_end_;
    end_left_ += runs_end_ ? 1 : 0;
}

// None begins in these rounds, so their ends come to an end: what comes of one has its rounds anew.
void Context::post_end(Function<void()> work) {
    const std::uint32_t outer = late_depth_;
    late_depth_ = std::min(outer, late_depth_max - 1);
    post(std::move(work));
    late_depth_ = outer;
}

void Context::descend_late(std::uint32_t depth) {
    late_depth_ = depth;
    is_ending_waiters_ = depth > late_depth_max || (depth > deep && deep_works_ > deep_works_max);
    is_dropping_ = depth > late_depth_max + ending_rounds ||
                   (depth > deep + ending_rounds && deep_works_ > 2 * deep_works_max);
    if (is_ending_waiters_) log_late();
}

void Context::log_late() {
    if (std::exchange(has_logged_late_, true)) return;
    log_.error("work or a coroutine that goes on and on does not end with its runtime: dropped");
}

// With what it defers, and what that defers again: so each has a depth of its own, whatever others
// begin meanwhile.
void Context::run_late(std::unique_ptr<Submission> submission) {
    const std::uint32_t outer = late_depth_;
    runs_end_ = is_end_queued_ || submission->is_of_end;
    if (submission->is_of_end) --end_left_;
    descend_late(submission->depth);
    if (!is_dropping_) submission->work();
    if (late_depth_ > late_depth_last) (void)submission.release();  // Or that would post.
    submission.reset();
    if (late_depth_ > deep) ++deep_works_;
    while (!deferred_.empty() && late_depth_ <= late_depth_last) {
        descend_late(late_depth_ + 1);
        const std::uint32_t ran = run_deferred();
        if (late_depth_ > deep) deep_works_ += ran;
    }
    is_ending_waiters_ = is_dropping_ = runs_end_ = false;
    late_depth_ = outer;
}

// Requires: running_late_ is this thread's.
void Context::run_late() noexcept {
    // Destroyed last: with what the work holds and lets go of, this context may go.
    const std::shared_ptr<void> owner = owner_.lock();
    const Entered scope(*this);
    ++late_runs_;
    for (std::uint32_t ran = 0; true; ++ran) {
        base::MpscNode* const node = submissions_.pop();
        if (node) run_late(std::unique_ptr<Submission>(static_cast<Submission*>(node)));
        const bool may_leave = ran > late_share && end_left_ == 0;
        if (node && !may_leave) continue;
        const std::lock_guard lock(late_mutex_);
        // Not empty: more came, or a producer is between the two steps of a push. While threads go
        // on posting one of them runs it.
        const bool is_left = may_leave && late_posters_.load(std::memory_order_relaxed) != 0;
        if (!is_left && !submissions_.empty()) continue;
        if (!is_left) deep_works_ = 0;
        running_late_ = false;
        return;
    }
}

void Context::offload(Function<void()> work) {
    if (is_forked_) return base::report_forked("offloaded work is dropped");
    if (!work) detail::refuse_empty("Executor::offload()");
    // Without a pool (simulations: one thread, one order) the work runs as a submission.
    if (pool_) {
        pool_->run(std::move(work), in_turn() && scope() != nullptr);
    } else {
        post([this, work = std::move(work)]() mutable { run_offloaded(work); });
    }
}

// All else waits for it.
void Context::run_offloaded(Function<void()>& work) {
    const base::SteadyClock real;
    const TimePoint began = real.now();
    const base::ThreadUse before = base::thread_use();
    work();
    const base::ThreadUse after = base::thread_use();
    const Duration waited = (real.now() - began) - (after.computed - before.computed);
    if (waited < slow_work || after.waits == before.waits) return;
    if (std::exchange(has_logged_slow_, true)) return;
    log_.warning("offloaded work waited for " + std::to_string(waited / 1ms) +
                 " ms on a runtime that has no thread for it (RuntimeOptions::manual, a "
                 "simulation), and all else waited, too; for a pause, which takes virtual time in "
                 "a simulation, co_await weft::sleep_for()");
}

}  // namespace weft::core
