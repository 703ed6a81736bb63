#include "core/offload_pool.h"

#include <algorithm>
#include <iterator>

#include "base/quiet_thread.h"

namespace weft::core {

void OffloadPool::run(Function<void()> work, bool for_call) {
    {
        std::lock_guard lock(mutex_);
        if (!stopping_) {
            queue_.push_back({std::move(work), for_call});
            if (queue_.size() > idle_ && threads_.size() < threads_max_) {
                try {
                    threads_.push_back(base::start_quiet_thread([this] { loop(); }));
                } catch (const std::system_error& error) {
                    if (threads_.empty()) {  // Nothing would run it.
                        queue_.pop_back();
                        throw NoThread(error.code(),
                                       "no thread for offload() (ulimit -u, or the pids limit of "
                                       "the cgroup)");
                    }
                }
            }
            changed_.notify_one();
            return;
        }
    }
    work();
}

void OffloadPool::loop() {
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

void OffloadPool::drop(Queued which) {
    std::deque<Work> dropped;  // Destroyed without the lock: it may run user code.
    const std::lock_guard lock(mutex_);
    const auto kept = std::stable_partition(queue_.begin(), queue_.end(), [&](const Work& work) {
        return which == Queued::for_calls && !work.for_call;
    });
    std::move(kept, queue_.end(), std::back_inserter(dropped));
    queue_.erase(kept, queue_.end());
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
