// checkpoint_blocking ADDRESS: the same client for a program that waits for each call in turn.
#include <algorithm>
#include <iostream>

#include <weft/await.h>
#include <weft/runtime.h>

#include "checkpoint.h"

using namespace weft;

Task<Result<std::uint64_t>> forward(Channel channel, MethodId method, Request request) {
    Result<std::vector<std::byte>> reply =
        co_await call(channel, method, encode(request), {.timeout = 10s});
    if (!reply) co_return std::move(reply).status();
    co_return decode_size(*reply);
}

// Starts two calls, then waits for both.
Task<Status> save_halves(Runtime& runtime, Channel channel, Buffer state) {
    const Result<Region> region = runtime.expose(state, {.access = Access::read});
    if (!region) co_return region.status();
    const std::size_t half = state.size() / 2;
    const auto low = encode({region->ref(0, half), "low"});
    const auto high = encode({region->ref(half, half), "high"});
    auto first = call(channel, save_method, low);
    auto second = call(channel, save_method, high);
    const auto saved = co_await first;
    const auto saved_too = co_await second;
    co_return saved ? saved_too.status() : saved.status();
}

int main(int argc, char** argv) try {
    if (argc != 2) return std::cerr << "usage: checkpoint_blocking ADDRESS\n", 64;
    Runtime runtime = Runtime::create().value();  // The runtime has a thread that makes progress.
    const Channel channel = runtime.connect(argv[1]).value();
    const Buffer state = runtime.allocate(2 << 20).value();
    std::fill_n(state.data(), state.size(), std::byte{7});
    const Status saved = runtime.block_on(save_halves(runtime, channel, state));
    std::cout << "saved: " << saved.to_string() << '\n';

    const Buffer back = runtime.allocate(1 << 20).value();
    const Region region = runtime.expose(back, {.access = Access::write}).value();
    const auto loaded = runtime.block_on(forward(channel, load_method, {region.ref(), "high"}));
    std::cout << "loaded: " << loaded.status().to_string() << ", "
              << (back.data()[0] == std::byte{7} ? "the same" : "something else") << '\n';
    const auto missing = runtime.block_on(forward(channel, load_method, {region.ref(), "none"}));
    std::cout << "missing: " << missing.status().to_string() << '\n';
    return saved.ok() && loaded ? 0 : 1;
} catch (const BadResult& error) {
    std::cerr << error.what() << '\n';
    return static_cast<int>(error.status().code());
}
