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
    // One that forked children close at once.
    static UniqueFd closed_in_children(int fd) {
        ClosedInChildren::add(fd);
        return UniqueFd(fd);
    }
    UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    UniqueFd& operator=(UniqueFd&& other) noexcept {
        if (this != &other) reset(std::exchange(other.fd_, -1));
        return *this;
    }
    ~UniqueFd() { reset(); }

    int get() const { return fd_; }
    explicit operator bool() const { return fd_ >= 0; }
    int release() {
        ClosedInChildren::remove(fd_);
        return std::exchange(fd_, -1);
    }
    void reset(int fd = -1) {
        if (fd_ >= 0) {
            ClosedInChildren::remove(fd_);
            ::close(fd_);
        }
        fd_ = fd;
    }

  private:
    int fd_ = -1;
};

}  // namespace weft::base
