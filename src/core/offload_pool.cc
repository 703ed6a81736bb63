#include "core/offload_pool.h"

#include <algorithm>
#include <iterator>

#include "base/assert.h"
#include "base/exiting.h"
#include "base/internal_thread.h"

namespace weft::core {

static constinit thread_local const OffloadPool* current_pool = nullptr;

bool OffloadPool::is_pool_thread() const { return current_pool == this; }

void OffloadPool::run(Function<void()> work, bool for_call) {
    WEFT_ASSERT(work);
    const base::MutexLock lock(mutex_);
    WEFT_ASSERT(idle_ <= threads_.size() || stopping_);
    if (stopping_ || rejecting_) return;  // `work` is destroyed when the lock is released.
    queue_.push_back({std::move(work), for_call});
    if (queue_.size() > idle_ && threads_.size() < threads_max_) {
        try {
            threads_.push_back(base::start_internal_thread([this] { loop(); }));
        } catch (const std::system_error& error) {
            if (threads_.empty()) {  // No thread would run it.
                queue_.pop_back();
                throw NoThread(error.code(),
                               "no thread for offload() (" + base::thread_limits_text() + ")");
            }
        }
    }
    changed_.notify_one();
}

void OffloadPool::loop() {
    current_pool = this;
    base::mark_exit();  // Now: work must not wait for the loader's lock.
    base::MutexLock lock(mutex_);
    while (true) {
        ++idle_;
        while (!stopping_ && queue_.empty()) lock.wait(changed_);
        --idle_;
        if (queue_.empty()) return;
        Function<void()> work = std::move(queue_.front().run);
        queue_.pop_front();
        lock.unlock();
        work();
        work.reset();
        lock.lock();
    }
}

template <class Predicate>
void OffloadPool::drop_unless(Predicate is_kept) {
    std::deque<Work> dropped;  // Destroyed without the lock: destructors may run user code.
    const base::MutexLock lock(mutex_);
    const auto kept = std::stable_partition(queue_.begin(), queue_.end(), is_kept);
    std::move(kept, queue_.end(), std::back_inserter(dropped));
    queue_.erase(kept, queue_.end());
}

void OffloadPool::drop_for_calls() {
    drop_unless([](const Work& work) { return !work.for_call; });
}

void OffloadPool::reject_all() {
    {
        const base::MutexLock lock(mutex_);
        rejecting_ = true;
    }
    drop_unless([](const Work&) { return false; });
}

bool OffloadPool::is_idle() {
    const base::MutexLock lock(mutex_);
    return queue_.empty() && idle_ == threads_.size();
}

void OffloadPool::stop() {
    WEFT_ASSERT(!is_pool_thread());
    std::vector<std::thread> threads;
    {
        const base::MutexLock lock(mutex_);
        stopping_ = true;
        threads.swap(threads_);
    }
    changed_.notify_all();
    for (std::thread& thread : threads) thread.join();
}

}  // namespace weft::core
