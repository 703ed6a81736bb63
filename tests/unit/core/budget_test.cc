#include "core/budget.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "base/random.h"
#include "support/catch.h"
#include "support/seed.h"

using namespace weft;
using core::Budget;

namespace {

// Counts what is in use, as the owner of a share does.
struct User {
    explicit User(std::shared_ptr<Budget> of, std::uint64_t limit = 0)
        : share(std::move(of), limit) {}
    bool take(std::uint64_t amount) {
        const bool fits = used + amount <= share.limit() || share.reach(used, amount);
        used += fits ? amount : 0;
        return fits;
    }
    Budget::Share share;
    std::uint64_t used = 0;
};

std::vector<std::unique_ptr<User>> users_of(const std::shared_ptr<Budget>& budget,
                                            std::uint32_t contexts) {
    std::vector<std::unique_ptr<User>> users;
    for (std::uint32_t i = 0; i < contexts; ++i) users.push_back(std::make_unique<User>(budget));
    return users;
}

}  // namespace

TEST_CASE("budget: a context that is alone has the whole limit, and no more") {
    User user(nullptr, 1000);
    CHECK(user.take(999));
    CHECK(user.take(1));
    CHECK_FALSE(user.take(1));
    user.share.trim(0);
    user.used = 0;
    CHECK(user.take(1000));
    CHECK_FALSE(user.take(1));
}

TEST_CASE("budget: a busy context gets seven eighths, whatever idle contexts have used before") {
    for (const std::uint32_t contexts : {2u, 5u, 64u}) {
        constexpr std::uint64_t limit = 65'536;
        const auto budget = std::make_shared<Budget>(limit, contexts);
        const auto users = users_of(budget, contexts);
        // Each in turn uses much of it.
        for (const auto& user : users) {
            REQUIRE(user->take(limit / 2));
            user->used = 0;
            user->share.trim(0);
        }
        while (users[0]->take(1)) {
        }
        CHECK(users[0]->used >= limit - limit / 8);
        CHECK(users[0]->used <= limit);
    }
}

TEST_CASE("budget: each context may begin, while others have used up the limit") {
    constexpr std::uint64_t limit = 1000;
    const auto budget = std::make_shared<Budget>(limit, 4);
    const auto users = users_of(budget, 4);
    while (users[0]->take(10)) {
    }
    for (std::size_t i = 1; i < 4; ++i) {
        CHECK(users[i]->take(300));      // One large operation,
        CHECK_FALSE(users[i]->take(1));  // and no further one.
        users[i]->used = 0;
        users[i]->share.trim(0);
        CHECK(users[i]->share.limit() < 300);
    }
    // What was lent so does not enlarge the limit.
    users[0]->used = 0;
    users[0]->share.trim(0);
    std::uint64_t all = 0;
    for (const auto& user : users) {
        while (user->take(1)) ++all;
    }
    CHECK(all <= limit);
    CHECK(all >= limit - 4);
}

TEST_CASE("budget: each context may begin within a limit below their number, and none continue") {
    const auto budget = std::make_shared<Budget>(3, 64);
    const auto users = users_of(budget, 64);
    for (const auto& user : users) CHECK(user->take(1));
    for (const auto& user : users) CHECK_FALSE(user->take(1));
}

TEST_CASE("budget: idle contexts leave a busy one nearly all of any limit", "[seeded]") {
    base::SeededRandom random(test::seed_of(0));
    for (int round = 0; round < 500; ++round) {
        const auto contexts = static_cast<std::uint32_t>(2 + random.next() % 63);
        const std::uint64_t limit = 1 + random.next() % (40 * contexts);
        CAPTURE(contexts, limit);
        const auto budget = std::make_shared<Budget>(limit, contexts);
        const auto users = users_of(budget, contexts);
        for (const auto& user : users) {
            REQUIRE(user->take(1 + random.next() % limit));
            user->used = 0;
            user->share.trim(0);
        }
        User& busy = *users[random.next() % contexts];
        while (busy.take(1)) {
        }
        REQUIRE(busy.used >= limit - limit / 16);
        REQUIRE(busy.used <= limit);
    }
}

TEST_CASE("budget: contexts exceed any limit by an operation each at most", "[seeded]") {
    base::SeededRandom random(test::seed_of(0));
    for (int round = 0; round < 200; ++round) {
        const auto contexts = static_cast<std::uint32_t>(2 + random.next() % 63);
        const std::uint64_t limit = 1 + random.next() % (40 * contexts);
        const std::uint64_t largest = random.next() % 2 == 0 ? 1 : 1 + random.next() % limit;
        CAPTURE(contexts, limit, largest);
        const auto budget = std::make_shared<Budget>(limit, contexts);
        const auto users = users_of(budget, contexts);
        std::vector<std::vector<std::uint64_t>> operations(contexts);
        for (int step = 0; step < 1000; ++step) {
            const std::size_t k = random.next() % contexts;
            User& user = *users[k];
            const std::uint64_t action = random.next() % 8;
            if (action < 5) {
                const std::uint64_t amount = 1 + random.next() % largest;
                const bool is_first = user.used == 0;
                const bool is_taken = user.take(amount);
                REQUIRE((is_taken || !is_first));
                if (is_taken) operations[k].push_back(amount);
            } else if (action < 7 && !operations[k].empty()) {
                user.used -= operations[k].back();
                operations[k].pop_back();
            } else {
                user.share.trim(user.used);
            }
            std::uint64_t all = 0, busy = 0;
            for (const auto& one : users) {
                REQUIRE(one->used <= one->share.limit());
                all += one->used;
                busy += one->used != 0;
            }
            REQUIRE(all <= limit + busy * largest);
        }
        for (const auto& user : users) user->share.trim(user->used = 0);
        while (users[0]->take(1)) {
        }
        REQUIRE(users[0]->used >= limit - limit / 16);
        REQUIRE(users[0]->used <= limit);
    }
}

TEST_CASE("budget: threads that use it at random keep to the limit together", "[seeded]") {
    constexpr std::uint64_t limit = 100'000;
    const auto budget = std::make_shared<Budget>(limit, 4);
    std::atomic<std::uint64_t> all{0};
    std::atomic<bool> has_exceeded{false};
    std::vector<std::thread> threads;
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
        threads.emplace_back([&, seed] {
            base::SeededRandom random(seed);
            User user(budget);
            REQUIRE(user.take(1));
            ++all;
            for (int i = 0; i < 20'000; ++i) {
                const std::uint64_t amount = random.next() % 20'000;
                if (random.next() % 2 == 0 && user.take(amount)) {
                    if (all.fetch_add(amount) + amount > limit) has_exceeded = true;
                } else if (user.used > amount) {
                    all.fetch_sub(amount);
                    user.used -= amount;
                    if (i % 7 == 0) user.share.trim(user.used);
                }
            }
            all.fetch_sub(user.used);
        });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK_FALSE(has_exceeded);
    User last(budget);
    CHECK(last.take(limit - limit / 16));
}

TEST_CASE("budget: a limit that is strict lends nothing to a context that uses nothing") {
    const auto budget = std::make_shared<Budget>(1000, 4);
    Budget::Share first(budget, 0), second(budget, 0);
    CHECK(first.extend(0, 900));
    CHECK_FALSE(second.could_extend(0, 300));
    CHECK_FALSE(second.extend(0, 300));
    CHECK(second.limit() == 1000 / 64);
    CHECK(second.extend(0, second.limit()));
    first.trim(0);
    CHECK(second.could_extend(0, 300));
    CHECK(second.extend(0, 300));
    Budget::Share alone(nullptr, 1000);
    CHECK(alone.could_extend(999, 1));
    CHECK_FALSE(alone.could_extend(999, 2));
    CHECK_FALSE(alone.extend(999, 2));
}

TEST_CASE("budget: a context learns once that others were refused, and not of its own refusals") {
    const auto budget = std::make_shared<Budget>(1000, 2);
    Budget::Share first(budget, 0), second(budget, 0), alone(nullptr, 10);
    REQUIRE(first.extend(0, 960));
    CHECK_FALSE(first.extend(960, 100));
    CHECK_FALSE(first.were_others_refused());
    CHECK_FALSE(second.extend(0, 100));
    CHECK_FALSE(second.extend(0, 200));
    CHECK(first.were_others_refused());
    CHECK_FALSE(first.were_others_refused());
    CHECK(second.were_others_refused());  // Of the first one's refusal.
    CHECK_FALSE(alone.extend(0, 11));
    CHECK_FALSE(alone.were_others_refused());
}

TEST_CASE("budget: a common limit is scarce when less than half of it is left") {
    const auto budget = std::make_shared<Budget>(1024, 4);
    Budget::Share first(budget, 0), second(budget, 0), alone(nullptr, 1);
    CHECK_FALSE(second.is_scarce());
    REQUIRE(first.extend(0, 400));
    CHECK_FALSE(second.is_scarce());
    REQUIRE(first.extend(400, 200));
    CHECK(second.is_scarce());
    first.trim(0);
    CHECK_FALSE(second.is_scarce());
    CHECK_FALSE(alone.is_scarce());
}
