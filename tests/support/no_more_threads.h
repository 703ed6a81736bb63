// A system that gives no thread.
#pragma once

#include <pthread.h>

#include <cstddef>

#include "support/catch.h"

namespace weft::test {

// While it lives no thread can be made: each would get a stack that no address space holds.
class NoMoreThreads {
  public:
    NoMoreThreads() {
        REQUIRE(pthread_getattr_default_np(&before_) == 0);
        pthread_attr_t attributes;
        REQUIRE(pthread_attr_init(&attributes) == 0);
        REQUIRE(pthread_attr_setstacksize(&attributes, std::size_t{1} << 47) == 0);
        REQUIRE(pthread_setattr_default_np(&attributes) == 0);
        pthread_attr_destroy(&attributes);
    }
    ~NoMoreThreads() {
        pthread_setattr_default_np(&before_);
        pthread_attr_destroy(&before_);
    }

  private:
    pthread_attr_t before_;
};

}  // namespace weft::test
