#include "base/fifo.h"

#include <deque>

#include "base/random.h"
#include "support/catch.h"
#include "support/seed.h"

using namespace weft;

TEST_CASE("a fifo is a deque that keeps its memory", "[seeded]") {
    const std::uint64_t seed = test::seed_of(0);
    INFO("TEST_SEED=" << seed);
    base::SeededRandom random(seed);
    base::Fifo<std::uint64_t> fifo;
    std::deque<std::uint64_t> model;
    for (int step = 0; step < 20'000; ++step) {
        const std::uint64_t what = random.next() % 16;
        const bool grows = step / 2000 % 2 == 0;
        if (model.empty() || what < (grows ? 9u : 6u)) {
            fifo.push(random.next());
            model.push_back(fifo[fifo.size() - 1]);
        } else if (what == 15) {
            const std::size_t at = random.next() % model.size();
            fifo.erase(at);
            model.erase(model.begin() + static_cast<std::ptrdiff_t>(at));
        } else {
            REQUIRE(fifo.front() == model.front());
            fifo.pop();
            model.pop_front();
        }
        REQUIRE(fifo.size() == model.size());
        REQUIRE(fifo.empty() == model.empty());
        if (!model.empty()) {
            const std::size_t at = random.next() % model.size();
            REQUIRE(fifo[at] == model[at]);
        }
    }
    fifo.clear();
    CHECK(fifo.empty());
}
