#include "api/waiters.h"

#include <algorithm>

namespace weft::api {

Waiters::Within::Within(Waiters& waiters, detail::Waiter& waiter)
    : waiters_(waiters), waiter_(waiter) {
    const std::lock_guard lock(waiters_.mutex_);
    waiters_.all_.push_back(&waiter_);
}

Waiters::Within::~Within() {
    const std::lock_guard lock(waiters_.mutex_);
    std::erase(waiters_.all_, &waiter_);
}

// No waiter goes on meanwhile.
void Waiters::end() {
    const std::lock_guard lock(mutex_);
    have_ended_ = true;
    for (detail::Waiter* waiter : all_) {
        detail::Root* const root = waiter->root;
        if (!root) continue;  // It has ended, or not begun.
        root->is_dropped = true;
        if (root->held == 0) root->coroutine.destroy();
    }
}

bool Waiters::have_ended() const {
    const std::lock_guard lock(mutex_);
    return have_ended_;
}

}  // namespace weft::api
