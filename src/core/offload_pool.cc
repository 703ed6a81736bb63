#include "core/offload_pool.h"

#include <algorithm>
#include <iterator>

#include "base/exiting.h"
#include "base/quiet_thread.h"

namespace weft::core {

static constinit thread_local const OffloadPool* pool_here = nullptr;

bool OffloadPool::is_here() const { return pool_here == this; }

void OffloadPool::run(Function<void()> work, bool for_call) {
    const std::lock_guard lock(mutex_);
    if (stopping_ || refusing_) return;  // `work` is destroyed when the lock is released.
    queue_.push_back({std::move(work), for_call});
    if (queue_.size() > idle_ && threads_.size() < threads_max_) {
        try {
            threads_.push_back(base::start_quiet_thread([this] { loop(); }));
        } catch (const std::system_error& error) {
            if (threads_.empty()) {  // Nothing would run it.
                queue_.pop_back();
                throw NoThread(error.code(),
                               "no thread for offload() (" + base::thread_limits_text() + ")");
            }
        }
    }
    changed_.notify_one();
}

void OffloadPool::loop() {
    pool_here = this;
    base::mark_exit();  // Work waits for no lock of the loader's.
    std::unique_lock lock(mutex_);
    while (true) {
        ++idle_;
        changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
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

template <class Keeps>
void OffloadPool::drop_unless(Keeps keeps) {
    std::deque<Work> dropped;  // Destroyed without the lock: it may run user code.
    const std::lock_guard lock(mutex_);
    const auto kept = std::stable_partition(queue_.begin(), queue_.end(), keeps);
    std::move(kept, queue_.end(), std::back_inserter(dropped));
    queue_.erase(kept, queue_.end());
}

void OffloadPool::drop_for_calls() {
    drop_unless([](const Work& work) { return !work.for_call; });
}

void OffloadPool::refuse() {
    {
        const std::lock_guard lock(mutex_);
        refusing_ = true;
    }
    drop_unless([](const Work&) { return false; });
}

bool OffloadPool::is_idle() {
    const std::lock_guard lock(mutex_);
    return queue_.empty() && idle_ == threads_.size();
}

void OffloadPool::stop() {
    std::vector<std::thread> threads;
    {
        std::lock_guard lock(mutex_);
        stopping_ = true;
        threads.swap(threads_);
    }
    changed_.notify_all();
    for (std::thread& thread : threads) thread.join();
}

}  // namespace weft::core
