// One exposed region, in the table that the contexts of a runtime share.
//
// A context that needs a region of another one adopts it: it marks itself in the row, and then
// reads the state of the row once more. The context that exposed it revokes the row and then reads
// the marks. Both steps are sequentially consistent (Dekker): either the adopting context sees that
// the region is revoked, or its mark is seen. A mark that comes too late stays for the next region
// of the row: it costs one question, and admits nothing. tests/models explores all executions.
//
// Any thread may revoke, also several at once, and later than the fence: a revocation names its
// generation. The context that exposed the region revokes it, too, before it reads the marks. If
// that finds the row revoked, it has read the other thread's exchange, and the proof above holds
// with that one.
#pragma once

#include <atomic>
#include <cstdint>

namespace weft::na {

// `Atomic`: std::atomic, except in tests/models.
template <template <class> class Atomic>
struct BasicExposureRow {
    // generation << 1 | live. Zero: never used.
    alignas(64) Atomic<std::uint64_t> state{0};
    Atomic<std::uint64_t> touched{0};  // One bit for each context that has adopted it.
    Atomic<std::uint64_t> key{0};
    Atomic<std::uint64_t> address{0};
    Atomic<std::uint64_t> bytes{0};
    Atomic<std::int64_t> ends{0};  // The end of its lease, in ns of the clock of the runtime.
    Atomic<std::uint32_t> access{0};

    // By the context that exposes. Requires: revoked, and every fence of the last region is over.
    void publish(std::uint32_t generation, std::uint64_t with_key, std::uint64_t at,
                 std::uint64_t size, std::uint32_t allowed, std::int64_t lease_end) {
        touched.store(0, std::memory_order_relaxed);
        key.store(with_key, std::memory_order_relaxed);
        address.store(at, std::memory_order_relaxed);
        bytes.store(size, std::memory_order_relaxed);
        access.store(allowed, std::memory_order_relaxed);
        ends.store(lease_end, std::memory_order_relaxed);
        state.store(live_state(generation), std::memory_order_release);
    }
    // By any thread; no effect on another generation. Returns the contexts that have adopted the
    // region, to the context that exposes.
    std::uint64_t revoke(std::uint32_t generation) {
        std::uint64_t live = live_state(generation);
        state.compare_exchange_strong(live, revoked_state(generation), std::memory_order_seq_cst);
        return touched.load(std::memory_order_seq_cst);
    }
    // By another context, with its bit. False: that generation is not exposed, or has another key;
    // then it is not marked. Repeated, it writes nothing: the mark of the context is set, and was
    // set before the read of the state here.
    bool adopt(std::uint32_t generation, std::uint64_t given, std::uint64_t mark) {
        // The state first: the key is of this generation, or of a later one, which the last look
        // refuses.
        if (state.load(std::memory_order_acquire) != live_state(generation)) return false;
        if (key.load(std::memory_order_relaxed) != given) return false;
        const bool is_marked = (touched.load(std::memory_order_relaxed) & mark) != 0;
        if (!is_marked) touched.fetch_or(mark, std::memory_order_seq_cst);
        return state.load(std::memory_order_seq_cst) == live_state(generation);
    }

    // Whether that generation is exposed with another key. By any context.
    bool has_other_key(std::uint32_t generation, std::uint64_t given) const {
        return state.load(std::memory_order_acquire) == live_state(generation) &&
               key.load(std::memory_order_relaxed) != given;
    }
    // Whether that generation was revoked, or its lease has ended. By the context that exposes,
    // from publish() to the fence.
    bool has_ended(std::uint32_t generation, std::int64_t now) const {
        const std::uint64_t is = state.load(std::memory_order_acquire);
        return is == revoked_state(generation) ||
               (is == live_state(generation) && ends.load(std::memory_order_relaxed) <= now);
    }

    static constexpr std::uint64_t live_state(std::uint32_t generation) {
        return revoked_state(generation) | 1;
    }
    static constexpr std::uint64_t revoked_state(std::uint32_t generation) {
        return std::uint64_t{generation} << 1;
    }
};

using ExposureRow = BasicExposureRow<std::atomic>;

}  // namespace weft::na
