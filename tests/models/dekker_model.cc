// The words by which the two sides of a connection over shared memory notify each other
// (src/na/sm/dekker.h), and the proof that the search finds the errors of weaker orders.
#include "models/relacy.h"

#include "na/sm/dekker.h"

using namespace weft::na::sm;
using Word32 = rl::atomic<std::uint32_t>;
using Word64 = rl::atomic<std::uint64_t>;

namespace {

// As announce_sleep(), without its fence.
void sleep_unfenced(Word32& count, std::uint32_t number) noexcept {
    count.exchange(number, std::memory_order_seq_cst);
}

// As free_up_to(), with a relaxed load that a strongly ordered processor tolerates.
bool free_relaxed(Word64& head, std::uint64_t end, Word32& want_space) noexcept {
    head.exchange(end, std::memory_order_seq_cst);
    return want_space.load(std::memory_order_relaxed) != 0 &&
           want_space.exchange(0, std::memory_order_seq_cst) != 0;
}

// A record is written and published while the reader goes to sleep.
template <auto announce>
struct Sleep : rl::test_suite<Sleep<announce>, 2> {
    Word64 tail;
    Word32 sleep_count;
    rl::var<int> record;
    bool woken = false, asleep = false;

    void before() {
        tail.store(0, std::memory_order_relaxed);
        sleep_count.store(0, std::memory_order_relaxed);
        woken = asleep = false;
    }
    void thread(unsigned index) {
        if (index == 0) {
            record($) = 7;
            publish_up_to(tail, 16);
            woken = (read_sleep_count(sleep_count) & 1) != 0;
        } else {
            announce(sleep_count, 1);
            asleep = tail.load(std::memory_order_acquire) == 0;
            if (!asleep) RL_ASSERT(record($) == 7);
        }
    }
    void after() { RL_ASSERT(!asleep || woken); }
};

// The writer has no room and requests a wake while the reader frees some, twice.
template <auto free_to>
struct Space : rl::test_suite<Space<free_to>, 2> {
    Word64 head;
    Word32 want_space;
    std::uint64_t seen = 0;
    int wakes = 0;

    void before() {
        head.store(0, std::memory_order_relaxed);
        want_space.store(0, std::memory_order_relaxed);
        seen = 0;
        wakes = 0;
    }
    void thread(unsigned index) {
        if (index == 0) {
            seen = request_space(want_space, head);
        } else {
            wakes += free_to(head, 1, want_space);
            wakes += free_to(head, 2, want_space);
        }
    }
    // A writer that has seen all freed room needs no wake; otherwise there is exactly one.
    void after() {
        RL_ASSERT(seen == 2 || wakes == 1);
        RL_ASSERT(wakes <= 1);
    }
};

// A region is revoked and its memory reused while an initiator is about to write to it.
struct Fence : rl::test_suite<Fence, 2> {
    static constexpr std::uint64_t live = 3, revoked = 2;
    Word32 accessing;
    Word64 state;
    rl::var<int> memory;

    void before() {
        accessing.store(0, std::memory_order_relaxed);
        state.store(live, std::memory_order_relaxed);
        memory($) = 0;
    }
    void thread(unsigned index) {
        if (index == 0) {
            enter_region(accessing, 1);
            if (read_state(state) == live) memory($) = 1;
            leave_region(accessing, 0);
        } else {
            revoke_region(state, revoked);
            if (read_accessing(accessing) == 0) memory($) = 2;  // Otherwise it checks again later.
        }
    }
};

// Another thread of the owner revokes the region, too. With `generation`: the state that it
// revokes.
template <std::uint64_t generation>
struct FenceTwice : rl::test_suite<FenceTwice<generation>, 3> {
    static constexpr std::uint64_t live = 3, revoked = 2, next = 5;
    Word32 accessing;
    Word64 state;
    rl::var<int> memory;
    bool is_reused = false;

    void before() {
        accessing.store(0, std::memory_order_relaxed);
        state.store(live, std::memory_order_relaxed);
        memory($) = 0;
        is_reused = false;
    }
    void thread(unsigned index) {
        if (index == 0) {
            enter_region(accessing, 1);
            if (read_state(state) == live) memory($) = 1;
            leave_region(accessing, 0);
        } else if (index == 1) {
            revoke_generation(state, generation, generation & ~std::uint64_t{1});
        } else {
            revoke_region(state, revoked);
            is_reused = read_accessing(accessing) == 0;
            if (!is_reused) return;
            memory($) = 2;
            state.store(next, std::memory_order_release);
        }
    }
    void after() {
        RL_ASSERT(state.load(std::memory_order_relaxed) == (is_reused ? next : revoked));
    }
};

}  // namespace

int main() {
    using weft::models::breaks;
    using weft::models::holds;
    bool good = holds<Sleep<announce_sleep<Word32>>>(
        "a reader that goes to sleep is woken, or sees what was published");
    good &= holds<Space<free_up_to<Word64, Word32>>>(
        "a writer that waits for space is woken, or sees it");
    good &= holds<Fence>("memory of a region that was revoked is not written by an initiator");
    good &= holds<FenceTwice<3>>("nor of one that two threads revoke, which the next one follows");
    good &= breaks<FenceTwice<5>>("a revocation that finds the next region");
    good &= breaks<Sleep<sleep_unfenced>>("a sleep without a fence");
    good &= breaks<Space<free_relaxed>>("a relaxed load of the request");
    return good ? 0 : 1;
}
