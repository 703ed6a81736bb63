// "A steady state allocates nothing", counted. The simulated network allocates for each message, so
// the cost of stubs is their difference to the same calls in bytes.
#include <weft/combine.h>

#include "alloc/counting_new.h"
#include "support/echo.h"

using namespace weft;
using echo::v1::EchoMethods;
using echo::v1::EchoReply;
using echo::v1::EchoRequest;
using test::allocations;
using test::EchoPair;
using test::request_of;

namespace {

struct RawEcho final : Service {
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(MethodId("raw.Raw/Echo"), [](Call call) { call.reply(call.request()); });
    }
};

struct AllocPair : EchoPair {
    RawEcho raw_echo;
    int completed = 0;
    EchoRequest request = request_of("a text that does not fit into a small string object");
    std::string body = request.SerializeAsString();
    AllocPair() { REQUIRE(server.add(raw_echo).ok()); }
    ~AllocPair() { rig.runtimes.clear(); }  // Destroyed before the service.

    // Allocations of 1000 calls in sequence, if they are all alike and like the 100 before them.
    template <class Start>
    std::uint64_t count(Start start) {
        const auto call = [&] {
            const int before = completed;
            start();
            while (completed == before) {
                if (!rig.run_until([&] { return completed > before; })) return;
            }
        };
        for (int i = 0; i < 100; ++i) call();
        const std::uint64_t before = allocations();
        for (int i = 0; i < 1000; ++i) call();
        REQUIRE(completed % 1100 == 0);
        return allocations() - before;
    }

    std::uint64_t count_raw() {
        return count([this] {
            channel.call(MethodId("raw.Raw/Echo"), as_bytes(body), {},
                         [this](const Status& status, ByteView) { completed += status.ok(); });
        });
    }
};

}  // namespace

TEST_CASE("a callback stub and an inline handler allocate nothing") {
    AllocPair pair;
    const std::uint64_t raw = pair.count_raw();
    const std::uint64_t stub = pair.count([&] {
        pair.stub().Now(pair.request, {}, [&pair](const Status& status, const EchoReply& reply) {
            pair.completed += status.ok() && reply.text() == pair.request.text();
        });
    });
    CHECK(stub == raw);
}

TEST_CASE("a coroutine handler allocates only pooled frames") {
    AllocPair pair;
    const std::uint64_t raw = pair.count_raw();
    const std::uint64_t stub = pair.count([&] {
        pair.stub().Hasty(pair.request, {}, [&pair](const Status& status, const EchoReply&) {
            pair.completed += status.ok();
        });
    });
    // The empty reply is a shorter message; the network's part stays the same.
    CHECK(stub == raw);
}

TEST_CASE("an awaited call allocates only the fields of the reply") {
    AllocPair pair;
    const std::uint64_t raw = pair.count_raw();
    struct Loop {
        static Task<void> run(AllocPair& with, std::uint64_t& allocated) {
            const echo::v1::EchoClient stub(with.channel);
            for (int i = 0; i < 1100; ++i) {
                if (i == 100) allocated = allocations();
                Result<EchoReply> reply = co_await stub.Hasty(with.request);
                with.completed += reply.ok();
            }
            allocated = allocations() - allocated;
        }
    };
    std::uint64_t awaited = 0;
    pair.completed = 0;
    pair.client.spawn(Loop::run(pair, awaited));
    REQUIRE(pair.rig.run_until([&] { return pair.completed == 1100; }));
    CHECK(awaited == raw);
}

namespace {

// Awaits `rounds` results of `make`, and counts the allocations after the first hundred.
template <class Make>
Task<void> repeat_combined(int rounds, Make make, std::uint64_t& allocated, bool& is_over) {
    for (int i = 0; i < rounds; ++i) {
        if (i == 100) allocated = allocations();
        (void)co_await make();
    }
    allocated = allocations() - allocated;
    is_over = true;
}

Task<int> pauses(Duration time) {
    (void)co_await sleep_for(time);
    co_return 1;
}

}  // namespace

TEST_CASE("sleeps and combined tasks allocate only pooled frames") {
    AllocPair pair;
    const auto count = [&](auto make) {
        std::uint64_t allocated = 0;
        bool is_over = false;
        pair.client.spawn(repeat_combined(1100, make, allocated, is_over));
        REQUIRE(pair.rig.run_until([&] { return is_over; }));
        return allocated;
    };
    CHECK(count([] { return sleep_for(1ms); }) == 0);
    CHECK(count([] { return sleep_for(0ms); }) == 0);
    CHECK(count([] { return when_all(pauses(1ms), pauses(2ms)); }) == 0);
    CHECK(count([] { return when_any(pauses(3ms), pauses(1ms)); }) == 0);
    CHECK(count([] { return with_timeout(5ms, pauses(1ms)); }) == 0);
}
