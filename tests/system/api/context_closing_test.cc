// Regions of a context that a handler blocks: a close() of another thread, and the end of a lease,
// refuse the peers of every context.
#include <algorithm>
#include <atomic>
#include <future>
#include <latch>
#include <memory>
#include <mutex>
#include <thread>

#include <weft/await.h>
#include <weft/runtime.h>

#include "support/catch.h"
#include "support/contexts.h"
#include "support/fresh_uri.h"
#include "support/seed.h"
#include "support/test_timeout.h"
#include "support/wait_for.h"

using namespace weft;
using namespace weft::test;

namespace {

// A server with a client that has a connection to each of two contexts.
struct TwoContexts {
    std::latch goes_on{1};
    Runtime server = Runtime::create(with_contexts(2)).value();
    Runtime client = Runtime::create(with_contexts(1)).value();
    Buffer memory = server.allocate(4096).value();
    Buffer local = client.allocate(4096).value();
    Channel channels[2];  // To each context.

    explicit TwoContexts(const std::string& scheme) {
        REQUIRE(server.listen(fresh_uri(scheme)).ok());
        const Channel any = client.connect(server.addresses().front()).value();
        for (const unsigned k : {0u, 1u}) channels[k] = any.on(k);
        const Region first = expose({});
        for (const unsigned k : {0u, 1u}) REQUIRE(put_through(k, first.ref(), 0) == Code::ok);
    }
    ~TwoContexts() { release(); }
    Region expose(Duration lease) {
        return server.expose(memory, {.access = Access::read_write, .lease = lease}).value();
    }
    // Exposes a region on context 0. On return its thread is blocked, until release().
    Region expose_and_block(Duration lease) {
        const auto exposed = std::make_shared<std::promise<Region>>();
        server.context(0).executor().post([this, exposed, lease] {
            exposed->set_value(expose(lease));
            goes_on.wait();
        });
        return exposed->get_future().get();
    }
    void release() {
        if (!goes_on.try_wait()) goes_on.count_down();
    }
    Code put_through(unsigned context, const RegionRef& ref, std::uint8_t value) {
        std::ranges::fill(local.bytes(), std::byte{value});
        const auto moved = [&]() -> Task<Status> {
            co_return co_await put(channels[context], ref, 0, local);
        };
        return client.block_on(moved()).code();
    }
    bool holds(std::uint8_t value) const {
        return std::ranges::all_of(memory.bytes(),
                                   [&](std::byte one) { return one == std::byte{value}; });
    }
};

// Contexts that serve transfers while context 0 is blocked; over sm, peers copy by themselves.
std::vector<unsigned> served_by(const std::string& scheme) {
    return scheme == "sm" ? std::vector{0u, 1u} : std::vector{1u};
}

}  // namespace

TEST_CASE("context regions: a close() of another thread needs no turn of the blocked context") {
    for (const std::string& scheme : steering) {
        CAPTURE(scheme);
        TwoContexts scene(scheme);
        Region region = scene.expose_and_block({});
        const RegionRef ref = region.ref();
        for (const unsigned k : served_by(scheme))
            REQUIRE(scene.put_through(k, ref, 3) == Code::ok);
        std::atomic<int> fenced{0};
        region.close([&] { ++fenced; });
        for (const unsigned k : served_by(scheme))
            CHECK(scene.put_through(k, ref, 4) == Code::permission_denied);
        CHECK(scene.holds(3));
        CHECK(fenced == 0);
        scene.release();
        CHECK(wait_for([&] { return fenced.load() == 1; }));
        for (const unsigned k : {0u, 1u})
            CHECK(scene.put_through(k, ref, 5) == Code::permission_denied);
        CHECK(scene.holds(3));
    }
}

TEST_CASE(
    "context regions: a lease ends at the peers of every context, though its own is blocked") {
    for (const std::string& scheme : steering) {
        CAPTURE(scheme);
        TwoContexts scene(scheme);
        const Region region = scene.expose_and_block(20ms);
        const auto is_refused_through = [&](unsigned k) {
            return wait_for(
                [&] { return scene.put_through(k, region.ref(), 4) == Code::permission_denied; });
        };
        for (const unsigned k : served_by(scheme)) CHECK(is_refused_through(k));
        std::ranges::fill(scene.memory.bytes(), std::byte{3});
        for (const unsigned k : served_by(scheme))
            CHECK(scene.put_through(k, region.ref(), 5) == Code::permission_denied);
        CHECK(scene.holds(3));
        scene.release();
        CHECK(is_refused_through(0));  // From its next turn on.
        std::ranges::fill(scene.memory.bytes(), std::byte{3});
        for (const unsigned k : {0u, 1u})
            CHECK(scene.put_through(k, region.ref(), 6) == Code::permission_denied);
        CHECK(scene.holds(3));
    }
}

// The end of the lease on its context, on the other one, and close() of this thread come in any
// order; the client writes meanwhile. The memory is the program's own from the fence on.
TEST_CASE("context regions: a close() races with the end of the lease, and is fenced once") {
    for (const std::string& scheme : steering) {
        CAPTURE(scheme);
        TwoContexts scene(scheme);
        std::atomic<bool> is_over{false};
        std::mutex mutex;
        RegionRef current;
        std::thread writer([&] {
            for (unsigned i = 0; !is_over; ++i) {
                RegionRef ref;
                {
                    const std::lock_guard lock(mutex);
                    ref = current;
                }
                if (ref.length != 0) (void)scene.put_through(i % 2, ref, 7);
            }
        });
        int odd = 0;
        std::atomic<std::uint64_t> fenced{0};
        for (std::uint64_t i = 0; i < 60 && odd == 0; ++i) {
            const auto lease = Duration(1ms) + Duration(seed_of(i) * 7919 % 1500 * 1000);
            Region region = scene.expose(lease);
            {
                const std::lock_guard lock(mutex);
                current = region.ref();
            }
            const auto closes_at = std::chrono::steady_clock::now() + 2ms;
            while (std::chrono::steady_clock::now() < closes_at) std::this_thread::yield();
            region.close([&] { ++fenced; });
            // Without its fence the memory can't be used again.
            if (!wait_for([&] { return fenced.load() > i; })) std::abort();
            std::ranges::fill(scene.memory.bytes(), std::byte{0});
            const auto seen_at = std::chrono::steady_clock::now() + 100us;
            while (std::chrono::steady_clock::now() < seen_at) std::this_thread::yield();
            odd += !scene.holds(0) || fenced != i + 1;
        }
        is_over = true;
        writer.join();
        CHECK(odd == 0);
    }
}
