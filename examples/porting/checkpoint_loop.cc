// checkpoint_loop ADDRESS: a client without threads, which makes progress by itself.
#include <poll.h>

#include <algorithm>
#include <iostream>

#include <weft/runtime.h>

#include "checkpoint.h"

using namespace weft;

// The outcome of a call, set by its callback.
struct Outcome {
    bool is_there = false;
    Status status;
    std::uint64_t moved = 0;
};

void start(const Channel& channel, const MethodId& method, const Request& request, Outcome& into) {
    channel.call(method, encode(request), {.timeout = 10s},
                 [&into](const Status& status, ByteView reply) {
                     into = {true, status, decode_size(reply)};
                 });
}

// Called between two turns, each of which makes progress and runs the callbacks that are due.
void sleep_until_something_is_there(Runtime& runtime) {
    if (!runtime.arm()) return;
    constexpr Duration longest = 1h;
    const TimePoint now = std::chrono::steady_clock::now();
    const Duration wait = std::clamp(runtime.next_deadline() - now, Duration(0), longest);
    pollfd watched{runtime.wait_fd(), POLLIN, 0};
    poll(&watched, 1, static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(wait).count()));
}

Status save_and_load(Runtime& runtime, const Channel& channel) {
    const Buffer state = runtime.allocate(3 << 20).value();
    std::fill_n(state.data(), state.size(), std::byte{42});
    {
        const Region region = runtime.expose(state, {.access = Access::read}).value();
        Outcome saved;
        start(channel, save_method, {region.ref(), "state"}, saved);
        while (!saved.is_there) {
            if (runtime.turn() == 0) sleep_until_something_is_there(runtime);
        }
        if (!saved.status.ok()) return saved.status;
        std::cout << "saved: " << saved.moved << " bytes\n";
    }
    std::fill_n(state.data(), state.size(), std::byte{0});
    const Region region = runtime.expose(state, {.access = Access::write}).value();
    Outcome loaded;
    start(channel, load_method, {region.ref(), "state"}, loaded);
    // The same loop, as a function of the runtime; the call ends by its deadline.
    runtime.turn_until([&] { return loaded.is_there; }, 20s);
    if (!loaded.status.ok()) return loaded.status;
    const bool same = state.data()[0] == std::byte{42} && loaded.moved == state.size();
    std::cout << "loaded: " << (same ? "the same" : "something else") << '\n';
    return {};
}

int main(int argc, char** argv) try {
    if (argc != 2) return std::cerr << "usage: checkpoint_loop ADDRESS\n", 64;
    Runtime runtime = Runtime::create({.manual = true}).value();
    const Channel channel = runtime.connect(argv[1]).value();
    const Status status = save_and_load(runtime, channel);
    if (!status.ok()) std::cerr << status.to_string() << '\n';
    return static_cast<int>(status.code());
} catch (const BadResult& error) {
    std::cerr << error.what() << '\n';
    return static_cast<int>(error.status().code());
}
