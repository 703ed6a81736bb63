// What work for another context costs: no allocation on either thread.
#include <cstdint>

#include <weft/runtime.h>

#include "alloc/counting_new.h"
#include "support/catch.h"
#include "support/contexts.h"

using namespace weft;

namespace {

constexpr std::uint64_t warm_up_submits = 1000;

// Submits to the context again and again; returns the allocations of this thread.
Task<std::uint64_t> submit_often(const Runtime& runtime, unsigned to, std::uint64_t times) {
    std::uint64_t runs = 0, before = 0;
    const auto work = [&] { return ++runs; };
    for (std::uint64_t i = 0; i < warm_up_submits + times; ++i) {
        if (i == warm_up_submits) before = test::allocations();
        (void)co_await runtime.context(to).submit(work);
    }
    const std::uint64_t made = test::allocations() - before;
    co_return runs == warm_up_submits + times ? made : UINT64_MAX;
}

}  // namespace

// `make soak` has a million: SUBMITS=n.
TEST_CASE("submits in both directions at once allocate nothing", "[submits]") {
    const std::uint64_t times = test::setting("SUBMITS", 50'000);
    Runtime runtime = Runtime::create(test::with_contexts(2)).value();
    const auto there = [&](unsigned k) { return submit_often(runtime, 1 - k, times); };
    for (const std::uint64_t made : runtime.block_on(runtime.on_all(there))) CHECK(made == 0);
}
