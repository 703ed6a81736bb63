#include "core/joined_thread.h"

#include <utility>

#include "base/assert.h"

namespace weft::core {

constinit thread_local JoinedThread* JoinedThread::here_ = nullptr;

JoinedThread::Running::Running(JoinedThread& thread) {
    WEFT_ASSERT(!here_);
    here_ = &thread;
}

// Notifies under the lock: the other thread destroys the object next.
JoinedThread::Running::~Running() {
    WEFT_ASSERT(here_);
    JoinedThread& thread = *std::exchange(here_, nullptr);
    const base::MutexLock lock(thread.mutex_);
    thread.has_ended_ = true;
    thread.changed_.notify_all();
}

JoinedThread::Wait::Wait(std::function<bool()> help) : help_(std::move(help)) {
    if (!here_ || here_->help_) return;
    thread_ = here_;
    const base::MutexLock lock(thread_->mutex_);
    thread_->help_ = &help_;
    thread_->changed_.notify_all();
}

JoinedThread::Wait::~Wait() {
    if (!thread_) return;
    const base::MutexLock lock(thread_->mutex_);
    WEFT_ASSERT(thread_ == here_ && thread_->help_ == &help_);
    thread_->help_ = nullptr;
}

void JoinedThread::help_until_end() {
    WEFT_ASSERT(here_ != this);
    base::MutexLock lock(mutex_);
    while (!has_ended_) {
        if (!help_ || !(*help_)()) lock.wait(changed_);
    }
}

}  // namespace weft::core
