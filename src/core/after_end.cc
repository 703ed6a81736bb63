#include "core/after_end.h"

#include <algorithm>

#include "base/assert.h"
#include "core/thread_ownership.h"

namespace weft::core {

// Depth of after-end posts. In the next rounds coroutines that would start or resume are destroyed;
// after these all remaining work is destroyed, its completions uncalled.
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

// Depth of the after-end work that this thread runs, of any context; 0: none.
static constinit thread_local std::uint32_t repost_depth = 0;

void AfterEnd::begin() {
    WEFT_ASSERT(!submissions_.is_closed());
    {
        const base::MutexLock lock(mutex_);
        is_running_ = true;
    }
    runner_.begin();
    auto last = std::make_unique<PostedWork>([this] {  // After all earlier posts.
        runner_.assert_held();
        is_end_queued_ = false;
        loop_.begin_end();
    });
    last->is_end_work = is_end_queued_ = true;
    end_work_left_ = 1;
    submissions_.push(*last.release());
    runner_.end();
    submissions_.close();
    run_all();
}

void AfterEnd::run_deferred() {
    if (!in_turn()) context_.post([] {});
}

// A thread that finds another one running leaves its work to that thread, which checks the queue
// once more before it returns.
void AfterEnd::run() noexcept {
    waiting_posters_.fetch_add(1, std::memory_order_relaxed);
    {
        const base::MutexLock lock(mutex_);
        waiting_posters_.fetch_sub(1, std::memory_order_relaxed);
        if (std::exchange(is_running_, true)) return;
    }
    run_all();
}

// Work that is posted by after-end work, of any context, is one level deeper.
void AfterEnd::stamp(Submission& submission) noexcept {
    submission.depth = repost_depth + 1;
    if (!in_turn()) return;
    runner_.assert_held();
    submission.is_end_work = running_end_work_;
    end_work_left_ += running_end_work_ ? 1 : 0;
}

// No coroutine begins in the rounds that destroy them, so the number of their ends is finite. Work
// of such an end therefore starts before these rounds again.
void AfterEnd::post_coroutine_end(Function<void()> work) {
    const std::uint32_t outer = repost_depth;
    repost_depth = std::min(outer, repost_depth_max - 1);
    context_.post(std::move(work));
    repost_depth = outer;
}

void AfterEnd::enter_depth(std::uint32_t depth) {
    repost_depth = depth;
    is_destroying_coroutines_ =
        depth > repost_depth_max || (depth > deep_repost && deep_reposts_ > deep_reposts_max);
    is_dropping_ =
        depth > repost_depth_max + destroying_rounds ||
        (depth > deep_repost + destroying_rounds && deep_reposts_ > 2 * deep_reposts_max);
    if (is_destroying_coroutines_) log_endless();
}

void AfterEnd::log_endless() {
    if (std::exchange(has_logged_endless_, true)) return;
    log_.error("work or a coroutine that goes on and on does not end with its runtime: dropped");
}

// Runs the submission, the work that it defers, and the work deferred by that. So each submission
// has a depth of its own, independent of other submissions.
void AfterEnd::run_one(Submission& submission) {
    WEFT_DCHECK(in_turn());
    const std::uint32_t outer = repost_depth;
    running_end_work_ = is_end_queued_ || submission.is_end_work;
    if (submission.is_end_work) {
        WEFT_ASSERT(end_work_left_ != 0);
        --end_work_left_;
    }
    enter_depth(submission.depth);
    const auto use = is_dropping_ ? Submission::Use::drop : Submission::Use::run;
    // Beyond the last depth it is leaked: its destructor would post.
    if (repost_depth <= repost_depth_last) submission.finish(submission, use);
    if (repost_depth > deep_repost) ++deep_reposts_;
    while (loop_.has_deferred() && repost_depth <= repost_depth_last) {
        enter_depth(repost_depth + 1);
        const std::uint32_t ran = loop_.run_deferred();
        if (repost_depth > deep_repost) deep_reposts_ += ran;
    }
    is_destroying_coroutines_ = is_dropping_ = running_end_work_ = false;
    repost_depth = outer;
}

// False: work was posted, or a producer is between the two steps of a push. If another thread waits
// to post, that thread continues.
bool AfterEnd::may_end(bool may_leave) {
    const base::MutexLock lock(mutex_);
    WEFT_ASSERT(is_running_);
    const bool is_left = may_leave && waiting_posters_.load(std::memory_order_relaxed) != 0;
    if (!is_left && !submissions_.empty()) return false;
    if (!is_left) deep_reposts_ = 0;
    is_running_ = false;
    return true;
}

void AfterEnd::run_all() noexcept {
    // Destroyed last: the work may release the last reference to this context.
    const std::shared_ptr<void> owner = owner_.lock();
    const ThreadOwnership::EnterGuard scope(context_);
    runner_.begin();
    ++runs_;
    for (std::uint32_t ran = 0; true; ++ran) {
        Submission* const next = submissions_.pop();
        const bool is_idle = next == nullptr;
        if (next) run_one(*next);
        const bool may_leave = ran > runs_per_thread_max && end_work_left_ == 0;
        if ((is_idle || may_leave) && may_end(may_leave)) break;
    }
    runner_.end();
}

}  // namespace weft::core
