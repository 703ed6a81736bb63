#include "coll/costs.h"
#include "support/catch.h"

using namespace weft;
using coll::Costs;
using coll::Tree;

TEST_CASE("nothing measured: the tree of a message that is sent on five sends later") {
    const Costs costs;
    CHECK(costs.tree(100, 64) == Tree{});
    CHECK(costs.tree(100, 4 << 20).latency == 4);  // Large ones keep their sender busy.
}

TEST_CASE("the tree follows what answers cost, for messages of that size alone") {
    Costs costs;
    for (int i = 0; i < 100; ++i) costs.note(64, 5, 6us, 10us);  // A send 1 us, a trip 6.
    CHECK(costs.tree(100, 64).latency == 16);                    // 24 quarters, by powers of two.
    CHECK(costs.tree(100, 1) == costs.tree(100, 64));
    CHECK(costs.tree(100, 65) == Tree{});
    for (int i = 0; i < 100; ++i) costs.note(64, 2, 200us, 201us);  // A long trip.
    CHECK(costs.tree(100, 64).latency == 256);
    for (int i = 0; i < 100; ++i) costs.note(64, 3, 2us, 402us);  // Dear messages.
    CHECK(costs.tree(100, 64).latency == 1);
    for (int i = 0; i < 100; ++i) costs.note(64, 3, 0us, 0us);
    CHECK(costs.tree(100, 64).is_possible({1, 1000}));
}

TEST_CASE("a few are told by one, whatever it costs") {
    const Costs costs;
    CHECK(costs.tree(Costs::few, 64).shape == coll::Shape::flat);
    CHECK(costs.tree(Costs::few + 1, 64).shape == coll::Shape::greedy);
}

TEST_CASE("one odd answer changes little") {
    Costs costs;
    for (int i = 0; i < 100; ++i) costs.note(4096, 3, 24us, 26us);
    const Tree before = costs.tree(100, 4096);
    costs.note(4096, 3, 25us, 28us);
    CHECK(costs.tree(100, 4096) == before);
}
