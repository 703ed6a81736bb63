#include "core/budget.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "base/random.h"
#include "support/catch.h"

using namespace weft;
using core::Budget;

TEST_CASE("budget: one context may take the whole limit, and no more") {
    Budget budget(1000, 1);
    Budget::Share share(budget);
    CHECK(share.take(999));
    CHECK(share.take(1));
    CHECK_FALSE(share.take(1));
    share.give_back(400);
    CHECK_FALSE(share.take(401));
    CHECK(share.take(400));
    CHECK(share.taken() == 1000);
    share.give_back(1000);
}

TEST_CASE("budget: a refused take changes nothing") {
    Budget budget(100, 4);
    Budget::Share one(budget);
    Budget::Share other(budget);
    REQUIRE(one.take(60));
    CHECK_FALSE(other.take(60));
    CHECK(other.taken() == 0);
    CHECK(other.take(20));
    one.give_back(60);
    CHECK(other.take(60));
    other.give_back(80);
}

TEST_CASE(
    "budget: a busy context gets all but an eighth, whatever idle contexts have used before") {
    for (const std::uint32_t contexts : {2u, 5u, 64u}) {
        constexpr std::uint64_t limit = 65'536;
        Budget budget(limit, contexts);
        std::vector<std::unique_ptr<Budget::Share>> shares;
        for (std::uint32_t i = 0; i < contexts; ++i) {
            shares.push_back(std::make_unique<Budget::Share>(budget));
        }
        // Each in turn uses much of it.
        for (const auto& share : shares) {
            REQUIRE(share->take(limit / 2));
            for (int i = 0; i < 16; ++i) share->give_back(limit / 32);
        }
        std::uint64_t taken = 0;
        while (shares[0]->take(1)) ++taken;
        CHECK(taken >= limit - limit / 8);
        CHECK(taken <= limit);
        shares[0]->give_back(taken);
    }
}

TEST_CASE("budget: limits below the number of contexts hold") {
    Budget budget(3, 64);
    std::vector<std::unique_ptr<Budget::Share>> shares;
    for (int i = 0; i < 64; ++i) shares.push_back(std::make_unique<Budget::Share>(budget));
    int taken = 0;
    for (const auto& share : shares) taken += share->take(1) ? 1 : 0;
    CHECK(taken == 3);
    for (const auto& share : shares) {
        if (share->taken() != 0) share->give_back(1);
    }
    // What other contexts have returned is left.
    CHECK(shares[63]->take(3));
    shares[63]->give_back(3);
}

TEST_CASE("budget: threads that take at random never exceed the limit together", "[seeded]") {
    constexpr std::uint64_t limit = 1000;
    Budget budget(limit, 4);
    std::atomic<std::uint64_t> all{0};
    std::atomic<bool> has_exceeded{false};
    std::vector<std::thread> threads;
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
        threads.emplace_back([&, seed] {
            base::SeededRandom random(seed);
            Budget::Share share(budget);
            for (int i = 0; i < 20'000; ++i) {
                const std::uint64_t amount = random.next() % 200;
                if (random.next() % 2 == 0 && share.take(amount)) {
                    if (all.fetch_add(amount) + amount > limit) has_exceeded = true;
                } else if (share.taken() >= amount) {
                    all.fetch_sub(amount);
                    share.give_back(amount);
                }
            }
            all.fetch_sub(share.taken());
            share.give_back(share.taken());
        });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK_FALSE(has_exceeded);
    Budget::Share last(budget);
    CHECK(last.take(limit));
    last.give_back(limit);
}
