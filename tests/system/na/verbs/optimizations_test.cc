// The optimizations of verbs: each one, when disabled, increases its own counter, and the
// registration cache returns valid registrations.
#include <algorithm>
#include <array>
#include <cstring>

#include "na/verbs/registration_cache.h"
#include "na/verbs/verbs.h"
#include "support/na_rma.h"
#include "support/verbs_rig.h"

using namespace weft;
using namespace weft::na;
using namespace weft::test;
using verbs::DeviceCounters;

namespace {

struct Outcome {
    DeviceCounters counters;  // Of the side that sends and posts transfers.
    int pairs = 0;            // Of both sides, at the end.
};

// Turns with eight small messages in each direction, then transfers of eight pieces.
Outcome run_without(std::string_view names) {
    VerbsRig rig;
    NaNode& a = rig->open({.verbs_without = names});
    NaNode& b = rig->open({.verbs_without = names});
    const PeerId ab = rig->connect(a, b);
    const PeerId ba = b.peer_of(a.incarnation);
    ExposedMemory memory(*rig, b, 64 * 1024, Access::read_write);
    const Buffer local = rig->allocate(64 * 1024);
    const DeviceCounters before = *device_counters_of(*a);
    for (int turn = 0; turn < 64; ++turn) {
        for (int i = 0; i < 8; ++i) {
            REQUIRE(a.send(ab, 64));
            REQUIRE(b.send(ba, 4000));  // Too large to be joined.
        }
        REQUIRE(rig->pump_until([&] {
            return b.at(ba).received == a.at(ab).sent && a.at(ab).received == b.at(ba).sent;
        }));
    }
    for (int round = 0; round < 8; ++round) {
        std::size_t wanted = a.rma_done.size() + 8;
        std::vector<RmaItem> items;
        for (std::size_t i = 0; i < 8; ++i) {
            const Bytes piece = local.bytes().subspan(i * 8192, 8192);
            REQUIRE(a.post(i % 2 ? memory.get(ab, i * 8192, piece)
                                 : memory.put(ab, i * 8192, piece)) != 0);
        }
        REQUIRE(rig->pump_until([&] { return a.rma_done.size() == wanted; }));
    }
    for (const auto& [cookie, code] : a.rma_done) CHECK(code == Code::ok);
    Outcome outcome{*device_counters_of(*a), rig.fake.counts().pairs};
    for (const DeviceCounters::Counter& row : DeviceCounters::counters()) {
        outcome.counters.*row.count -= before.*row.count;
    }
    return outcome;
}

// Whether the kernel has enough large pages for two endpoints.
bool are_pages_large() {
    std::array<verbs::MessageMemory, 6> memories;
    for (verbs::MessageMemory& memory : memories) REQUIRE(memory.make(256, 17 << 10, true));
    return std::ranges::all_of(memories,
                               [](const auto& memory) { return memory.is_on_large_pages(); });
}

}  // namespace

TEST_CASE("verbs optimizations: each one that is disabled increases its own counter") {
    const Outcome all = run_without("");
    CHECK(all.counters.locked == 0);
    CHECK(all.counters.transfers == 64);
    const auto more = [&](std::string_view name, std::uint64_t DeviceCounters::*count) {
        const Outcome without = run_without(name);
        INFO(std::string(name) << ": " << without.counters.*count << ", with it "
                               << all.counters.*count);
        CHECK(without.counters.*count > all.counters.*count);
    };
    more("lists", &DeviceCounters::doorbells);
    more("inlining", &DeviceCounters::payload_reads);
    more("quiet", &DeviceCounters::signalled);
    more("piggybacking", &DeviceCounters::credit_sends);
    more("unlocked", &DeviceCounters::locked);
    more("cache", &DeviceCounters::registrations);
    CHECK(run_without("lanes").pairs < all.pairs);
    if (are_pages_large()) {
        more("hugepages", &DeviceCounters::page_misses);
    } else {
        note_capability("verbs", "not tested here: large pages; the kernel gives none");
    }
    const Outcome none =
        run_without("lists,inlining,quiet,piggybacking,lanes,unlocked,cache,hugepages");
    CHECK(none.counters.lists == 0);
    CHECK(none.counters.inline_sends == 0);
    CHECK(none.counters.signalled == none.counters.work_requests);
}

TEST_CASE("verbs optimizations: unknown names are refused") {
    for (const VerbsOptimizations::Switch& row : VerbsOptimizations::switches()) {
        const auto without = optimizations_without(row.name);
        REQUIRE(without);
        CHECK_FALSE((*without).*row.is_on);
        for (const VerbsOptimizations::Switch& other : VerbsOptimizations::switches()) {
            if (other.name != row.name) CHECK((*without).*other.is_on);
        }
    }
    const auto two = optimizations_without("lists,cache");
    REQUIRE(two);
    CHECK((!two->request_lists && !two->registration_cache && two->selective_signaling));
    for (const std::string_view bad : {"list", "lists,", ",lists", "lists,,quiet", " lists", ","}) {
        INFO(std::string(bad));
        CHECK_FALSE(optimizations_without(bad));
    }
}

TEST_CASE("verbs optimizations: pcie_cost computes bus transactions from the counters") {
    DeviceCounters counters;
    counters.doorbells = 3;
    counters.lists = 1;
    counters.request_blocks = 2 + 2 + 5;  // Two single requests, and a list of five blocks.
    counters.listed_blocks = 5;
    counters.payload_reads = 1;
    counters.payload_writes = 4;
    counters.signalled = 1;
    counters.messages_in = 4;
    const verbs::PcieCost cost = pcie_cost(counters);
    CHECK(cost.processor_writes == 1 + 4);
    CHECK(cost.device_reads == 5 + 1 + 4);
    CHECK(cost.device_writes == 4 + 1 + 4);
}

TEST_CASE("verbs optimizations: a second queue pair opens when the first one stays busy") {
    VerbsRig rig;
    NaPair pair(*rig);
    ExposedMemory memory(*rig, pair.b, 64 * 1024, Access::read);
    const Buffer local = rig->allocate(64 * 1024);
    const int before = rig.fake.counts().pairs;
    for (int i = 0; i < 4; ++i) {
        REQUIRE(run(*rig, pair.a, memory.get(pair.ab, 0, local.bytes())) == Code::ok);
    }
    CHECK(rig.fake.counts().pairs == before + 2);  // Both ends of one queue pair.
    const std::size_t wanted = pair.a.rma_done.size() + 16;
    for (std::size_t i = 0; i < 16; ++i) {
        REQUIRE(pair.a.post(memory.get(pair.ab, 0, local.bytes().subspan(i * 4096, 4096))) != 0);
    }
    REQUIRE(rig->pump_until([&] { return pair.a.rma_done.size() == wanted; }));
    rig->run_until_idle();
    CHECK(rig.fake.counts().pairs == before + 4);
    CHECK(rig.is_alive(pair));
}

TEST_CASE("verbs optimizations: idle queue pairs are evicted and reopened on demand") {
    VerbsRig rig;
    NaNode& server = rig->open({.peers_max = 512});
    NaNode& client = rig->open({.listens = false, .peers_max = 512});
    ExposedMemory memory(*rig, server, 4096, Access::read);
    const Buffer local = rig->allocate(4096);
    std::vector<PeerId> peers;
    for (int i = 0; i < 300; ++i) peers.push_back(rig->connect(client, server));
    const int before = rig.fake.counts().pairs;
    for (int round = 0; round < 2; ++round) {
        for (const PeerId peer : peers) {
            REQUIRE(run(*rig, client, memory.get(peer, 0, local.bytes())) == Code::ok);
        }
        rig->run_until_idle();
        CHECK(rig.fake.counts().pairs == before + 2 * 256);
    }
    CHECK(client.downs.empty());
}

namespace {

// A device and an arena.
struct Shelf {
    FakeVerbs fake;
    std::shared_ptr<Arena> arena = Arena::make(64u << 20);
    std::unique_ptr<verbs::Device> device;
    int besides = 0;  // Registrations of the device itself.

    Shelf() {
        int count = 0;
        ibv_device** devices = ::ibv_get_device_list(&count);
        REQUIRE(count > 0);
        const auto shared = verbs::SharedDevice::open(devices[0]);
        ::ibv_free_device_list(devices);
        REQUIRE(shared);
        auto opened = verbs::Device::open(*shared, {16, 16, 4096, 4, false, {}});
        REQUIRE(opened);
        device = *std::move(opened);
        besides = fake.counts().regions;
    }
    int kept() const { return fake.counts().regions - besides; }
};

constexpr std::size_t block = 2u << 20;

}  // namespace

TEST_CASE("verbs registrations: a block is registered once, and a range across two as both") {
    Shelf shelf;
    const Buffer memory = shelf.arena->allocate(3 * block).value();
    {
        verbs::RegistrationCache cache(*shelf.device, *shelf.arena, 64u << 20);
        verbs::Registration* first = cache.take(memory.bytes().first(100));
        REQUIRE(first);
        CHECK(cache.take(memory.bytes().subspan(4096, 1u << 20)) == first);
        CHECK(shelf.kept() == 1);
        verbs::Registration* across = cache.take(memory.bytes().subspan(block - 100, 200));
        REQUIRE(across);
        CHECK(across != first);
        CHECK(across->bytes == 2 * block);
        CHECK(shelf.kept() == 2);
        CHECK(cache.bytes() == 3 * block);
        // A range across three blocks.
        CHECK(cache.take(memory.bytes().subspan(100, 2 * block)) == nullptr);
        std::vector<std::byte> of_others(100);
        CHECK(cache.take(of_others) == nullptr);
        cache.give_back(*first);
        cache.give_back(*first);
        cache.give_back(*across);
        CHECK(shelf.kept() == 2);
    }
    CHECK(shelf.kept() == 0);
}

TEST_CASE("verbs registrations: beyond the budget the least recently used idle one is evicted") {
    Shelf shelf;
    const Buffer memory = shelf.arena->allocate(8 * block).value();
    verbs::RegistrationCache cache(*shelf.device, *shelf.arena, 2 * block);
    const auto at = [&](std::size_t i) { return memory.bytes().subspan(i * block, block); };
    verbs::Registration* used[4];
    for (std::size_t i = 0; i < 4; ++i) {
        used[i] = cache.take(at(i));
        REQUIRE(used[i]);
    }
    CHECK(shelf.kept() == 4);
    for (verbs::Registration* one : used) cache.give_back(*one);
    CHECK(shelf.kept() == 2);
    CHECK(cache.bytes() == 2 * block);
    const std::uint64_t before = shelf.device->counters.registrations;
    cache.give_back(*cache.take(at(3)));
    cache.give_back(*cache.take(at(2)));
    CHECK(shelf.device->counters.registrations == before);  // Both were still registered.
    cache.give_back(*cache.take(at(0)));
    CHECK(shelf.device->counters.registrations == before + 1);
    cache.give_back(*cache.take(at(2)));
    CHECK(shelf.device->counters.registrations == before + 1);
    cache.give_back(*cache.take(at(3)));  // The evicted one.
    CHECK(shelf.device->counters.registrations == before + 2);
}

TEST_CASE("verbs registrations: at the locked memory limit idle ones are evicted") {
    Shelf shelf;
    const Buffer memory = shelf.arena->allocate(4 * block).value();
    verbs::RegistrationCache cache(*shelf.device, *shelf.arena, 64u << 20);
    verbs::Registration* first = cache.take(memory.bytes().first(block));
    REQUIRE(first);
    shelf.fake.fail_registration(ENOMEM);
    // The first registration is in use.
    CHECK(cache.take(memory.bytes().subspan(block, block)) == nullptr);
    CHECK(shelf.kept() == 1);
    cache.give_back(*first);
    shelf.fake.fail_registration(ENOMEM);
    verbs::Registration* second = cache.take(memory.bytes().subspan(block, block));
    REQUIRE(second);
    CHECK(shelf.kept() == 1);
    cache.give_back(*second);
}

TEST_CASE("verbs registrations: freed memory that is reused keeps its registered pages") {
    // More than the arena keeps cached, so that it would release pages.
    Shelf shelf;
    shelf.arena = Arena::make(1u << 30);
    verbs::RegistrationCache cache(*shelf.device, *shelf.arena, 64u << 20);
    const std::size_t many = 320u << 20;
    {
        const Buffer memory = shelf.arena->allocate(many).value();
        const Bytes last = memory.bytes().last(block);
        std::memset(last.data(), 7, last.size());
        verbs::Registration* kept = cache.take(last);
        REQUIRE(kept);
        cache.give_back(*kept);
    }
    const Buffer again = shelf.arena->allocate(many).value();
    CHECK(again.bytes().last(1)[0] == std::byte{7});  // The same pages.
}
