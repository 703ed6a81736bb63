#include "base/slot_table.h"

#include <set>
#include <vector>

#include "base/random.h"
#include "support/catch.h"

using namespace weft;
using base::SlotId;
using base::SlotTable;

TEST_CASE("an id finds its entry until release() and never afterwards") {
    SlotTable<int> table;
    auto* entry = table.take();
    REQUIRE(entry);
    entry->value = 7;
    const SlotId id = entry->id();
    CHECK(id);
    REQUIRE(table.find(id) == entry);
    CHECK(table.taken() == 1);
    table.release(*entry);
    CHECK(table.find(id) == nullptr);
    CHECK(table.taken() == 0);
    // The slot is reused under another generation.
    auto* again = table.take();
    CHECK(again == entry);
    CHECK(again->id().slot == id.slot);
    CHECK(again->id() != id);
    CHECK(table.find(id) == nullptr);
    CHECK(table.find(again->id()) == again);
}

TEST_CASE("forged and empty ids find nothing") {
    SlotTable<int> table;
    CHECK(table.find({}) == nullptr);
    CHECK(table.find({0, 1}) == nullptr);
    const SlotId id = table.take()->id();
    CHECK(table.find({id.slot, id.generation + 1}) == nullptr);
    CHECK(table.find({id.slot, 0}) == nullptr);
    CHECK(table.find({id.slot + 1, id.generation}) == nullptr);  // That slot exists and is free.
    CHECK(table.find({1'000'000, 1}) == nullptr);
    CHECK(table.find({~0u, ~0u}) == nullptr);
    CHECK_FALSE(SlotId{});
}

TEST_CASE("a full table returns null until an entry is released") {
    SlotTable<int> table(128);
    std::vector<SlotTable<int>::Entry*> entries;
    while (auto* entry = table.take()) entries.push_back(entry);
    CHECK(entries.size() == 128);
    CHECK(table.take() == nullptr);
    table.release(*entries[77]);
    CHECK(table.take() == entries[77]);
}

TEST_CASE("a generation that wraps skips zero") {
    SlotTable<int> table;
    auto* entry = table.take();
    entry->generation = ~0u;
    table.release(*entry);
    CHECK(table.take()->generation == 1);
}

TEST_CASE("entries do not move when the table grows") {
    SlotTable<int> table;
    std::vector<std::pair<SlotTable<int>::Entry*, SlotId>> entries;
    for (int i = 0; i < 1000; ++i) {
        auto* entry = table.take();
        entry->value = i;
        entries.emplace_back(entry, entry->id());
    }
    for (int i = 0; i < 1000; ++i) {
        REQUIRE(table.find(entries[i].second) == entries[i].first);
        REQUIRE(entries[i].first->value == i);
    }
}

TEST_CASE("for_each() visits the taken entries and may release them") {
    SlotTable<int> table;
    std::vector<SlotTable<int>::Entry*> entries;
    for (int i = 0; i < 200; ++i) {
        entries.push_back(table.take());
        entries.back()->value = i;
    }
    for (int i = 0; i < 200; i += 3) table.release(*entries[i]);
    std::set<int> seen;
    table.for_each([&](auto& entry) {
        seen.insert(entry.value);
        if (entry.value % 2) table.release(entry);
    });
    CHECK(seen.size() == 133);
    CHECK_FALSE(seen.contains(0));
    CHECK(seen.contains(199));
    CHECK(table.taken() == 66);
}

TEST_CASE("a slot table agrees with a model under random takes and releases") {
    SlotTable<std::uint64_t> table(256);
    base::SeededRandom random(3);
    std::vector<std::pair<SlotId, std::uint64_t>> live;
    std::vector<SlotId> dead;
    for (int step = 0; step < 20'000; ++step) {
        if (live.empty() || random.next() % 2) {
            auto* entry = table.take();
            REQUIRE((entry != nullptr) == (live.size() < 256));
            if (!entry) continue;
            entry->value = random.next();
            live.emplace_back(entry->id(), entry->value);
        } else {
            std::swap(live[random.next() % live.size()], live.back());
            table.release(*table.find(live.back().first));
            dead.push_back(live.back().first);
            live.pop_back();
        }
        if (!dead.empty()) REQUIRE_FALSE(table.find(dead[random.next() % dead.size()]));
        REQUIRE(table.taken() == live.size());
    }
    for (const auto& [id, value] : live) REQUIRE(table.find(id)->value == value);
}
