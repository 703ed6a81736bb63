// The queue from many threads to one (src/base/mpsc_queue.h), and the sleep of its consumer.
#include "models/relacy.h"

#include <algorithm>
#include <iterator>

#include "base/mpsc_queue.h"

namespace {

using Queue = weft::base::BasicMpscQueue<rl::atomic>;

struct Entry : Queue::Node {
    rl::var<int> value;
};

// One more thread than producers: the consumer pops `looks` times meanwhile, and takes the
// remaining entries when all producers are done.
template <unsigned producers, int entries_each, int looks>
struct Order : rl::test_suite<Order<producers, entries_each, looks>, producers + 1> {
    Queue queue;
    Entry entries[producers][entries_each];
    int taken[producers] = {};

    void before() { std::fill(std::begin(taken), std::end(taken), 0); }
    // Each entry once, in the order of its producer.
    bool take() {
        auto* const entry = static_cast<Entry*>(queue.pop());
        if (!entry) return false;
        const int value = entry->value($);
        RL_ASSERT(value % 10 == taken[value / 10]++);
        return true;
    }
    void thread(unsigned index) {
        if (index == producers) {
            for (int i = 0; i < looks; ++i) take();
            return;
        }
        for (int i = 0; i < entries_each; ++i) {
            Entry& entry = entries[index][i];
            entry.value($) = static_cast<int>(index) * 10 + i;
            queue.push(entry);
        }
    }
    void after() {
        while (take()) {
        }
        for (const int count : taken) RL_ASSERT(count == entries_each);
        RL_ASSERT(queue.empty());
    }
};

// As Context::post() and Context::arm() do: an entry pushed while the consumer goes to sleep is
// seen by it, or wakes it.
struct Sleep : rl::test_suite<Sleep, 2> {
    Queue queue;
    Entry entry;
    rl::atomic<bool> sleeping;
    bool woken = false, asleep = false;

    void before() {
        sleeping.store(false, std::memory_order_relaxed);
        woken = asleep = false;
    }
    void thread(unsigned index) {
        if (index == 0) {
            entry.value($) = 1;
            queue.push(entry);
            woken = sleeping.exchange(false, std::memory_order_seq_cst);
        } else {
            sleeping.store(true, std::memory_order_seq_cst);
            asleep = queue.empty();
        }
    }
    void after() { RL_ASSERT(!asleep || woken); }
};

}  // namespace

int main() {
    using weft::models::holds;
    bool good = holds<Sleep>("a consumer that goes to sleep is woken, or sees what was pushed");
    good &= holds<Order<1, 2, 2>>("what a producer pushes is taken once, in its order");
    good &= holds<Order<2, 1, 1>>("what two producers push is taken once");
    return good ? 0 : 1;
}
