#include "api/waiters.h"

#include <algorithm>

#include "base/assert.h"
namespace weft::api {

Waiters::Registration::Registration(Waiters& waiters, detail::BlockedThread& waiter)
    : waiters_(waiters), waiter_(waiter) {
    const std::lock_guard lock(waiters_.mutex_);
    WEFT_ASSERT(std::ranges::find(waiters_.all_, &waiter_) == waiters_.all_.end());
    waiters_.all_.push_back(&waiter_);
}

Waiters::Registration::~Registration() {
    const std::lock_guard lock(waiters_.mutex_);
    std::erase(waiters_.all_, &waiter_);
}

// A waiter with a coroutine that has begun and not ended; nullptr: there is none.
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

// Destructors may end the coroutines of other waiters, and wait for their threads.
void Waiters::destroy_all() {
    while (const detail::BlockedThread* const waiter = take()) {
        WEFT_ASSERT(waiter->root);
        detail::AsyncRoot& root = *waiter->root;
        root.is_dropped = true;
        if (root.pin_count == 0) root.coroutine.destroy();
    }
}

bool Waiters::have_ended() const {
    const std::lock_guard lock(mutex_);
    return have_ended_;
}

}  // namespace weft::api
