// Memory of a runtime with several contexts: a reference is valid over the connections of all, and
// a fence asks those that have used it.
#include <algorithm>
#include <atomic>
#include <fstream>
#include <future>
#include <latch>
#include <set>
#include <string>
#include <thread>

#include <weft/await.h>
#include <weft/sleep.h>

#include "api/runtime_impl.h"
#include "support/contexts.h"
#include "support/echo.h"
#include "support/fresh_uri.h"
#include "support/private_memory.h"
#include "support/test_timeout.h"
#include "support/usable.h"
#include "support/wait_for.h"

using namespace weft;
using namespace weft::test;

namespace {

constexpr std::size_t region_bytes = 256 * 1024;

// A server with several contexts, and clients that together have connections to all of them.
struct Cluster {
    Runtime server;
    std::vector<Runtime> clients;
    std::vector<Channel> channels;
    std::set<unsigned> reached;

    Cluster(const std::string& scheme, unsigned contexts)
        : server(Runtime::create(with_contexts(contexts)).value()) {
        REQUIRE(server.listen(fresh_uri(scheme)).ok());
        while (reached.size() < contexts) {
            REQUIRE(clients.size() < 8 * contexts);
            clients.push_back(Runtime::create(with_contexts(1)).value());
            channels.push_back(clients.back().connect(server.addresses().front()).value());
            REQUIRE(ping(clients.size() - 1).ok());
            reached.insert(node_of(clients.back()).commons.contexts());
            reached = contexts_with_peers();
        }
    }
    Status ping(std::size_t i) {
        static constexpr MethodId method("weft.Node/Ping");
        const auto pinged = [this, i]() -> Task<Status> {
            co_return (co_await call(channels[i], method, {})).status();
        };
        return clients[i].block_on(pinged());
    }
    std::set<unsigned> contexts_with_peers() {
        std::set<unsigned> all;
        for (const auto& node : impl_of(server).nodes) {
            node->on_context([&] {
                for (const auto& slot : node->context.endpoints()) {
                    for (const core::Peer* peer : slot->peers) {
                        if (peer && peer->state == core::PeerState::up) all.insert(node->index);
                    }
                }
            });
        }
        return all;
    }
    Status transfer(std::size_t i, na::RmaKind kind, const RegionRef& ref, Buffer local) {
        const auto moved = [&]() -> Task<Status> {
            if (kind == na::RmaKind::get) co_return co_await get(channels[i], ref, 0, local);
            co_return co_await put(channels[i], ref, 0, local);
        };
        return clients[i].block_on(moved());
    }
    std::uint64_t asked() {
        std::uint64_t all = 0;
        for (const auto& node : impl_of(server).nodes)
            node->on_context([&] { all += node->bulk.regions->counters().asked; });
        return all;
    }
};

void fill(const Buffer& buffer, std::uint8_t with) {
    std::ranges::fill(buffer.bytes(), std::byte{with});
}

bool is_filled(const Buffer& buffer, std::uint8_t with) {
    return std::ranges::all_of(buffer.bytes(),
                               [&](std::byte one) { return one == std::byte{with}; });
}

}  // namespace

TEST_CASE("context regions: a reference is read and written over the connections of all contexts") {
    for (const std::string& scheme : steering) {
        CAPTURE(scheme);
        Cluster cluster(scheme, 3);
        // Exposed on each of the contexts.
        for (unsigned home = 0; home < 3; ++home) {
            CAPTURE(home);
            const Buffer memory = cluster.server.allocate(region_bytes).value();
            fill(memory, 7);
            const auto expose = [&] {
                return cluster.server.expose(memory, {.access = Access::read_write}).value();
            };
            const auto expose_there = [&]() -> Task<Region> {
                co_return co_await cluster.server.context(home).submit(expose);
            };
            Region region = cluster.server.block_on(expose_there());
            for (std::size_t i = 0; i < cluster.clients.size(); ++i) {
                CAPTURE(i);
                const Buffer local = cluster.clients[i].allocate(region_bytes).value();
                const Status got = cluster.transfer(i, na::RmaKind::get, region.ref(), local);
                INFO(got.to_string());
                REQUIRE(got.ok());
                CHECK(is_filled(local, static_cast<std::uint8_t>(7 + i)));
                fill(local, static_cast<std::uint8_t>(8 + i));
                REQUIRE(cluster.transfer(i, na::RmaKind::put, region.ref(), local).ok());
                CHECK(is_filled(memory, static_cast<std::uint8_t>(8 + i)));
            }
            const RegionRef ref = region.ref();
            std::atomic<bool> is_fenced{false};
            region.close([&] { is_fenced = true; });
            CHECK(wait_for([&] { return is_fenced.load(); }));
            for (std::size_t i = 0; i < cluster.clients.size(); ++i) {
                const Buffer local = cluster.clients[i].allocate(region_bytes).value();
                CHECK(cluster.transfer(i, na::RmaKind::get, ref, local).code() ==
                      Code::permission_denied);
            }
        }
    }
}

TEST_CASE("context regions: a fence asks only the contexts that have used the region") {
    for (const std::string& scheme : steering) {
        if (scheme == "sm") continue;  // Its peers have a table of each context.
        CAPTURE(scheme);
        Cluster cluster(scheme, 3);
        const Buffer memory = cluster.server.allocate(region_bytes).value();
        const auto close = [&](Region region) {
            std::atomic<bool> is_fenced{false};
            region.close([&] { is_fenced = true; });
            REQUIRE(wait_for([&] { return is_fenced.load(); }));
        };
        for (int i = 0; i < 10; ++i)
            close(cluster.server.expose(memory, {.access = Access::read}).value());
        // An access with a wrong key is none.
        Region region = cluster.server.expose(memory, {.access = Access::read}).value();
        RegionRef forged = region.ref();
        forged.key ^= 1;
        for (std::size_t i = 0; i < cluster.clients.size(); ++i) {
            const Buffer local = cluster.clients[i].allocate(region_bytes).value();
            const Status got = cluster.transfer(i, na::RmaKind::get, forged, local);
            CHECK(got.code() == Code::permission_denied);
        }
        close(std::move(region));
        CHECK(cluster.asked() == 0);
        // Over all connections: each other context is asked once.
        region = cluster.server.expose(memory, {.access = Access::read}).value();
        for (int round = 0; round < 3; ++round) {
            for (std::size_t i = 0; i < cluster.clients.size(); ++i) {
                const Buffer local = cluster.clients[i].allocate(region_bytes).value();
                REQUIRE(cluster.transfer(i, na::RmaKind::get, region.ref(), local).ok());
            }
        }
        close(std::move(region));
        CHECK(cluster.asked() == 2);
    }
}

TEST_CASE("context regions: regions come and go while clients access them over all contexts") {
    for (const std::string& scheme : steering) {
        CAPTURE(scheme);
        Cluster cluster(scheme, 3);
        std::atomic<bool> is_over{false};
        std::mutex mutex;
        RegionRef current;
        std::atomic<int> moved{0};
        std::atomic<int> refused{0};
        std::atomic<int> odd{0};
        std::vector<std::thread> threads;
        for (std::size_t i = 0; i < cluster.clients.size(); ++i) {
            threads.emplace_back([&, i] {
                const Buffer local = cluster.clients[i].allocate(region_bytes).value();
                while (!is_over) {
                    RegionRef ref;
                    {
                        const std::lock_guard lock(mutex);
                        ref = current;
                    }
                    if (ref.length == 0) continue;
                    const Status status = cluster.transfer(
                        i, i % 2 == 0 ? na::RmaKind::get : na::RmaKind::put, ref, local);
                    if (status.ok()) {
                        ++moved;
                    } else if (status.code() == Code::permission_denied) {
                        ++refused;
                    } else {
                        ++odd;
                    }
                }
            });
        }
        const auto rounds = [&](unsigned) -> Task<void> {
            for (int i = 0; i < 60; ++i) {
                const Buffer memory = cluster.server.allocate(region_bytes).value();
                Region region =
                    cluster.server.expose(memory, {.access = Access::read_write}).value();
                {
                    const std::lock_guard lock(mutex);
                    current = region.ref();
                }
                (void)co_await sleep_for(1ms);
                bool is_fenced = false;
                region.close([&] { is_fenced = true; });
                const auto fenced = [&] { return is_fenced; };
                const bool has_come = co_await until(fenced);
                if (!has_come) std::abort();  // Its memory can't be used again.
                // From here on it is the program's own.
                std::ranges::fill(memory.bytes(), std::byte{0});
                (void)co_await sleep_for(50us);
                if (!is_filled(memory, 0)) ++odd;
            }
        };
        cluster.server.block_on(cluster.server.on_all(rounds));
        is_over = true;
        for (std::thread& thread : threads) thread.join();
        CHECK(odd == 0);
        CHECK(moved > 0);
    }
}

// A server of 64 contexts would run out of address space at 32 clients.
TEST_CASE("context regions: over sm a peer's arena is mapped once for all contexts") {
    const auto mapped = [] {
        std::ifstream maps("/proc/self/maps");
        std::size_t arenas = 0;
        for (std::string line; std::getline(maps, line);)
            arenas += line.find("weft-arena") != std::string::npos;
        return arenas;
    };
    Runtime server = Runtime::create(with_contexts(2)).value();
    REQUIRE(server.listen(fresh_uri("sm")).ok());
    const Buffer memory = server.allocate(region_bytes).value();
    const Region region = server.expose(memory, {.access = Access::read}).value();
    Runtime client = Runtime::create(with_contexts(4)).value();
    const Channel channel = client.connect(server.addresses().front()).value();
    const Buffer local = client.allocate(4 * region_bytes).value();
    const auto read = [&](unsigned k) -> Task<Status> {
        co_return co_await get(channel, region.ref(), 0,
                               local.slice(k * region_bytes, region_bytes));
    };
    const std::size_t before = mapped();
    for (const Status& status : client.block_on(client.on_all(read))) REQUIRE(status.ok());
    CHECK(mapped() == before + 1);
}

TEST_CASE("context regions: the end of a runtime fences the regions of all its contexts") {
    for (const std::string& scheme : steering) {
        CAPTURE(scheme);
        std::atomic<int> fenced{0};
        std::optional<Cluster> cluster(std::in_place, scheme, 3);
        const Buffer memory = cluster->server.allocate(region_bytes).value();
        std::vector<Region> regions;
        const auto expose = [&](unsigned) {
            return cluster->server.expose(memory, {.access = Access::read}).value();
        };
        regions = cluster->server.block_on(cluster->server.on_all(expose));
        for (const Region& region : regions) {
            for (std::size_t i = 0; i < cluster->clients.size(); ++i) {
                const Buffer local = cluster->clients[i].allocate(region_bytes).value();
                REQUIRE(cluster->transfer(i, na::RmaKind::get, region.ref(), local).ok());
            }
        }
        { const Runtime last = std::move(cluster->server); }
        for (Region& region : regions) region.close([&] { ++fenced; });
        CHECK(fenced == 3);
        cluster.reset();
    }
}

TEST_CASE("context regions: over ofi, context 0 grants the regions of the others") {
    const std::string uri = fresh_uri("ofi+tcp");
    if (!is_in_this_build(uri)) return;
    Runtime server = Runtime::create(with_contexts(2)).value();
    REQUIRE(server.listen(uri).ok());
    const Buffer memory = server.allocate(region_bytes).value();
    fill(memory, 7);
    const auto expose = [&] {
        return server.expose(memory, {.access = Access::read_write}).value();
    };
    const auto expose_there = [&]() -> Task<Region> {
        co_return co_await server.context(1).submit(expose);
    };
    Region region = server.block_on(expose_there());
    Runtime client = Runtime::create(with_contexts(1)).value();
    const Channel channel = client.connect(server.addresses().front()).value();
    const Buffer local = client.allocate(region_bytes).value();
    const RegionRef ref = region.ref();
    const auto read = [&]() -> Task<Status> { co_return co_await get(channel, ref, 0, local); };
    const auto write = [&]() -> Task<Status> { co_return co_await put(channel, ref, 0, local); };
    const Status got = client.block_on(read());
    INFO(got.to_string());
    REQUIRE(got.ok());
    CHECK(is_filled(local, 7));
    fill(local, 8);
    REQUIRE(client.block_on(write()).ok());
    CHECK(is_filled(memory, 8));
    std::atomic<bool> is_fenced{false};
    region.close([&] { is_fenced = true; });
    CHECK(wait_for([&] { return is_fenced.load(); }));
    CHECK(client.block_on(read()).code() == Code::permission_denied);
}

namespace {

// A server with a client of its context 1 over sm: its transfers need no thread of the server.
struct BlockedContext {
    std::latch goes_on{1};
    std::promise<void> begun;
    Runtime server = Runtime::create(with_contexts(2)).value();
    Runtime client = Runtime::create(with_contexts(1)).value();
    Buffer memory = server.allocate(4096).value();
    Buffer local = client.allocate(4096).value();
    Channel channel;

    // On return the thread of context 1 is blocked until release().
    BlockedContext() {
        REQUIRE(server.listen(fresh_uri("sm")).ok());
        channel = client.connect(server.addresses().front()).value().on(1);
        const Region first = expose({});
        REQUIRE(put_into(first.ref()).ok());
        server.context(1).executor().post([this] {
            begun.set_value();
            goes_on.wait();
        });
        begun.get_future().wait();
    }
    ~BlockedContext() { release(); }
    void release() {
        if (!goes_on.try_wait()) goes_on.count_down();
    }
    Region expose(Duration lease) {
        return server.expose(memory, {.access = Access::read_write, .lease = lease}).value();
    }
    Status put_into(const RegionRef& ref) {
        const auto moved = [&]() -> Task<Status> {
            co_return co_await put(channel, ref, 0, local);
        };
        return client.block_on(moved());
    }
};

}  // namespace

TEST_CASE("context regions: close() refuses the peers of a blocked context") {
    BlockedContext scene;
    Region region = scene.expose({});
    const RegionRef ref = region.ref();
    fill(scene.local, 3);
    REQUIRE(scene.put_into(ref).ok());
    CHECK(is_filled(scene.memory, 3));
    std::promise<void> closed;
    std::atomic<bool> is_fenced{false};
    scene.server.context(0).executor().post([&] {
        region.close([&] { is_fenced = true; });
        closed.set_value();
    });
    closed.get_future().wait();
    fill(scene.local, 4);
    CHECK(scene.put_into(ref).code() == Code::permission_denied);
    CHECK(is_filled(scene.memory, 3));
    CHECK_FALSE(is_fenced);
    scene.release();
    CHECK(wait_for([&] { return is_fenced.load(); }));
}

TEST_CASE("context regions: the end of a lease refuses the peers of a blocked context") {
    BlockedContext scene;
    const Region region = scene.expose(10ms);
    fill(scene.local, 4);
    CHECK(wait_for([&] { return scene.put_into(region.ref()).code() == Code::permission_denied; }));
    fill(scene.memory, 3);
    CHECK(scene.put_into(region.ref()).code() == Code::permission_denied);
    CHECK(is_filled(scene.memory, 3));
}
