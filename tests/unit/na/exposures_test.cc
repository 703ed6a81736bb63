#include "na/exposures.h"

#include <thread>
#include <utility>
#include <vector>

#include "support/catch.h"

using namespace weft;
using namespace weft::na;

namespace {

std::byte memory[4096];
constexpr TimePoint in_time{};

Exposure exposure_of(std::uint32_t region, std::uint32_t generation = 1) {
    return {region, generation, 77, Bytes(memory), Access::read};
}

struct Pages final : Exposures::Reader {
    std::vector<std::uint32_t> seen;
    using One = std::pair<std::uint32_t, std::uint32_t>;  // With its generation.
    std::vector<One> revoked;
    void publish(const Exposure& exposure) override { seen.push_back(exposure.region); }
    void revoke(std::uint32_t region, std::uint32_t generation) noexcept override {
        revoked.emplace_back(region, generation);
    }
};

}  // namespace

TEST_CASE("exposures: the numbers of regions are those of contexts, and of bodies") {
    for (const std::uint32_t contexts : {1, 2, 5, 6, 64}) {
        const RegionNumbers numbers(contexts);
        for (std::uint32_t k = 0; k < contexts; ++k) {
            CHECK(numbers.first_of(k) >= RegionNumbers::bodies);
            CHECK(numbers.home_of(numbers.first_of(k)) == k);
            CHECK(numbers.home_of(numbers.first_of(k) + numbers.each - 1) == k);
        }
        CHECK(numbers.first_of(contexts) <= regions_max);
        CHECK(numbers.each >= 240);
    }
    CHECK(RegionNumbers(1).each == 3072);
}

TEST_CASE("exposures: a region is adopted by its number and generation, by other contexts only") {
    Exposures exposures(4);
    const std::uint32_t region = exposures.numbers().first_of(2) + 5;
    CHECK_FALSE(exposures.adopt(region, 1, 77, 0, in_time));
    exposures.publish(exposure_of(region));
    const auto found = exposures.adopt(region, 1, 77, 0, in_time);
    REQUIRE(found);
    CHECK(found->region == region);
    CHECK(found->generation == 1);
    CHECK(found->key == 77);
    CHECK(found->memory.data() == memory);
    CHECK(found->memory.size() == sizeof memory);
    CHECK(found->access == Access::read);
    CHECK_FALSE(exposures.adopt(region, 2, 77, 0, in_time));
    CHECK_FALSE(exposures.adopt(region, 1, 77, 2, in_time));  // Its own context has it already.
    for (const std::uint32_t hostile : {0u, 1023u, regions_max, regions_max - 1, ~0u})
        CHECK_FALSE(exposures.adopt(hostile, 1, 77, 0, in_time));
}

TEST_CASE("exposures: only the contexts that have adopted a region are asked for its fence") {
    Exposures exposures(8);
    const std::uint32_t region = exposures.numbers().first_of(1);
    exposures.publish(exposure_of(region));
    CHECK(exposures.revoke(region, 1) == 0);
    CHECK_FALSE(exposures.adopt(region, 1, 77, 3, in_time));
    exposures.publish(exposure_of(region, 2));
    CHECK(exposures.adopt(region, 2, 77, 3, in_time));
    CHECK(exposures.adopt(region, 2, 77, 3, in_time));
    CHECK(exposures.adopt(region, 2, 77, 7, in_time));
    CHECK(exposures.revoke(region, 2) == (1u << 3 | 1u << 7));
    exposures.publish(exposure_of(region, 3));  // The marks are gone.
    CHECK(exposures.revoke(region, 3) == 0);
}

TEST_CASE("exposures: an access with a wrong key has no part in the fence") {
    Exposures exposures(4);
    const std::uint32_t region = exposures.numbers().first_of(1);
    exposures.publish(exposure_of(region));
    CHECK_FALSE(exposures.adopt(region, 1, 78, 0, in_time));
    CHECK(exposures.has_other_key(region, 1, 78));
    CHECK_FALSE(exposures.has_other_key(region, 1, 77));
    CHECK_FALSE(exposures.has_other_key(region, 2, 78));  // Another generation.
    CHECK_FALSE(exposures.has_other_key(region + 1, 1, 78));
    CHECK(exposures.adopt(region, 1, 77, 2, in_time));
    CHECK(exposures.revoke(region, 1) == 1u << 2);
    CHECK_FALSE(exposures.has_other_key(region, 1, 78));
    for (const std::uint32_t hostile : {0u, 1023u, regions_max, regions_max - 1, ~0u})
        CHECK_FALSE(exposures.has_other_key(hostile, 1, 78));
}

TEST_CASE("exposures: a reader gets the regions of other contexts, earlier and later ones") {
    Exposures exposures(3);
    const auto first_of = [&](std::uint32_t k) { return exposures.numbers().first_of(k); };
    exposures.publish(exposure_of(first_of(0)));
    exposures.publish(exposure_of(first_of(1)));
    exposures.publish(exposure_of(first_of(2)));
    CHECK(exposures.revoke(first_of(2), 1) == 0);
    Pages pages;
    exposures.add_reader(1, pages);
    CHECK(pages.seen == std::vector{first_of(0)});
    exposures.publish(exposure_of(first_of(2), 2));
    exposures.publish(exposure_of(first_of(1) + 1));
    CHECK(pages.seen == std::vector{first_of(0), first_of(2)});
    CHECK(exposures.reading() == 1u << 1);
    CHECK(exposures.revoke(first_of(2), 2) == 1u << 1);
    CHECK(exposures.revoke(first_of(1), 1) == 0);  // Its own context fences by itself.
    exposures.remove_reader(pages);
    exposures.publish(exposure_of(first_of(0) + 1));
    CHECK(pages.seen.size() == 2);
}

TEST_CASE("exposures: a reader revokes a region of any context before revoke() returns") {
    Exposures exposures(3);
    const auto first_of = [&](std::uint32_t k) { return exposures.numbers().first_of(k); };
    for (std::uint32_t k = 0; k < 3; ++k) exposures.publish(exposure_of(first_of(k)));
    Pages one, two;
    exposures.add_reader(1, one);
    exposures.add_reader(2, two);
    exposures.revoke(first_of(0), 1);
    CHECK(one.revoked == std::vector<Pages::One>{{first_of(0), 1}});
    CHECK(two.revoked == std::vector<Pages::One>{{first_of(0), 1}});
    exposures.revoke(first_of(1), 1);  // Its own context may be blocked.
    CHECK(one.revoked.back() == Pages::One(first_of(1), 1));
    CHECK(two.revoked.back() == Pages::One(first_of(1), 1));
    exposures.remove_reader(two);
    exposures.revoke(first_of(2), 1);
    CHECK(one.revoked.back() == Pages::One(first_of(2), 1));
    CHECK(two.revoked.size() == 2);
}

TEST_CASE("exposures: a reader that comes after the revocation of a region gets none of it") {
    Exposures exposures(2);
    const auto first_of = [&](std::uint32_t k) { return exposures.numbers().first_of(k); };
    for (std::uint32_t k = 0; k < 2; ++k) {
        exposures.publish(exposure_of(first_of(k), 7));
        exposures.publish(exposure_of(first_of(k) + 1, 7));
        exposures.revoke(first_of(k), 7);
    }
    Pages pages;
    exposures.add_reader(1, pages);
    CHECK(pages.seen == std::vector{first_of(0) + 1});
    // Its endpoint may have exposed it before, or after another thread has revoked it.
    CHECK(pages.revoked == std::vector<Pages::One>{{first_of(1), 7}});
}

TEST_CASE("exposures: a late revocation has no effect on the next region of its number") {
    Exposures exposures(2);
    const std::uint32_t region = exposures.numbers().first_of(0);
    exposures.publish(exposure_of(region, 1));
    CHECK_FALSE(exposures.has_ended(region, 1, in_time));
    exposures.revoke(region, 1);
    exposures.revoke(region, 1);
    CHECK(exposures.has_ended(region, 1, in_time));
    exposures.publish(exposure_of(region, 2));
    exposures.revoke(region, 1);
    CHECK(exposures.adopt(region, 2, 77, 1, in_time));
    CHECK_FALSE(exposures.has_ended(region, 2, in_time));
    CHECK(exposures.revoke(region, 2) == 1u << 1);
    exposures.revoke(region, 1);
    CHECK_FALSE(exposures.adopt(region, 1, 77, 1, in_time));
    CHECK(exposures.has_ended(region, 2, in_time));
    for (const std::uint32_t body : {0u, RegionNumbers::bodies - 1, regions_max, ~0u})
        CHECK_FALSE(exposures.has_ended(body, 0, in_time));
}

TEST_CASE("exposures: the end of a lease ends the accesses of each context") {
    Exposures exposures(2);
    const std::uint32_t region = exposures.numbers().first_of(0);
    const TimePoint ends = in_time + 5ms;
    exposures.publish(exposure_of(region), ends);
    CHECK(exposures.adopt(region, 1, 77, 1, ends - 1ns));
    CHECK_FALSE(exposures.has_ended(region, 1, ends - 1ns));
    CHECK_FALSE(exposures.adopt(region, 1, 77, 1, ends));
    CHECK(exposures.has_ended(region, 1, ends));
    CHECK(exposures.revoke(region, 1) == 1u << 1);
    exposures.publish(exposure_of(region, 2));  // Without one.
    CHECK(exposures.adopt(region, 2, 77, 1, ends));
    CHECK_FALSE(exposures.has_ended(region, 2, ends));
}

TEST_CASE("exposures: an adopted region is adopted again until it is revoked") {
    Exposures exposures(2);
    const std::uint32_t region = exposures.numbers().first_of(0);
    for (const std::uint32_t generation : {1u, 2u}) {
        exposures.publish(exposure_of(region, generation));
        for (int i = 0; i < 3; ++i) CHECK(exposures.adopt(region, generation, 77, 1, in_time));
        CHECK(exposures.revoke(region, generation) == 1u << 1);
        CHECK_FALSE(exposures.adopt(region, generation, 77, 1, in_time));
    }
}

// Each adoption that succeeds is seen by the revocation that follows.
TEST_CASE("exposures: contexts adopt while the region is revoked and exposed again") {
    Exposures exposures(4);
    const std::uint32_t region = exposures.numbers().first_of(0);
    constexpr std::uint32_t generations = 500;
    std::vector<std::vector<std::uint32_t>> adopted(4);
    std::vector<std::uint64_t> asked(generations + 1);
    std::atomic<std::uint32_t> now{0};
    std::vector<std::thread> threads;
    for (std::uint16_t k = 1; k < 4; ++k) {
        threads.emplace_back([&, k] {
            while (true) {
                const std::uint32_t generation = now;
                if (generation > generations) return;
                if (generation != 0 && exposures.adopt(region, generation, 77, k, in_time))
                    adopted[k].push_back(generation);
                std::this_thread::yield();
            }
        });
    }
    for (std::uint32_t generation = 1; generation <= generations; ++generation) {
        exposures.publish(exposure_of(region, generation));
        now = generation;
        for (int i = 0; i < 3; ++i) std::this_thread::yield();
        asked[generation] = exposures.revoke(region, generation);
    }
    now = generations + 1;
    for (std::thread& thread : threads) thread.join();
    for (std::uint16_t k = 1; k < 4; ++k) {
        for (const std::uint32_t generation : adopted[k])
            REQUIRE((asked[generation] >> k & 1) != 0);
    }
}

// Two threads close each region while its context revokes it, too, and others adopt it. What they
// close late stays without effect.
TEST_CASE("exposures: threads revoke a region at the same time, and late") {
    Exposures exposures(4);
    const std::uint32_t region = exposures.numbers().first_of(0);
    constexpr std::uint32_t rounds = 500;
    std::vector<std::vector<std::uint32_t>> adopted(4);
    std::vector<std::uint64_t> asked(rounds + 1);
    std::atomic<std::uint32_t> round{0};
    std::atomic<std::uint32_t> closed{0};
    std::atomic<int> late{0};
    std::vector<std::thread> threads;
    for (std::uint16_t k = 1; k < 4; ++k) {
        threads.emplace_back([&, k] {
            while (true) {
                const std::uint32_t is_closed = closed;
                const std::uint32_t generation = round;
                if (generation > rounds) return;
                const bool is_new = exposures.adopt(region, generation, 77, k, in_time).has_value();
                if (is_new) adopted[k].push_back(generation);
                if (is_new && is_closed >= generation) ++late;
                std::this_thread::yield();
            }
        });
    }
    for (int i = 0; i < 2; ++i) {
        threads.emplace_back([&] {
            while (true) {
                const std::uint32_t generation = round;
                if (generation > rounds) return;
                std::this_thread::yield();
                exposures.revoke(region, generation);  // Perhaps of an earlier round by now.
                std::uint32_t before = closed;
                while (before < generation && !closed.compare_exchange_weak(before, generation)) {
                }
            }
        });
    }
    int lost = 0;
    for (std::uint32_t generation = 1; generation <= rounds; ++generation) {
        exposures.publish(exposure_of(region, generation));
        exposures.revoke(region, generation - 1);
        lost += exposures.has_ended(region, generation, in_time);
        round = generation;
        for (int i = 0; i < 3; ++i) std::this_thread::yield();
        asked[generation] = exposures.revoke(region, generation);
    }
    round = rounds + 1;
    for (std::thread& thread : threads) thread.join();
    CHECK(lost == 0);
    CHECK(late == 0);
    for (std::uint16_t k = 1; k < 4; ++k) {
        for (const std::uint32_t generation : adopted[k])
            REQUIRE((asked[generation] >> k & 1) != 0);
    }
}
