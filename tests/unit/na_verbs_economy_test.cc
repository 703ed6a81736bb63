// By what verbs spares the card: each economy moves its own count when it is left out, and what is
// kept of registrations is right.
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
using verbs::Ledger;

namespace {

struct Outcome {
    Ledger ledger;  // Of who sends and transfers.
    int pairs = 0;  // Both sides', in the end.
};

// Turns of eight small messages each way, then transfers of eight pieces.
Outcome run_without(std::string_view names) {
    const Economies economies = economies_without(names).value();
    VerbsRig rig;
    NaNode& a = rig->open({.economies = economies});
    NaNode& b = rig->open({.economies = economies});
    const PeerId ab = rig->connect(a, b);
    const PeerId ba = b.peer_of(a.incarnation);
    ExposedMemory memory(*rig, b, 64 * 1024, Access::read_write);
    const Buffer local = rig->allocate(64 * 1024);
    const Ledger before = *ledger_of(*a);
    for (int turn = 0; turn < 64; ++turn) {
        for (int i = 0; i < 8; ++i) {
            REQUIRE(a.send(ab, 64));
            REQUIRE(b.send(ba, 4000));  // They are not joined.
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
    Outcome outcome{*ledger_of(*a), rig.fake.counts().pairs};
    for (const Ledger::Row& row : Ledger::rows()) {
        outcome.ledger.*row.count -= before.*row.count;
    }
    return outcome;
}

// Whether the kernel has so many for two endpoints.
bool are_pages_large() {
    std::array<verbs::MessageMemory, 6> memories;
    for (verbs::MessageMemory& memory : memories) REQUIRE(memory.make(256, 17 << 10, true));
    return std::ranges::all_of(memories,
                               [](const auto& memory) { return memory.is_on_large_pages(); });
}

}  // namespace

TEST_CASE("verbs economies: each that is left out moves its own count") {
    const Outcome all = run_without("");
    CHECK(all.ledger.locked == 0);
    CHECK(all.ledger.transfers == 64);
    const auto more = [&](std::string_view name, std::uint64_t Ledger::*count) {
        const Outcome without = run_without(name);
        INFO(std::string(name) << ": " << without.ledger.*count << ", with it "
                               << all.ledger.*count);
        CHECK(without.ledger.*count > all.ledger.*count);
    };
    more("lists", &Ledger::doorbells);
    more("inlining", &Ledger::payload_reads);
    more("quiet", &Ledger::signalled);
    more("riding", &Ledger::credit_sends);
    more("unlocked", &Ledger::locked);
    more("cache", &Ledger::registrations);
    CHECK(run_without("lanes").pairs < all.pairs);
    if (are_pages_large()) {
        more("hugepages", &Ledger::page_misses);
    } else {
        note_capability("verbs", "not tested here: large pages; the kernel gives none");
    }
    const Outcome none = run_without("lists,inlining,quiet,riding,lanes,unlocked,cache,hugepages");
    CHECK(none.ledger.lists == 0);
    CHECK(none.ledger.inline_sends == 0);
    CHECK(none.ledger.signalled == none.ledger.work_requests);
}

TEST_CASE("verbs economies: names are known or refused") {
    for (const Economies::Row& row : Economies::rows()) {
        const auto without = economies_without(row.name);
        REQUIRE(without);
        CHECK_FALSE((*without).*row.is_on);
        for (const Economies::Row& other : Economies::rows()) {
            if (other.name != row.name) CHECK((*without).*other.is_on);
        }
    }
    const auto two = economies_without("lists,cache");
    REQUIRE(two);
    CHECK((!two->lists && !two->cache && two->quiet));
    for (const std::string_view bad : {"list", "lists,", ",lists", "lists,,quiet", " lists", ","}) {
        INFO(std::string(bad));
        CHECK_FALSE(economies_without(bad));
    }
}

TEST_CASE("verbs economies: what a call's messages stand for on the bus") {
    Ledger ledger;
    ledger.doorbells = 3;
    ledger.lists = 1;
    ledger.request_blocks = 2 + 2 + 5;  // Two single ones, and a list of five blocks.
    ledger.listed_blocks = 5;
    ledger.payload_reads = 1;
    ledger.payload_writes = 4;
    ledger.signalled = 1;
    ledger.messages_in = 4;
    const verbs::PcieCost cost = pcie_cost(ledger);
    CHECK(cost.processor_writes == 1 + 4);
    CHECK(cost.card_reads == 5 + 1 + 4);
    CHECK(cost.card_writes == 4 + 1 + 4);
}

TEST_CASE("verbs economies: a second lane is for those who keep the first one busy") {
    VerbsRig rig;
    NaPair pair(*rig);
    ExposedMemory memory(*rig, pair.b, 64 * 1024, Access::read);
    const Buffer local = rig->allocate(64 * 1024);
    const int before = rig.fake.counts().pairs;
    for (int i = 0; i < 4; ++i) {
        REQUIRE(run(*rig, pair.a, memory.get(pair.ab, 0, local.bytes())) == Code::ok);
    }
    CHECK(rig.fake.counts().pairs == before + 2);  // Both ends of one.
    const std::size_t wanted = pair.a.rma_done.size() + 16;
    for (std::size_t i = 0; i < 16; ++i) {
        REQUIRE(pair.a.post(memory.get(pair.ab, 0, local.bytes().subspan(i * 4096, 4096))) != 0);
    }
    REQUIRE(rig->pump_until([&] { return pair.a.rma_done.size() == wanted; }));
    rig->settle();
    CHECK(rig.fake.counts().pairs == before + 4);
    CHECK(rig.is_alive(pair));
}

TEST_CASE("verbs economies: of idle lanes few are kept, and who comes back has one again") {
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
        rig->settle();
        CHECK(rig.fake.counts().pairs == before + 2 * 256);
    }
    CHECK(client.downs.empty());
}

namespace {

// A card of its own, and an arena.
struct Shelf {
    FakeVerbs fake;
    std::shared_ptr<Arena> arena = Arena::make(64u << 20);
    std::unique_ptr<verbs::Card> card;
    int besides = 0;  // Registrations that are the card's own.

    Shelf() {
        int count = 0;
        ibv_device** devices = ::ibv_get_device_list(&count);
        REQUIRE(count > 0);
        auto opened = verbs::Card::open(devices[0], {16, 16, 4096, 4, false, {}});
        ::ibv_free_device_list(devices);
        REQUIRE(opened);
        card = *std::move(opened);
        besides = fake.counts().regions;
    }
    int kept() const { return fake.counts().regions - besides; }
};

constexpr std::size_t block = 2u << 20;

}  // namespace

TEST_CASE("verbs registrations: a block is registered once, what lies across two as both") {
    Shelf shelf;
    const Buffer memory = shelf.arena->allocate(3 * block).value();
    {
        verbs::RegistrationCache cache(*shelf.card, *shelf.arena, 64u << 20);
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
        CHECK(cache.take(memory.bytes().subspan(100, 2 * block)) == nullptr);  // Three of them.
        std::vector<std::byte> of_others(100);
        CHECK(cache.take(of_others) == nullptr);
        cache.give_back(*first);
        cache.give_back(*first);
        cache.give_back(*across);
        CHECK(shelf.kept() == 2);
    }
    CHECK(shelf.kept() == 0);
}

TEST_CASE("verbs registrations: over the budget the longest unused goes, what is in use stays") {
    Shelf shelf;
    const Buffer memory = shelf.arena->allocate(8 * block).value();
    verbs::RegistrationCache cache(*shelf.card, *shelf.arena, 2 * block);
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
    const std::uint64_t before = shelf.card->ledger.registrations;
    cache.give_back(*cache.take(at(3)));
    cache.give_back(*cache.take(at(2)));
    CHECK(shelf.card->ledger.registrations == before);  // Both were still there.
    cache.give_back(*cache.take(at(0)));
    CHECK(shelf.card->ledger.registrations == before + 1);
    cache.give_back(*cache.take(at(2)));
    CHECK(shelf.card->ledger.registrations == before + 1);
    cache.give_back(*cache.take(at(3)));  // Was the one that went.
    CHECK(shelf.card->ledger.registrations == before + 2);
}

TEST_CASE(
    "verbs registrations: where no more may be locked, idle ones make room, or none is kept") {
    Shelf shelf;
    const Buffer memory = shelf.arena->allocate(4 * block).value();
    verbs::RegistrationCache cache(*shelf.card, *shelf.arena, 64u << 20);
    verbs::Registration* first = cache.take(memory.bytes().first(block));
    REQUIRE(first);
    shelf.fake.fail_registration(ENOMEM);
    CHECK(cache.take(memory.bytes().subspan(block, block)) == nullptr);  // The first is in use.
    CHECK(shelf.kept() == 1);
    cache.give_back(*first);
    shelf.fake.fail_registration(ENOMEM);
    verbs::Registration* second = cache.take(memory.bytes().subspan(block, block));
    REQUIRE(second);
    CHECK(shelf.kept() == 1);
    cache.give_back(*second);
}

TEST_CASE("verbs registrations: memory that is freed and used again is what the card knows") {
    // More than the arena keeps warm, so that it would give pages back.
    Shelf shelf;
    shelf.arena = Arena::make(1u << 30);
    verbs::RegistrationCache cache(*shelf.card, *shelf.arena, 64u << 20);
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
