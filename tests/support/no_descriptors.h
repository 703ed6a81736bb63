// A process without free file descriptors.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>

#include <vector>

#include "base/unique_fd.h"
#include "support/catch.h"

namespace weft::test {

// During its lifetime the process has no descriptor left.
class NoDescriptors {
  public:
    NoDescriptors() {
        REQUIRE(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
        rlimit tight = before_;
        tight.rlim_cur = 256;
        REQUIRE(::setrlimit(RLIMIT_NOFILE, &tight) == 0);
        while (true) {
            base::UniqueFd fd(::fcntl(0, F_DUPFD_CLOEXEC, 0));
            if (!fd) break;
            hoard_.push_back(std::move(fd));
        }
    }
    ~NoDescriptors() {
        hoard_.clear();
        ::setrlimit(RLIMIT_NOFILE, &before_);
    }
    NoDescriptors(const NoDescriptors&) = delete;
    NoDescriptors& operator=(const NoDescriptors&) = delete;

  private:
    rlimit before_{};
    std::vector<base::UniqueFd> hoard_;
};

}  // namespace weft::test
