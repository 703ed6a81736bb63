// A system that can't create threads.
#pragma once

#include <pthread.h>

#include <cstddef>

#include "support/catch.h"

namespace weft::test {

// During its lifetime every thread creation fails: its stack would not fit into the address space.
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
