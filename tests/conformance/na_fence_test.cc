// Fences: after region_fenced no byte of a peer is written any more.
#include <algorithm>
#include <atomic>
#include <thread>

#include "na/exposures.h"
#include "support/na_rma.h"
#include "support/seed.h"

using namespace weft;
using namespace weft::na;
using namespace weft::test;
using namespace weft::test::wires;

// False: noted, nothing to test.
static bool can_fence(NaRig& rig, NaPair& pair) {
    const Caps caps = pair.b->caps();
    if (!caps.fences_region)
        note_capability(rig.wire.scheme, "a fence needs each peer's acknowledgement or end");
    return caps.fences_region;
}

CONFORMANCE("a revoked region is refused, and its successor accepts only its own references") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable() || !has_rma(rig)) return;
    NaPair pair(rig);
    ExposedMemory region(rig, pair.b, 8192, Access::read_write);
    Buffer local = rig.allocate(4096);
    const RmaItem old = region.put(pair.ab, 0, local.bytes());
    REQUIRE(run(rig, pair.a, region.get(pair.ab, 0, local.bytes())) == Code::ok);
    region.close();
    if (!pair.b->caps().rma_checked) return;
    CHECK(run(rig, pair.a, old) == Code::permission_denied);
    region.expose();
    CHECK(run(rig, pair.a, old) == Code::permission_denied);
    CHECK(region.is_untouched());
    CHECK(run(rig, pair.a, region.put(pair.ab, 0, local.bytes())) == Code::ok);
    CHECK(pair.a.downs.empty());
}

CONFORMANCE_SEEDED("a fence completes, and no write arrives after it, whenever it is called") {
    const std::uint64_t seed = seed_of(GENERATE(range(0, 12)));
    auto rig = NaRig::on<TestType>(seed);
    if (!rig.usable() || !has_rma(rig)) return;
    INFO("repeat with TEST_SEED=" << seed);
    NaPair pair(rig);
    if (!can_fence(rig, pair)) return;
    constexpr std::size_t size = 512 * 1024;
    ExposedMemory region(rig, pair.b, size, Access::read_write);
    const std::size_t bytes = std::min(size, pair.a->limits().rma_bytes_max);
    Buffer local = rig.allocate(bytes);
    fill_random(local.bytes(), rig.random);
    for (int round = 0; round < 6; ++round) {
        for (int i = 0; i < 6; ++i) pair.a.post(region.put(pair.ab, 0, local.bytes()));
        const std::uint64_t turns = rig.random.next() % 150;
        for (std::uint64_t i = 0; i < turns && !pair.a.rma_under_way.empty(); ++i) rig.pump();
        if (!rig.caps().rma_checked) {
            // Where only the fabric checks access, core fences when every holder of a grant has
            // replied or disconnected (na/provider.h); a write in flight then would be performed.
            REQUIRE(rig.pump_until([&] { return pair.a.rma_under_way.empty(); }));
        }
        // All posted transfers have completed where core depends on that, so either value is valid.
        pair.b.fence(region.index(), rig.random.next() % 2 ? Holders::done : Holders::lost);
        // A post after the fence must not write either.
        pair.a.post(region.put(pair.ab, 0, local.bytes()));
        REQUIRE(rig.pump_until([&] { return pair.b.fenced.contains(region.index()); }));
        // The memory belongs to its owner again, even if the owner exposes it to others at once.
        const bool at_once = (rig.random.next() & 1) != 0;
        if (at_once) region.expose();
        fill_random(region.bytes().first(4096), rig.random);
        const std::vector<std::byte> shadow(region.bytes().begin(), region.bytes().end());
        REQUIRE(rig.pump_until([&] { return pair.a.rma_under_way.empty(); }));
        rig.run_until_idle();
        REQUIRE(std::ranges::equal(region.bytes(), shadow));
        if (!rig.caps().rma_checked) {
            // The fabric enforced the fence by ending the connection.
            note_capability(rig.wire.scheme, "a late transfer may cost its connection");
            if (!pair.a.downs.empty() || !pair.b.downs.empty()) return;
        }
        for (const auto& [cookie, code] : pair.a.rma_done) {
            if (!rig.caps().rma_checked) break;
            CHECK((code == Code::ok || code == Code::permission_denied));
        }
        pair.a.rma_done.clear();
        if (!at_once) region.expose();
    }
    CHECK(pair.a.downs.empty());
}

CONFORMANCE("a fence completes although a peer keeps posting to the region") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable() || !has_rma(rig)) return;
    NaPair pair(rig);
    if (!can_fence(rig, pair)) return;
    constexpr std::size_t size = 64 * 1024;
    ExposedMemory region(rig, pair.b, size, Access::read_write);
    Buffer local = rig.allocate(size);
    for (int round = 0; round < 8; ++round) {
        // One per turn, so that at each moment some transfers are in progress at the owner.
        const auto keep_posting = [&] {
            if (pair.a.rma_under_way.size() >= 64) return;
            pair.a.post(region.put(pair.ab, 0, local.bytes()));
        };
        for (int i = 0; i < round * 20; ++i) {
            keep_posting();
            rig.pump();
        }
        pair.b.fence(region.index());
        REQUIRE(rig.pump_until([&] {
            keep_posting();
            return pair.b.fenced.contains(region.index());
        }));
        REQUIRE(rig.pump_until([&] { return pair.a.rma_under_way.empty(); }));
        region.expose();
    }
}

CONFORMANCE("a fence completes although the writing peer disconnects") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable() || !has_rma(rig)) return;
    for (int turns = 0; turns < 20; turns += 4) {
        NaPair pair(rig);
        if (!can_fence(rig, pair)) return;
        ExposedMemory region(rig, pair.b, 256 * 1024, Access::read_write);
        const std::size_t bytes = std::min<std::size_t>(256 << 10, pair.a->limits().rma_bytes_max);
        Buffer local = rig.allocate(bytes);
        for (int i = 0; i < 4; ++i) pair.a.post(region.put(pair.ab, 0, local.bytes()));
        for (int i = 0; i < turns; ++i) rig.pump();
        pair.b.fence(region.index());
        rig.destroy(pair.a);
        REQUIRE(rig.pump_until([&] { return pair.b.fenced.contains(region.index()); }));
        const std::vector<std::byte> shadow(region.bytes().begin(), region.bytes().end());
        rig.run_until_idle();
        CHECK(std::ranges::equal(region.bytes(), shadow));
    }
}

// The steps of core when a runtime ends; the memory must not change after them.
static void end_owner(NaRig& rig, NaNode& owner, na::PeerId peer, const ExposedMemory& region) {
    if (!owner->caps().fenced_by_end) {
        owner.close(peer);
        owner.fence(region.index());
        REQUIRE(rig.pump_until([&] { return owner.fenced.contains(region.index()); }));
    }
    rig.destroy(owner);
}

CONFORMANCE("no write of a peer arrives in memory after the end of its owner") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable() || !has_rma(rig)) return;
    for (int turns = 0; turns < 30; turns += 3) {
        NaPair pair(rig);
        if (!can_fence(rig, pair)) return;
        if (!pair.b->caps().fenced_by_end)
            note_capability(rig.wire.scheme, "ends after its fences");
        const ExposedMemory region(rig, pair.b, 512 * 1024, Access::read_write);
        const std::size_t bytes = std::min<std::size_t>(512 << 10, pair.a->limits().rma_bytes_max);
        Buffer local = rig.allocate(bytes);
        for (int i = 0; i < 4; ++i) pair.a.post(region.put(pair.ab, 0, local.bytes()));
        for (int i = 0; i < turns; ++i) rig.pump();
        end_owner(rig, pair.b, pair.ba, region);
        const std::vector<std::byte> shadow(region.bytes().begin(), region.bytes().end());
        pair.a.post(region.put(pair.ab, 0, local.bytes()));
        REQUIRE(rig.pump_until([&] { return pair.a.rma_under_way.empty(); }));
        rig.run_until_idle();
        REQUIRE(std::ranges::equal(region.bytes(), shadow));
        rig.destroy(pair.a);
    }
}

CONFORMANCE("a region may be fenced at once, and again under a new generation") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable() || !has_rma(rig)) return;
    NaNode& node = rig.open();
    ExposedMemory region(rig, node, 4096, Access::read);
    for (int round = 0; round < 50; ++round) {
        region.close();
        region.expose();
    }
}

CONFORMANCE("a writer in another thread never writes after a fence") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable() || !has_rma(rig)) return;
    if (rig.wire.world) {
        note_capability("sim", "one thread only: races of threads are tested elsewhere");
        return;
    }
    if (!rig.open()->caps().rma_checked) {
        note_capability(rig.wire.scheme, "references end by message before a fence");
        return;
    }
    NaPair pair(rig);
    if (!can_fence(rig, pair)) return;
    constexpr std::size_t size = 128 * 1024;
    ExposedMemory region(rig, pair.b, size, Access::read_write);
    Buffer local = rig.allocate(size);
    fill_random(local.bytes(), rig.random);
    std::atomic<bool> stop{false}, ended{false};
    std::atomic<std::uint64_t> finished{0};
    // References are passed as a bulk layer would pass them, including guesses at the next
    // generation.
    std::atomic<std::uint64_t> key{region.put(pair.ab, 0, {}).key};
    std::atomic<std::uint32_t> generation{region.put(pair.ab, 0, {}).generation};
    RmaItem item =
        region.put(pair.ab, 0, local.bytes().first(std::min(size, pair.a->limits().rma_bytes_max)));
    std::thread writer([&, endpoint = pair.a.endpoint.get()] {
        base::SteadyClock clock;
        Event events[16];
        std::uint64_t under_way = 0;
        while (!stop || under_way != 0) {
            item.key = key;
            item.generation = generation;
            if (!stop && under_way < 4) under_way += endpoint->post({&item, 1});
            const std::size_t count = endpoint->poll(events, clock.now());
            for (std::size_t i = 0; i < count; ++i) {
                if (events[i].kind != EventKind::rma_done) continue;
                --under_way;
                ++finished;
            }
            endpoint->flush();
        }
        ended = true;
    });
    // A busy machine fences less often.
    const TimePoint enough = rig.now() + 500ms, end = rig.now() + test_timeout;
    int fences = 0;
    bool intact = true;
    while ((rig.now() < enough || fences <= 3) && rig.now() < end && intact) {
        const std::uint64_t before = finished;
        while (finished < before + 2 && rig.now() < end) pair.b.poll();
        pair.b.fence(region.index());
        while (!pair.b.fenced.contains(region.index()) && rig.now() < end) pair.b.poll();
        fill_random(region.bytes().first(64), rig.random);
        const std::vector<std::byte> shadow(region.bytes().begin(), region.bytes().end());
        for (int i = 0; i < 20; ++i) pair.b.poll();
        intact = std::ranges::equal(region.bytes(), shadow);
        region.expose();
        const RmaItem fresh = region.put(pair.ab, 0, {});
        key = fresh.key;
        generation = fresh.generation;
        ++fences;
    }
    stop = true;
    while (!ended) pair.b.poll();  // Its last transfers may need polls of the owner.
    writer.join();
    CHECK(intact);
    CHECK(fences > 3);
}

CONFORMANCE("a writer in another thread never writes after the end of the owner") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable() || !has_rma(rig)) return;
    if (rig.wire.world || !rig.open()->caps().rma_checked) return;
    for (int round = 0; round < 8; ++round) {
        NaPair pair(rig);
        constexpr std::size_t size = 256 * 1024;
        const ExposedMemory region(rig, pair.b, size, Access::read_write);
        Buffer local = rig.allocate(size);
        fill_random(local.bytes(), rig.random);
        const std::size_t bytes = std::min(size, pair.a->limits().rma_bytes_max);
        const RmaItem item = region.put(pair.ab, 0, local.bytes().first(bytes));
        std::atomic<bool> stop{false};
        std::atomic<std::uint64_t> finished{0};
        std::thread writer([&, endpoint = pair.a.endpoint.get()] {
            base::SteadyClock clock;
            Event events[16];
            std::uint64_t under_way = 0;
            while (!stop || under_way != 0) {
                if (!stop && under_way < 4) under_way += endpoint->post({&item, 1});
                const std::size_t count = endpoint->poll(events, clock.now());
                for (std::size_t i = 0; i < count; ++i) {
                    if (events[i].kind != EventKind::rma_done) continue;
                    --under_way;
                    ++finished;
                }
                endpoint->flush();
            }
        });
        const TimePoint end = rig.now() + test_timeout;
        while (finished < 8 && rig.now() < end) pair.b.poll();
        const bool is_fenced_by_end = pair.b->caps().fenced_by_end;
        if (!is_fenced_by_end) {
            pair.b.close(pair.ba);
            pair.b.fence(region.index());
            while (!pair.b.fenced.contains(region.index()) && rig.now() < end) pair.b.poll();
        }
        rig.destroy(pair.b);
        fill_random(region.bytes(), rig.random);
        const std::vector<std::byte> shadow(region.bytes().begin(), region.bytes().end());
        const TimePoint later = rig.now() + 5ms;
        while (rig.now() < later) std::this_thread::yield();
        stop = true;
        writer.join();
        REQUIRE(std::ranges::equal(region.bytes(), shadow));
        rig.destroy(pair.a);
    }
}

CONFORMANCE(
    "a region that another thread has revoked is refused at each context before its fence") {
    Exposures exposures(2);  // Outlives the endpoints.
    auto rig = NaRig::on<TestType>();
    if (!rig.usable() || !has_rma(rig)) return;
    if (!rig.caps().rma_checked || !rig.caps().steers) {
        note_capability(rig.wire.scheme, "checked access through several contexts");
        return;
    }
    const std::vector<NaNode*> server = rig.open_contexts(2, {.exposures = &exposures});
    NaNode& client = rig.open({.listens = false});
    const std::string uri = (*server[0])->address();
    const PeerId peers[] = {rig.start_connect(client, uri, 1), rig.start_connect(client, uri, 2)};
    REQUIRE(rig.pump_until([&] {
        return client.at(peers[0]).state == PeerState::up &&
               client.at(peers[1]).state == PeerState::up && server[0]->count(PeerState::up) == 1 &&
               server[1]->count(PeerState::up) == 1;
    }));
    const Buffer memory = rig.allocate(4096);
    const Buffer local = rig.allocate(4096);
    Exposure exposure;
    exposure.region = exposures.numbers().first_of(0);
    exposure.memory = memory.bytes();
    exposure.access = Access::read_write;
    const auto moved = [&](RmaKind kind, PeerId peer) {
        RmaItem item;
        item.kind = kind;
        item.peer = peer;
        item.region = exposure.region;
        item.generation = exposure.generation;
        item.key = exposure.key;
        item.local = local.bytes();
        return run(rig, client, item);
    };
    for (const std::uint32_t generation : {1u, 2u}) {
        CAPTURE(generation);
        exposure.generation = generation;
        exposure.key = rig.random.next() | 1;
        REQUIRE(server[0]->endpoint->expose(exposure));
        exposures.publish(exposure);
        exposures.revoke(exposure.region, generation - 1);  // Late.
        for (const PeerId peer : peers) {
            for (const RmaKind kind : {RmaKind::put, RmaKind::get, RmaKind::put})
                REQUIRE(moved(kind, peer) == Code::ok);
        }
        std::thread closes([&] { exposures.revoke(exposure.region, generation); });
        closes.join();
        std::ranges::fill(memory.bytes(), std::byte{1});
        std::ranges::fill(local.bytes(), std::byte{2});
        for (const PeerId peer : peers) {
            for (const RmaKind kind : {RmaKind::put, RmaKind::get})
                CHECK(moved(kind, peer) == Code::permission_denied);
        }
        CHECK(memory.bytes().front() == std::byte{1});
        CHECK(local.bytes().front() == std::byte{2});
        CHECK(exposures.revoke(exposure.region, generation) == 1u << 1);
        for (NaNode* node : server) node->fence(exposure.region);
        REQUIRE(rig.pump_until([&] {
            return server[0]->fenced.contains(exposure.region) &&
                   server[1]->fenced.contains(exposure.region);
        }));
    }
}
