// The service and its client in a simulated network: one thread, a virtual clock, and an order of
// events that the seed decides. `greeter_test 17` repeats the run of seed 17.
#include <cstdlib>
#include <iostream>
#include <memory>

#include <weft/sim.h>

#include "greeter.h"

using namespace std::chrono_literals;

namespace {

int failures = 0;

void check(bool holds, const char* what, std::uint64_t seed) {
    if (holds) return;
    ++failures;
    std::cerr << "seed " << seed << ": failed: " << what << '\n';
}

std::shared_ptr<void> serve(weft::Runtime& runtime) {
    auto service = std::make_shared<Greeter>();
    if (weft::Status status = runtime.serve(*service, "sim://server"); !status.ok()) {
        throw weft::BadResult(status);
    }
    return service;
}

void run(std::uint64_t seed) {
    weft::sim::Simulation world(seed);
    world.add("server", serve);
    world.add("client", [](weft::Runtime&) { return nullptr; });
    weft::Runtime& client = *world.runtime("client");
    const weft::Channel channel = client.connect("sim://server").value();

    weft::Result<std::string> text = client.block_on(greet(channel, "reader"));
    check(text && *text == "hello reader", "the server greets", seed);

    text = client.block_on(greet(channel, ""));
    check(text.status().code() == weft::Code::invalid_argument, "an empty name is refused", seed);

    // The server's host crashes and restarts after a second: the call waits for it.
    world.crash("server");
    world.in(1s, [&] { world.start("server"); });
    text = client.block_on(greet(channel, "reader"));
    check(text && *text == "hello reader", "a call outlives a restart of its server", seed);

    // The host does not restart: the call fails long before its deadline.
    world.crash("server");
    const weft::TimePoint before = world.now();
    text = client.block_on(greet(channel, "reader"));
    check(text.status().code() == weft::Code::unavailable, "a lost server is reported", seed);
    check(world.now() - before < 3s, "a lost server is reported in time", seed);
}

}  // namespace

int main(int argc, char** argv) {
    const std::uint64_t first = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
    const std::uint64_t last = argc > 1 ? first : 100;
    for (std::uint64_t seed = first; seed <= last; ++seed) run(seed);
    if (failures == 0) std::cout << "all seeds hold\n";
    return failures == 0 ? 0 : 1;
}
