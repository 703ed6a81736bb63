// Timeouts at the limits of Duration.
#include "support/raw_echo.h"

namespace weft::rpc_timeout_range_test {
namespace {

TEST_CASE("a call with a timeout of years is answered, and a negative timeout expires at once") {
    test::Pair pair;
    const Duration years[] = {std::chrono::hours(24 * 365 * 10), Duration::max() - 1ns,
                              Duration::max()};
    for (const Duration timeout : years) {
        test::CallOutcome outcome;
        pair.channel.call(test::echo_method, as_bytes("x"), {.timeout = timeout}, outcome.done());
        REQUIRE(pair.rig.run_until([&] { return outcome.completions == 1; }));
        CHECK(outcome.status.ok());
        CHECK(outcome.reply == "x");
    }
    for (const Duration timeout : {Duration(-1ns), Duration::min()}) {
        test::CallOutcome outcome;
        pair.channel.call(test::echo_method, {}, {.timeout = timeout}, outcome.done());
        REQUIRE(pair.rig.run_until([&] { return outcome.completions == 1; }));
        CHECK_FALSE(outcome.status.ok());
        CHECK(pair.service.handled == 3);
    }
}

}  // namespace
}  // namespace weft::rpc_timeout_range_test
