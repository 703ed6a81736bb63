// A client and a server stepped by one thread over sm, to count the cost of one call: the
// difference of two runs with different numbers of calls is the calls' alone.
//
//   PROGRAM CALLS     prints the heap allocations made after the warm-up
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include <weft/runtime.h>

#include "api/runtime_impl.h"
#include "base/steady_clock.h"

namespace weft::counting {

inline std::size_t allocations = 0;

// Every turn takes the same time, whatever the load of the machine, so that timed work is the same
// in each run. It still reads the real clock, because that read has a cost.
class SteppedClock final : public base::Clock {
  public:
    TimePoint now() const override {
        (void)real_.now();
        return now_ += 100ns;
    }

  private:
    base::SteadyClock real_;
    mutable TimePoint now_{};
};

inline Runtime make_runtime() {
    api::RuntimeParts parts = api::production_parts();
    parts.clock = std::make_shared<SteppedClock>();
    RuntimeOptions options{.wait = WaitMode::spin, .manual = true};
    return Runtime::from_impl(api::RuntimeImpl::make(std::move(options), std::move(parts)).value())
        .value();
}

}  // namespace weft::counting

// Every allocation of the program and its libraries passes through here. Include in one file of a
// program.
extern "C" void* __libc_malloc(std::size_t bytes);
extern "C" void* malloc(std::size_t bytes) {
    ++weft::counting::allocations;
    return __libc_malloc(bytes);
}

namespace weft::counting {

// Calls in sequence: each completion starts the next call.
struct Caller {
    void (*call)(Caller&) = nullptr;
    Channel channel;
    std::size_t left = 0;

    void next() { call(*this); }
    void on_done(const Status& status) {
        if (!status.ok()) {
            std::fprintf(stderr, "%s\n", status.to_string().c_str());
            std::exit(1);
        }
        if (--left > 0) next();
    }
};

// Separate and never inlined: callgrind counts the instructions inside.
[[gnu::noinline]] inline void run_calls(Runtime& server, Runtime& client, Caller& caller,
                                        std::size_t calls) {
    caller.left = calls;
    caller.next();
    while (caller.left > 0) {
        server.turn();
        client.turn();
    }
}

inline int run(int argc, char** argv, Service& service, void (*call)(Caller&)) {
    const std::size_t calls = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 1000;
    const std::string uri = "sm://counting-" + std::to_string(getpid());
    Runtime server = make_runtime(), client = make_runtime();
    if (Status status = server.serve(service, uri); !status.ok()) {
        std::fprintf(stderr, "%s\n", status.to_string().c_str());
        return 1;
    }
    Caller caller{call, client.connect(uri).value()};
    run_calls(server, client, caller, 2000);
    const std::size_t before = allocations;
    run_calls(server, client, caller, calls);
    std::printf("{\"calls\":%zu,\"allocations\":%zu}\n", calls, allocations - before);
    return 0;
}

}  // namespace weft::counting
