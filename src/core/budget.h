// A limit that the contexts of a runtime share: calls in handlers, bytes that wait.
//
// Each context has a Share, which takes chunks of the limit out of a common word and returns what
// it does not need, so that most takes touch its own memory only. At most an eighth of the limit
// lies unused in shares of other contexts when a take is refused. With one context the share has
// all of it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/assert.h"

namespace weft::core {

class Budget {
  public:
    // Requires: contexts != 0.
    Budget(std::uint64_t limit, std::uint32_t contexts)
        : limit_(limit), chunk_(chunk_of(limit, contexts)), left_(limit) {}
    Budget(const Budget&) = delete;
    Budget& operator=(const Budget&) = delete;
    ~Budget() { WEFT_DCHECK(left_.load() == limit_); }  // All shares have ended.

    std::uint64_t limit() const { return limit_; }

    // The part of one context. Thread: that of the context. The Budget outlives it.
    class Share {
      public:
        explicit Share(Budget& of) : of_(of) {}
        Share(const Share&) = delete;
        Share& operator=(const Share&) = delete;
        ~Share() {
            WEFT_DCHECK(taken_ == 0);
            of_.put(idle_);
        }

        // False: that much is not left; nothing is taken.
        bool take(std::uint64_t amount) {
            if (amount > idle_ && !refill(amount)) [[unlikely]]
                return false;
            idle_ -= amount;
            taken_ += amount;
            return true;
        }
        // Requires: it was taken.
        void give_back(std::uint64_t amount) {
            WEFT_DCHECK(amount <= taken_);
            taken_ -= amount;
            idle_ += amount;
            if (idle_ > 2 * of_.chunk_) [[unlikely]] {
                of_.put(idle_ - of_.chunk_);
                idle_ = of_.chunk_;
            }
        }
        std::uint64_t taken() const { return taken_; }

      private:
        bool refill(std::uint64_t amount) {
            idle_ += of_.get(amount - idle_);
            return amount <= idle_;
        }

        Budget& of_;
        std::uint64_t idle_ = 0;
        std::uint64_t taken_ = 0;
    };

  private:
    static std::uint64_t chunk_of(std::uint64_t limit, std::uint32_t contexts) {
        WEFT_ASSERT(contexts != 0);
        if (contexts == 1) return limit;
        return limit / (16 * std::uint64_t{contexts});  // 0: a share keeps nothing.
    }
    // At least `least`, or nothing; as much as a chunk more, if that is left.
    std::uint64_t get(std::uint64_t least) {
        std::uint64_t left = left_.load(std::memory_order_relaxed);
        while (left >= least) {
            const std::uint64_t most = std::min(left, std::max(least, chunk_));
            if (left_.compare_exchange_weak(left, left - most, std::memory_order_relaxed)) {
                return most;
            }
        }
        return 0;
    }
    void put(std::uint64_t amount) {
        if (amount == 0) return;
        const std::uint64_t before = left_.fetch_add(amount, std::memory_order_relaxed);
        WEFT_DCHECK(before + amount <= limit_);
    }

    const std::uint64_t limit_;
    const std::uint64_t chunk_;
    alignas(128) std::atomic<std::uint64_t> left_;
};

}  // namespace weft::core
