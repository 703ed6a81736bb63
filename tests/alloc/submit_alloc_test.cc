// What work for another context costs: no allocation on either thread.
#include <cstdint>
#include <memory>
#include <string>

#include <weft/await.h>
#include <weft/runtime.h>

#include "alloc/counting_new.h"
#include "support/catch.h"
#include "support/contexts.h"
#include "support/fresh_uri.h"

using namespace weft;

namespace {

constexpr std::uint64_t warm_up_submits = 1000;

// Submits to the context again and again; returns the allocations of this thread and of that one.
Task<std::uint64_t> submit_often(const Runtime& runtime, unsigned to, std::uint64_t times) {
    std::uint64_t runs = 0, before = 0, before_there = 0;
    const auto work = [&] { return ++runs; };
    const auto count = [] { return test::allocations(); };
    for (std::uint64_t i = 0; i < warm_up_submits + times; ++i) {
        if (i == warm_up_submits) {
            before_there = co_await runtime.context(to).submit(count);
            before = test::allocations();
        }
        (void)co_await runtime.context(to).submit(work);
    }
    const std::uint64_t made = test::allocations() - before;
    const std::uint64_t made_there = co_await runtime.context(to).submit(count) - before_there;
    co_return runs == warm_up_submits + times ? made + made_there : UINT64_MAX;
}

constexpr MethodId submit_method("test.Alloc/Submit");

// Its handlers submit to the other context, and reply with the allocations of that.
struct Submitting final : Service {
    Submitting(const Runtime& of, const Here& here, std::uint64_t n)
        : runtime(of), other(1 - here.index), times(n) {}
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(submit_method, [this](Call call) {
            detail::run_detached(serve(std::move(call), *this), [] {});
        });
    }
    static Task<void> serve(Call call, const Submitting& self) {
        const std::uint64_t made = co_await submit_often(self.runtime, self.other, self.times);
        const std::string text = std::to_string(made);
        call.reply(as_bytes(text));
    }
    const Runtime& runtime;
    const unsigned other;
    const std::uint64_t times;
};

Task<std::string> ask_handler(Channel channel) {
    const auto reply = co_await call(channel, submit_method, {}, {.timeout = 1h});
    co_return reply ? std::string(as_text(*reply)) : reply.status().to_string();
}

}  // namespace

// `make soak` has a million: SUBMITS=n.
TEST_CASE("submits in both directions at once allocate nothing", "[submits]") {
    const std::uint64_t times = test::setting("SUBMITS", 50'000);
    Runtime runtime = Runtime::create(test::with_contexts(2)).value();
    const auto there = [&](unsigned k) { return submit_often(runtime, 1 - k, times); };
    for (const std::uint64_t made : runtime.block_on(runtime.on_all(there))) CHECK(made == 0);
}

TEST_CASE("submits of a handler, and the deadline that their work inherits, allocate nothing",
          "[submits]") {
    const std::uint64_t times = test::setting("SUBMITS", 50'000);
    Runtime server = Runtime::create(test::with_contexts(2)).value();
    const auto make = [&](const Here& here) {
        return std::make_unique<Submitting>(server, here, times);
    };
    REQUIRE(server.serve(make, test::fresh_uri("unix")).ok());
    Runtime client = Runtime::create(test::with_contexts(1)).value();
    const Channel channel = client.connect(server.addresses().front()).value();
    for (const unsigned context : {0u, 1u})
        CHECK(client.block_on(ask_handler(channel.on(context))) == "0");
}
