// After-end work: submissions and deferred work that run after the last turn of a context. Also
// offloaded work of a context without a pool.
#include "base/fork.h"
#include "base/steady_clock.h"
#include "base/thread_usage.h"
#include "core/context.h"

namespace weft::core {

// After-end work may post after-end work, up to this depth. In the next rounds coroutines that
// would start or resume are destroyed; after these all remaining work is destroyed, its completions
// uncalled.
static constexpr std::uint32_t repost_depth_max = 1000;
static constexpr std::uint32_t destroying_rounds = 64;
// Destructors of destroyed work may post again, for so many rounds; later work is leaked.
static constexpr std::uint32_t dropping_rounds = 1000;
static constexpr std::uint32_t repost_depth_last =
    repost_depth_max + destroying_rounds + dropping_rounds;
// These rounds begin earlier, at this depth, when so much work beyond it has run.
static constexpr std::uint32_t deep_repost = 64;
static constexpr std::uint64_t deep_reposts_max = 200'000;

// After-end work that one thread runs for other threads while these continue to post.
static constexpr std::uint32_t runs_per_thread_max = 256;

// A context without a pool logs offloaded work that waits longer.
static constexpr Duration slow_work = 100ms;

// A racing post() either sees the flag, or its work is seen here. Queued work runs before this
// returns, with all work that it posts.
void Context::close_submissions() {
    {
        const std::lock_guard lock(after_end_mutex_);
        running_after_end_ = true;
    }
    auto* const last = new Submission;  // After all earlier posts.
    last->work = [this] {
        is_end_queued_ = false;
        deferred_.splice_back(deferred_to_end_);
    };
    last->is_end_work = is_end_queued_ = true;
    end_work_left_ = 1;
    submissions_.push(*last);
    unbind_thread();  // After-end work runs on any thread.
    submissions_closed_.store(true, std::memory_order_seq_cst);
    run_after_end();
}

void Context::close_wake_fd() {
    base::UniqueFd closing;
    const std::lock_guard lock(after_end_mutex_);  // Another thread may be in wake().
    closing = std::move(wake_fd_);
}

// Work that after-end work defers runs directly after it.
void Context::run_deferred_after_end() {
    if (!in_turn()) post([] {});
}

// One thread at a time: a thread that finds another one running leaves its work to that thread,
// which checks the queue once more before it returns.
void Context::run_submissions_after_end() noexcept {
    waiting_posters_.fetch_add(1, std::memory_order_relaxed);
    {
        const std::lock_guard lock(after_end_mutex_);
        waiting_posters_.fetch_sub(1, std::memory_order_relaxed);
        if (std::exchange(running_after_end_, true)) return;
    }
    run_after_end();
}

constinit thread_local std::uint32_t Context::repost_depth_ = 0;

// Work that is posted by after-end work, of any context, is one level deeper.
void Context::stamp_repost_depth(Submission& submission) noexcept {
    submission.depth = repost_depth_ + 1;
    if (!in_turn()) return;
    submission.is_end_work = running_end_work_;
    end_work_left_ += running_end_work_ ? 1 : 0;
}

// No coroutine begins in the rounds that destroy them, so the number of their ends is finite. Work
// of such an end therefore starts before these rounds again.
void Context::post_coroutine_end(Function<void()> work) {
    const std::uint32_t outer = repost_depth_;
    repost_depth_ = std::min(outer, repost_depth_max - 1);
    post(std::move(work));
    repost_depth_ = outer;
}

void Context::enter_repost_depth(std::uint32_t depth) {
    repost_depth_ = depth;
    is_destroying_coroutines_ =
        depth > repost_depth_max || (depth > deep_repost && deep_reposts_ > deep_reposts_max);
    is_dropping_ =
        depth > repost_depth_max + destroying_rounds ||
        (depth > deep_repost + destroying_rounds && deep_reposts_ > 2 * deep_reposts_max);
    if (is_destroying_coroutines_) log_endless();
}

void Context::log_endless() {
    if (std::exchange(has_logged_endless_, true)) return;
    log_.error("work or a coroutine that goes on and on does not end with its runtime: dropped");
}

// Runs the submission, the work that it defers, and the work deferred by that. So each submission
// has a depth of its own, independent of other submissions.
void Context::run_after_end(std::unique_ptr<Submission> submission) {
    const std::uint32_t outer = repost_depth_;
    running_end_work_ = is_end_queued_ || submission->is_end_work;
    if (submission->is_end_work) --end_work_left_;
    enter_repost_depth(submission->depth);
    if (!is_dropping_) submission->work();
    if (repost_depth_ > repost_depth_last) (void)submission.release();  // Else it would post.
    submission.reset();
    if (repost_depth_ > deep_repost) ++deep_reposts_;
    while (!deferred_.empty() && repost_depth_ <= repost_depth_last) {
        enter_repost_depth(repost_depth_ + 1);
        const std::uint32_t ran = run_deferred();
        if (repost_depth_ > deep_repost) deep_reposts_ += ran;
    }
    is_destroying_coroutines_ = is_dropping_ = running_end_work_ = false;
    repost_depth_ = outer;
}

// Requires: this thread has set running_after_end_.
void Context::run_after_end() noexcept {
    // Destroyed last: the work may release the last reference to this context.
    const std::shared_ptr<void> owner = owner_.lock();
    const EnterGuard scope(*this);
    ++after_end_runs_;
    for (std::uint32_t ran = 0; true; ++ran) {
        base::MpscNode* const node = submissions_.pop();
        if (node) run_after_end(std::unique_ptr<Submission>(static_cast<Submission*>(node)));
        const bool may_leave = ran > runs_per_thread_max && end_work_left_ == 0;
        if (node && !may_leave) continue;
        const std::lock_guard lock(after_end_mutex_);
        // Not empty: work was posted, or a producer is between the two steps of a push. If another
        // thread waits to post, that thread continues.
        const bool is_left = may_leave && waiting_posters_.load(std::memory_order_relaxed) != 0;
        if (!is_left && !submissions_.empty()) continue;
        if (!is_left) deep_reposts_ = 0;
        running_after_end_ = false;
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

// The other work of the context waits for it.
void Context::run_offloaded(Function<void()>& work) {
    const base::SteadyClock real;
    const TimePoint began = real.now();
    const base::ThreadUsage before = base::thread_usage();
    work();
    const base::ThreadUsage after = base::thread_usage();
    const Duration waited = (real.now() - began) - (after.cpu_time - before.cpu_time);
    if (waited < slow_work || after.voluntary_switches == before.voluntary_switches) return;
    if (std::exchange(has_logged_slow_, true)) return;
    log_.warning("offloaded work waited for " + std::to_string(waited / 1ms) +
                 " ms on a runtime that has no thread for it (RuntimeOptions::manual, a "
                 "simulation), and all else waited, too; for a pause, which takes virtual time in "
                 "a simulation, co_await weft::sleep_for()");
}

}  // namespace weft::core
