// Memory that a store exposes to a client that does not finish its read.
#include <fstream>
#include <future>

#include <weft/combine.h>
#include <weft/offload.h>

#include "core/context_options.h"
#include "support/gate.h"
#include "support/store_rig.h"

namespace weft::storage_extents_test {
namespace {

using test::Gate;
using test::pattern;
using test::StoreRig;

constexpr std::uint32_t all_it_may = storage::extents_client_bytes_max;

struct ExtentRig : StoreRig {
    ExtentRig() { REQUIRE(put("a", pattern(100'000)).ok()); }

    std::size_t lent() const { return node_of(*server).bulk.regions->open_regions(); }
    // Reads the client's whole share: refused as long as another extent of the client is open.
    Status read_next(storage::Client& client) {
        rig.run_for(100ms);  // The lease takes five seconds.
        CHECK(lent() == 0);
        return run(client.read_extent("a", 0, all_it_may)).status();
    }
};

TEST_CASE("storage: a read of an extent that is dropped at any point releases its share") {
    ExtentRig rig;
    storage::Client client = rig.make_client();
    const auto read = [&]() -> Task<Status> {
        co_return (co_await client.read_extent("a", 0, all_it_may)).status();
    };
    const auto drop = [](Gate& gate) -> Task<Status> {
        co_await gate;
        co_return fail(Code::cancelled, "dropped");
    };
    int turns = 0, dropped_after_lent = 0;
    for (Code ended = Code::cancelled; ended == Code::cancelled; ++turns) {
        CAPTURE(turns);
        Gate gate;
        ended = Code::unknown;
        const auto race = [&]() -> Task<void> {
            auto one = co_await when_any(read(), drop(gate));
            ended = one.value().code();
        };
        rig.client_runtime->spawn(race());
        int left = turns;
        rig.rig.run_until([&] { return left-- == 0 || ended == Code::ok; });
        dropped_after_lent += rig.lent() > 0;
        rig.client_runtime->executor().post([&] {
            if (ended == Code::unknown && gate.waiting) gate.release();
        });
        REQUIRE(rig.rig.run_until([&] { return ended != Code::unknown; }));
        const Status status = rig.read_next(client);
        REQUIRE(status.to_string() == "OK");
    }
    CHECK(dropped_after_lent > 0);
}

TEST_CASE("storage: an extent that its client can't take is closed at once") {
    ExtentRig rig;
    RuntimeOptions options;
    options.arena_bytes_max = 4u << 20;  // Too little for the extent.
    Runtime& small = rig.rig.add("small", options);
    storage::Client client = rig.make_client(small);
    std::optional<Result<Buffer>> read;
    small.spawn(StoreRig::keep(client.read_extent("a", 0, all_it_may), read));
    REQUIRE(rig.rig.run_until([&] { return read.has_value(); }));
    CHECK(read->status().code() == Code::resource_exhausted);
    rig.rig.run_for(100ms);
    CHECK(rig.lent() == 0);
}

// Blocks the offload threads of a runtime while it lives.
class HeldThreads {
  public:
    explicit HeldThreads(Runtime& runtime) {
        const unsigned threads = core::offload_threads_of(RuntimeOptions());
        for (unsigned i = 0; i < threads; ++i) runtime.spawn(hold(end_));
    }
    ~HeldThreads() { release_.set_value(); }

  private:
    static Task<void> hold(std::shared_future<void> end) {
        const auto wait = [end] { end.wait(); };
        co_await offload(wait);
    }
    std::promise<void> release_;
    std::shared_future<void> end_ = release_.get_future().share();
};

// Ends after the requests sent before have arrived: the method is served in its turn.
Task<void> round_trip(const storage::Client& client) {
    storage::GetConfigRequest in;
    in.set_key("none");
    (void)co_await client.stub().GetConfig(in);
}

Task<void> cancel_open(const storage::Client& client, Runtime& server) {
    storage::OpenExtentRequest open;
    open.set_extent(7);
    open.set_name("a");
    open.set_length(all_it_may);
    open.set_lease_ms(60'000);
    Status ended;
    const HeldThreads held(server);
    co_await round_trip(client);
    const OperationId id = client.stub().OpenExtent(
        open, {}, [&](const Status& status, const auto&) { ended = status; });
    co_await round_trip(client);
    CHECK(ended.ok());
    client.channel().cancel_call(id);
    co_await round_trip(client);
    CHECK(ended.code() == Code::cancelled);
}

// Retries until the server has ended the cancelled call, for at most 20 s.
Task<Status> read_soon(storage::Client& client) {
    const TimePoint end = now() + 20s;
    while (true) {
        const Status status = (co_await client.read_extent("a", 0, all_it_may)).status();
        if (status.code() != Code::resource_exhausted || now() > end) co_return status;
        (void)co_await sleep_for(1ms);
    }
}

// With threads, unlike the simulated network: there a handler that offloads misses no cancel.
TEST_CASE("storage: an extent is not exposed when its call is cancelled before the reply") {
    const test::TemporaryDirectory root;
    std::ofstream(root.path + "/a") << pattern(100'000);
    RuntimeOptions quiet;
    quiet.log_level = LogLevel::off;
    std::unique_ptr<storage::Store> store;
    Runtime server = Runtime::create(quiet).value();
    store = storage::Store::open(server, root.path).value();
    REQUIRE(server.serve(*store, "tcp://127.0.0.1:0").ok());
    Runtime runtime = Runtime::create(quiet).value();
    storage::Client client(runtime, runtime.connect(server.addresses().at(0)).value());
    runtime.block_on(cancel_open(client, server));
    CHECK(runtime.block_on(read_soon(client)).to_string() == "OK");
}

TEST_CASE("storage: an extent's number can't be used again while the extent is open") {
    ExtentRig rig;
    storage::OpenExtentRequest open;
    open.set_extent(7);
    open.set_name("a");
    open.set_length(1);
    CHECK(rig.call(storage::StoreMethods::OpenExtent, open).ok());
    const Status again = rig.call(storage::StoreMethods::OpenExtent, open).status();
    CHECK(again.code() == Code::already_exists);
    CHECK(again.effect() == Effect::none);
    CHECK(rig.lent() == 1);
    storage::CloseExtentRequest close;
    close.set_extent(7);
    CHECK(rig.call(storage::StoreMethods::CloseExtent, close).ok());
    rig.rig.run_until_idle();
    CHECK(rig.lent() == 0);
    CHECK(rig.call(storage::StoreMethods::OpenExtent, open).ok());
}

TEST_CASE("storage: a runtime may end while a read of an extent is in flight") {
    for (int turns = 0; turns < 40; ++turns) {
        ExtentRig rig;
        Runtime& ends = rig.rig.add("ends");
        storage::Client client = rig.make_client(ends);
        std::optional<Result<Buffer>> read;
        ends.spawn(StoreRig::keep(client.read_extent("a", 0, 1000), read));
        int left = turns;
        rig.rig.run_until([&] { return left-- == 0 || read; });
        rig.rig.runtimes.pop_back();
    }
}

}  // namespace
}  // namespace weft::storage_extents_test
