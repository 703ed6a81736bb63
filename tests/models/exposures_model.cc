// The row of an exposed region that several contexts share (src/na/exposure_row.h), and the proof
// that the search finds the errors of an adoption without its second look, of a late mark,
// and of an early look at the key.
#include "models/relacy.h"

#include "na/exposure_row.h"

namespace {

using Row = weft::na::BasicExposureRow<rl::atomic>;

bool adopt(Row& row, std::uint32_t generation, std::uint64_t mark) {
    return row.adopt(generation, 1, mark);
}
// For a second access: with the mark of the first one.
bool adopt_again(Row& row, std::uint32_t generation, std::uint64_t mark) {
    (void)row.adopt(generation, 1, mark);
    return row.adopt(generation, 1, mark);
}
// Without the second look.
bool adopt_at_once(Row& row, std::uint32_t generation, std::uint64_t mark) {
    if (row.state.load(std::memory_order_acquire) != Row::live_state(generation)) return false;
    row.touched.fetch_or(mark, std::memory_order_seq_cst);
    return true;
}
// With the mark after the second look.
bool adopt_late(Row& row, std::uint32_t generation, std::uint64_t mark) {
    if (row.state.load(std::memory_order_seq_cst) != Row::live_state(generation)) return false;
    row.touched.fetch_or(mark, std::memory_order_relaxed);
    return true;
}

// A row with a region, and the memory of the region.
struct Exposed {
    Row row;
    rl::var<int> memory;
    bool adopted = false;
    std::uint64_t marks = 0;

    void expose() {
        row.state.store(0, std::memory_order_relaxed);
        row.publish(3, 1, 2, 3, 1, 9);
        memory($) = 7;
        adopted = false;
        marks = 0;
    }
};

// A region is revoked while another context adopts it. Memory that no mark protects is released,
// and is used for the next region of the row.
template <auto adopt_by>
struct Revoke : rl::test_suite<Revoke<adopt_by>, 2>, Exposed {
    void before() { this->expose(); }
    void thread(unsigned index) {
        if (index == 1) {
            marks = row.revoke(3);
            if (marks != 0) return;
            memory($) = 0;
            row.publish(4, 1, 2, 3, 1, 9);
            return;
        }
        adopted = adopt_by(row, 3, 1);
        if (!adopted) return;
        RL_ASSERT(row.key.load(std::memory_order_relaxed) == 1);
        RL_ASSERT(memory($) == 7);
    }
    void after() { RL_ASSERT(!adopted || marks == 1); }
};

// Of whichever generation is there.
std::uint64_t revoke_any(Row& row, std::uint32_t) {
    const std::uint64_t before = row.state.load(std::memory_order_relaxed);
    row.state.store(before & ~std::uint64_t{1}, std::memory_order_seq_cst);
    return 0;
}
std::uint64_t revoke_one(Row& row, std::uint32_t generation) { return row.revoke(generation); }

// A third thread closes the region, too: before, after or while the context that exposed it revokes
// the row and exposes the next region there, which stays.
template <auto revoke_by>
struct Close : rl::test_suite<Close<revoke_by>, 3>, Exposed {
    void before() { this->expose(); }
    void thread(unsigned index) {
        if (index == 2) {
            (void)revoke_by(row, 3);
        } else if (index == 1) {
            marks = row.revoke(3);
            if (marks != 0) return;
            memory($) = 0;
            // As publish(): its other stores change nothing here.
            row.state.store(Row::live_state(4), std::memory_order_release);
        } else if (row.adopt(3, 1, 1)) {
            adopted = true;
            RL_ASSERT(memory($) == 7);
        }
    }
    void after() {
        RL_ASSERT(!adopted || marks == 1);
        const bool is_next = marks == 0;
        RL_ASSERT(row.state.load(std::memory_order_relaxed) ==
                  (is_next ? Row::live_state(4) : Row::revoked_state(3)));
    }
};

// With a look at the key of its own, before the row.
bool adopt_with_early_key(Row& row, std::uint32_t generation, std::uint64_t mark) {
    return !row.has_other_key(generation, 1) && adopt_at_once(row, generation, mark);
}

// A peer that does not know the key of a region marks it at no time.
template <auto adopt_by>
struct WrongKey : rl::test_suite<WrongKey<adopt_by>, 2> {
    Row row;
    void before() {
        row.state.store(0, std::memory_order_relaxed);
        row.publish(3, 1, 2, 3, 1, 9);
    }
    void thread(unsigned index) {
        if (index == 1) {
            (void)row.revoke(3);
            row.publish(4, 5, 2, 3, 1, 9);
        } else {
            const bool is_adopted = adopt_by(row, 4, 1);
            RL_ASSERT(!is_adopted);
        }
    }
    void after() { RL_ASSERT(row.touched.load(std::memory_order_relaxed) == 0); }
};

// A thread that has closed the region, by whichever of two, is followed by no adoption.
struct Closed : rl::test_suite<Closed, 3> {
    Row row;
    rl::atomic<int> closed;

    void before() {
        row.state.store(0, std::memory_order_relaxed);
        row.publish(3, 1, 2, 3, 1, 9);
        closed.store(0, std::memory_order_relaxed);
    }
    void thread(unsigned index) {
        if (index == 0) {
            const bool is_closed = closed.load(std::memory_order_acquire) != 0;
            const bool has_ended = row.has_ended(3, 1);
            RL_ASSERT(!is_closed || has_ended);
            const bool is_adopted = row.adopt(3, 1, 1);
            RL_ASSERT(!is_closed || !is_adopted);
        } else {
            (void)row.revoke(3);
            closed.store(1, std::memory_order_release);
        }
    }
};

}  // namespace

int main() {
    using weft::models::breaks;
    using weft::models::holds;
    bool good = holds<Revoke<adopt>>("memory of an adopted region is not released unseen");
    good &= holds<Revoke<adopt_again>>("nor memory of a region that is adopted again");
    good &= holds<Close<revoke_one>>("nor when another thread closes the region at the same time");
    good &= holds<Closed>("a region that a thread has closed is not adopted");
    good &= holds<WrongKey<adopt>>("a peer without the key marks no region");
    good &= breaks<WrongKey<adopt_with_early_key>>("a look at the key before the row");
    good &= breaks<Close<revoke_any>>("a revocation of whichever generation");
    good &= breaks<Revoke<adopt_at_once>>("an adoption without a second look");
    good &= breaks<Revoke<adopt_late>>("a mark after the second look");
    return good ? 0 : 1;
}
