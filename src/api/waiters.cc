#include "api/waiters.h"

#include <algorithm>

namespace weft::api {

Waiters::Within::Within(Waiters& waiters, detail::BlockedThread& waiter)
    : waiters_(waiters), waiter_(waiter) {
    const std::lock_guard lock(waiters_.mutex_);
    waiters_.all_.push_back(&waiter_);
}

Waiters::Within::~Within() {
    const std::lock_guard lock(waiters_.mutex_);
    std::erase(waiters_.all_, &waiter_);
}

// One whose coroutine has begun and not ended; nullptr: there is none.
detail::BlockedThread* Waiters::take() {
    const std::lock_guard lock(mutex_);
    have_ended_ = true;
    const auto found =
        std::find_if(all_.begin(), all_.end(), [](const auto* one) { return one->root; });
    if (found == all_.end()) return nullptr;
    detail::BlockedThread* const waiter = *found;
    all_.erase(found);
    return waiter;
}

// What is destroyed may end other waiters' coroutines, and wait for their threads.
void Waiters::end() {
    while (const detail::BlockedThread* const waiter = take()) {
        detail::Root& root = *waiter->root;
        root.is_dropped = true;
        if (root.held == 0) root.coroutine.destroy();
    }
}

bool Waiters::have_ended() const {
    const std::lock_guard lock(mutex_);
    return have_ended_;
}

}  // namespace weft::api
