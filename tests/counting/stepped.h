// A client and a server stepped by one thread over sm, to count the cost of one call: the
// difference of two runs with different numbers of calls is the calls' alone.
//
//   PROGRAM CALLS [CONTEXTS [away]]     prints the heap allocations made after the warm-up
//
// With several contexts each of the client calls one of the server, CALLS times; "away": through
// channels of another context than the caller's.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

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

inline Runtime make_runtime(unsigned contexts) {
    api::RuntimeParts parts = api::production_parts();
    parts.clock = std::make_shared<SteppedClock>();
    RuntimeOptions options{.contexts = contexts, .manual = true};
    if (contexts == 1) options.wait = WaitMode::spin;  // Each needs a cpu otherwise.
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

// The same with several contexts: those of the server, then those of the client.
[[gnu::noinline]] inline void run_calls_of_all(const std::vector<core::Context*>& contexts,
                                               std::vector<Caller>& callers, std::size_t calls,
                                               bool away) {
    for (std::size_t k = 0; k < callers.size(); ++k) {
        callers[k].left = calls;
        core::Context& context = *contexts[callers.size() + k];
        const core::Context::EnterGuard scope(context);
        context.refresh_time();
        if (!away) callers[k].channel = callers[k].channel.here();
        callers[k].next();
    }
    for (Caller& caller : callers) {  // They end in the same step.
        while (caller.left > 0) {
            for (core::Context* const context : contexts) context->turn(context->clock().now());
        }
    }
}

inline int run(int argc, char** argv, Service& service, void (*call)(Caller&)) {
    const std::size_t calls = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 1000;
    const auto contexts = static_cast<unsigned>(argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 1);
    const std::string uri = "sm://counting-" + std::to_string(getpid());
    Runtime server = make_runtime(contexts), client = make_runtime(contexts);
    if (Status status = server.serve(shared(service), uri); !status.ok()) {
        std::fprintf(stderr, "%s\n", status.to_string().c_str());
        return 1;
    }
    const Channel channel = client.connect(uri).value();
    std::vector<Caller> callers;
    for (unsigned k = 0; k < contexts; ++k) {
        callers.push_back({call, contexts == 1 ? channel : channel.on(k)});
    }
    const bool away = argc > 3 && std::string(argv[3]) == "away";
    std::vector<core::Context*> all;
    for (Runtime* const runtime : {&server, &client}) {
        for (const auto& node : impl_of(*runtime).nodes) all.push_back(&node->context);
    }
    const auto run_for = [&](std::size_t count) {
        if (contexts == 1) return run_calls(server, client, callers.front(), count);
        run_calls_of_all(all, callers, count, away);
    };
    run_for(2000);
    const std::size_t before = allocations;
    run_for(calls);
    std::printf("{\"calls\":%zu,\"allocations\":%zu}\n", calls, allocations - before);
    return 0;
}

}  // namespace weft::counting
