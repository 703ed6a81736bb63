// How the two sides of a connection notice each other's sleep, requests and accesses. Each stores
// to a word of its own and then loads a word of the other's; at least one of them sees the other's
// store (Dekker). The orders are those that the C++ memory model requires, on every processor:
// tests/models explores all executions of these very functions.
#pragma once

#include <atomic>
#include <cstdint>

namespace weft::na::sm {

inline void full_barrier() noexcept {
#ifdef __SANITIZE_THREAD__  // ThreadSanitizer does not model fences.
    std::atomic<int> word{0};
    word.exchange(1, std::memory_order_seq_cst);
#else
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

// ---- the reader sleeps -------------------------------------------------------------------------

// Writer: publishes records up to `end`. It loads the reader's sleep count afterwards.
template <class Word>
void publish_up_to(Word& tail, std::uint64_t end) noexcept {
    tail.store(end, std::memory_order_release);
    full_barrier();
}

// Writer, after publish_up_to(): odd while the reader sleeps, or is about to.
template <class Word>
std::uint32_t read_sleep_count(const Word& count) noexcept {
    return count.load(std::memory_order_relaxed);
}

// Reader: announces its sleep, and sleeps unless it finds published records afterwards.
template <class Word>
void announce_sleep(Word& count, std::uint32_t number) noexcept {
    count.exchange(number, std::memory_order_seq_cst);
    full_barrier();
}

// ---- the writer waits for space ----------------------------------------------------------------

// Writer: requests a wake-up. Returns up to where the reader has freed, as loaded afterwards.
template <class Word, class Head>
std::uint64_t request_space(Word& want_space, const Head& head) noexcept {
    want_space.exchange(1, std::memory_order_seq_cst);
    return head.load(std::memory_order_seq_cst);
}

// Reader: frees up to `end`. True: the writer requested a wake-up, which this call consumes.
template <class Head, class Word>
bool free_up_to(Head& head, std::uint64_t end, Word& want_space) noexcept {
    head.exchange(end, std::memory_order_seq_cst);
    return want_space.load(std::memory_order_seq_cst) != 0 &&
           want_space.exchange(0, std::memory_order_seq_cst) != 0;
}

// ---- the owner of a region revokes it ----------------------------------------------------------

// Initiator: announces the region that it is about to access, loads its state, and accesses it if
// that is live. leave_region() follows in any case.
template <class Word>
void enter_region(Word& accessing, std::uint32_t name) noexcept {
    accessing.exchange(name, std::memory_order_seq_cst);
}
template <class Word>
std::uint64_t read_state(const Word& state) noexcept {
    return state.load(std::memory_order_seq_cst);
}
template <class Word>
void leave_region(Word& accessing, std::uint32_t none) noexcept {
    accessing.store(none, std::memory_order_release);
}

// Owner: an initiator that read_accessing() does not find inside afterwards never accesses the
// region again.
template <class Word>
void revoke_region(Word& state, std::uint64_t revoked) noexcept {
    state.exchange(revoked, std::memory_order_seq_cst);
}
// The same by any thread of the owner's process, of one generation: another one, which may follow,
// stays as it is. An owner that revokes the region later reads this exchange.
template <class Word>
void revoke_generation(Word& state, std::uint64_t live, std::uint64_t revoked) noexcept {
    state.compare_exchange_strong(live, revoked, std::memory_order_seq_cst);
}
template <class Word>
std::uint32_t read_accessing(const Word& accessing) noexcept {
    return accessing.load(std::memory_order_seq_cst);
}

}  // namespace weft::na::sm
