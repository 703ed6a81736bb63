// After-end work: submissions and deferred work that run after the last turn of a context.
//
// One thread at a time runs it, on the spot. After-end work may post after-end work, up to a depth;
// work that posts itself for ever is dropped.
#pragma once

#include <atomic>
#include <memory>

#include <weft/executor.h>

#include "base/log.h"
#include "base/thread_annotations.h"
#include "core/submissions.h"
#include "core/turn_loop.h"

namespace weft::core {

class AfterEnd {
  public:
    AfterEnd(Executor& context, Submissions& submissions, TurnLoop& loop, base::Log& log)
        : context_(context), submissions_(submissions), loop_(loop), log_(log) {}

    // Kept alive during after-end work, which may release it.
    void set_owner(std::weak_ptr<void> owner) { owner_ = std::move(owner); }
    std::shared_ptr<void> owner() const { return owner_.lock(); }

    // Closes the submissions. A racing post() either sees that, or its work is seen here. Queued
    // work runs before this returns, with all work that it posts.
    void begin();
    // Thread: any. The depth of a submission that is about to be pushed.
    void stamp(Submission& submission) noexcept;
    // Thread: any. Runs what was pushed, or leaves it to the thread that runs such work.
    void run() noexcept;
    // Runs deferred work directly after the work that defers it.
    void run_deferred();
    // As post(), for the end of a coroutine.
    void post_coroutine_end(Function<void()> work);

    // The work does not end by itself: coroutines that would start or resume are destroyed.
    bool is_destroying_coroutines() const { return is_destroying_coroutines_; }
    // Completions are destroyed uncalled.
    bool is_dropping() const { return is_dropping_; }
    void log_endless();  // Logs once that there is one.
    std::uint32_t runs() const { return runs_; }

  private:
    bool in_turn() const { return Executor::current() == &context_; }
    void run_all() noexcept WEFT_EXCLUDES(runner_);
    void run_one(Submission& submission) WEFT_REQUIRES(runner_);
    void enter_depth(std::uint32_t depth) WEFT_REQUIRES(runner_);
    bool may_end(bool may_leave) WEFT_REQUIRES(runner_) WEFT_EXCLUDES(mutex_);

    // ---- constant
    Executor& context_;
    Submissions& submissions_;
    TurnLoop& loop_;
    base::Log& log_;
    std::weak_ptr<void> owner_;

    // ---- which thread runs the work
    base::Mutex mutex_;  // Never held over user code.
    bool is_running_ WEFT_GUARDED_BY(mutex_) = false;
    std::atomic<std::uint32_t> waiting_posters_{0};  // About to lock the mutex.

    // ---- of the thread that runs it
    base::ThreadRole runner_;
    std::uint64_t deep_reposts_ WEFT_GUARDED_BY(runner_) = 0;
    // Waiting end work (Submission::is_end_work).
    std::uint64_t end_work_left_ WEFT_GUARDED_BY(runner_) = 0;
    bool is_end_queued_ WEFT_GUARDED_BY(runner_) = false;     // All waiting work is end work.
    bool running_end_work_ WEFT_GUARDED_BY(runner_) = false;  // End work is running.
    bool is_destroying_coroutines_ = false, is_dropping_ = false;
    bool has_logged_endless_ = false;
    std::uint32_t runs_ = 0;  // So far.
};

}  // namespace weft::core
