// A pair of simulated runtimes and an io_context, all turned by one thread.
#pragma once

#include <weft/asio.h>
#include <boost/asio.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>

// Present in 1.81, unless a distribution omits it.
#if __has_include(<boost/asio/any_completion_handler.hpp>)
#include <boost/asio/any_completion_handler.hpp>
#define WEFT_TEST_ANY_COMPLETION 1
#else
#define WEFT_TEST_ANY_COMPLETION 0
#endif

#include "support/echo.h"

namespace weft::test {

namespace asio = boost::asio;

struct AsioPair : EchoPair {
    asio::io_context io{1};

    // Turns both runtimes and runs the io_context until `done`.
    template <class Done>
    bool run_until(Done done) {
        return rig.run_until([&] {
            io.poll();
            io.restart();
            return done();
        });
    }
    // Runs everything that could still happen after the end.
    void run_until_idle() {
        rig.run_for(1s);
        io.poll();
        io.restart();
    }
};

struct Allocations {
    int made = 0;
    int live = 0;
};

// Counts the allocations made through it.
template <class T>
struct CountingAllocator {
    using value_type = T;

    explicit CountingAllocator(Allocations& in) : counts(&in) {}
    template <class U>
    CountingAllocator(const CountingAllocator<U>& other) : counts(other.counts) {}
    T* allocate(std::size_t n) {
        ++counts->made;
        ++counts->live;
        return std::allocator<T>().allocate(n);
    }
    void deallocate(T* at, std::size_t n) {
        --counts->live;
        std::allocator<T>().deallocate(at, n);
    }
    template <class U>
    bool operator==(const CountingAllocator<U>& other) const {
        return counts == other.counts;
    }

    Allocations* counts;
};

}  // namespace weft::test
