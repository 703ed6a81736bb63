// Owner of a file descriptor.
#pragma once

#include <unistd.h>

#include <utility>

#include "base/fork.h"

namespace weft::base {

class UniqueFd {
  public:
    UniqueFd() = default;
    explicit UniqueFd(int fd) : fd_(fd) {}
    // A descriptor that forked children close at once: opened while `held` existed, or by `open`,
    // and then errno stays for the caller.
    static UniqueFd close_on_fork(int fd, const ForkBlocker& held) {
        CloseOnFork::add(fd, held);
        return UniqueFd(fd);
    }
    template <class Open>
    static UniqueFd close_on_fork(Open&& open) {
        const ForkBlocker held;
        return close_on_fork(open(), held);
    }
    UniqueFd(UniqueFd&& other) noexcept
        : fd_(std::exchange(other.fd_, -1)), process_(other.process_) {}
    UniqueFd& operator=(UniqueFd&& other) noexcept {
        if (this == &other) return *this;
        reset(std::exchange(other.fd_, -1));
        process_ = other.process_;
        return *this;
    }
    ~UniqueFd() { reset(); }

    int get() const { return fd_; }
    explicit operator bool() const { return fd_ >= 0; }
    void reset(int fd = -1) {
        const int old = std::exchange(fd_, fd);
        const OwnerProcess before = std::exchange(process_, OwnerProcess());
        if (!before.is_this()) return;  // In a child the number may be another file's.
        if (CloseOnFork::has(old)) {
            const ForkBlocker held;
            CloseOnFork::remove(old, held);
            ::close(old);
        } else if (old >= 0) {
            ::close(old);
        }
    }

  private:
    int fd_ = -1;
    OwnerProcess process_;
};

}  // namespace weft::base
