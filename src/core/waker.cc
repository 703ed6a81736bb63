#include "core/waker.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "base/own_descriptor.h"

namespace weft::core {

Waker::Waker()
    : fd_(base::UniqueFd::close_on_fork([] { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); })) {}

void Waker::end_sleep() {
    cancel_sleep();
    std::uint64_t drained = 0;
    (void)base::check_open(read(fd(), &drained, sizeof drained));
}

void Waker::wake() {
    if (!sleeping_.exchange(false, std::memory_order_seq_cst)) return;
    if (is_forked_) return;
    const std::uint64_t one = 1;
    const base::MutexLock lock(mutex_);
    if (fd_) (void)base::check_open(write(fd_.get(), &one, sizeof one));
}

void Waker::close() {
    base::UniqueFd closing;
    const base::MutexLock lock(mutex_);  // Another thread may be in wake().
    closing = std::move(fd_);
}

}  // namespace weft::core
