#include "base/mpsc_queue.h"

#include <memory>
#include <thread>
#include <vector>

#include "support/catch.h"

using namespace weft;
using base::MpscNode;
using base::MpscQueue;

namespace {

struct QueueItem : MpscNode {
    std::size_t producer = 0;
    std::size_t number = 0;
};

}  // namespace

TEST_CASE("a queue of one thread keeps its order and reports when it is empty") {
    MpscQueue queue;
    CHECK(queue.empty());
    CHECK(queue.pop() == nullptr);
    QueueItem items[3];
    for (int round = 0; round < 3; ++round) {
        for (QueueItem& item : items) queue.push(item);
        CHECK_FALSE(queue.empty());
        for (QueueItem& item : items) CHECK(queue.pop() == &item);
        CHECK(queue.empty());
        CHECK(queue.pop() == nullptr);
    }
    // One pushed, one popped: the stub node circulates.
    for (int round = 0; round < 10; ++round) {
        queue.push(items[0]);
        queue.push(items[1]);
        CHECK(queue.pop() == &items[0]);
        queue.push(items[0]);
        CHECK(queue.pop() == &items[1]);
        CHECK(queue.pop() == &items[0]);
    }
    CHECK(queue.empty());
}

TEST_CASE("a queue returns the items of many threads once, in the order of each thread") {
    constexpr std::size_t producers = 4;
    constexpr std::size_t each = 20'000;
    MpscQueue queue;
    std::vector<std::vector<QueueItem>> items;
    for (std::size_t i = 0; i < producers; ++i) items.emplace_back(each);
    std::vector<std::thread> threads;
    for (std::size_t producer = 0; producer < producers; ++producer) {
        threads.emplace_back([&, producer] {
            for (std::size_t number = 0; number < each; ++number) {
                QueueItem& item = items[producer][number];
                item.producer = producer;
                item.number = number;
                queue.push(item);
            }
        });
    }
    std::vector<std::size_t> next(producers, 0);
    bool in_order = true;
    for (std::size_t got = 0; got < producers * each;) {
        auto* item = static_cast<QueueItem*>(queue.pop());
        if (!item) {
            std::this_thread::yield();
            continue;
        }
        in_order = in_order && item->number == next[item->producer]++;
        ++got;
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(in_order);
    CHECK(queue.pop() == nullptr);
    CHECK(queue.empty());
}
