// A limit that the contexts of a runtime share: calls in handlers, bytes that wait, sessions.
//
// Each context has a Share with a limit of its own, which its hot path compares with. Where that is
// reached, the share takes a chunk out of the common word; its owner returns what it does not use,
// at heartbeats for as long as it has_extra(). A sixteenth of the limit is reserved, in equal
// parts, so that no context waits for the others; idle contexts hold another sixteenth at most. Of
// a limit below 16 for each context nothing is reserved or held: reach() lets each one begin.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include <weft/options.h>

#include "base/assert.h"

namespace weft::core {

class Budget {
  public:
    // Requires: contexts != 0.
    Budget(std::uint64_t limit, std::uint32_t contexts)
        : chunk_(limit / (16 * std::uint64_t{contexts})),
          reserve_(chunk_),
          common_(limit - contexts * reserve_),
          left_(common_) {}
    ~Budget() { WEFT_ASSERT(left_ == common_); }  // Each share has returned what it took.
    Budget(const Budget&) = delete;
    Budget& operator=(const Budget&) = delete;

    // The part of one context, which may outlive the runtime. Thread: that of the context.
    class Share {
      public:
        // `of`: nullptr: the context is alone, and the limit is all its own.
        Share(std::shared_ptr<Budget> of, std::uint64_t limit)
            : of_(std::move(of)), limit_(of_ ? of_->reserve_ : limit) {}
        Share(const Share&) = delete;
        Share& operator=(const Share&) = delete;
        ~Share() {
            if (of_) of_->put(taken_);
        }

        // So much may be in use; 0 at first, where nothing is reserved.
        std::uint64_t limit() const { return limit_; }
        // Whether `more` may be used besides `used`, within the common limit.
        bool extend(std::uint64_t used, std::uint64_t more) {
            if (used + more <= limit_) return true;
            if (!of_) return false;
            const std::uint64_t got = of_->get(used + more - limit_);
            taken_ += got;
            limit_ += got;
            if (got == 0) ++own_refusals_;
            return got != 0;
        }
        // The same; a context that uses nothing may always begin, beyond the common limit if need
        // be.
        bool reach(std::uint64_t used, std::uint64_t more) {
            if (extend(used, more)) return true;
            if (of_ && used == 0) limit_ = more;
            return of_ && used == 0;
        }
        // Whether extend() would succeed now.
        bool could_extend(std::uint64_t used, std::uint64_t more) const {
            const std::uint64_t left = of_ ? of_->left_.load(std::memory_order_relaxed) : 0;
            return used + more <= limit_ + left;
        }
        // Whether less than half of what the contexts share is left: then a context first drops
        // what it can spare. False for a context that is alone.
        bool is_scarce() const {
            return of_ && of_->left_.load(std::memory_order_relaxed) < of_->common_ / 2;
        }
        // Whether another context has got less than it needs, since the last call of this.
        bool were_others_refused() {
            if (!of_) return false;
            const std::uint64_t others =
                of_->refusals_.load(std::memory_order_relaxed) - own_refusals_;
            return std::exchange(others_refusals_, others) != others;
        }
        bool is_alone() const { return !of_; }
        // So much an idle context may keep without hindrance to the others.
        std::uint64_t spare() const { return of_ ? of_->chunk_ : limit_; }
        // Whether it has more than what is reserved for it, which others may need.
        bool has_extra() const { return of_ && limit_ > of_->reserve_; }
        // Returns what is not used, but for a chunk.
        void trim(std::uint64_t used) {
            if (!of_) return;
            const std::uint64_t kept = std::max(of_->reserve_, used + of_->chunk_);
            if (limit_ <= kept) return;
            const std::uint64_t back = std::min(limit_ - kept, taken_);
            taken_ -= back;
            limit_ = kept;
            of_->put(back);
        }

      private:
        const std::shared_ptr<Budget> of_;
        std::uint64_t limit_;
        std::uint64_t taken_ = 0;            // Of the common word.
        std::uint64_t own_refusals_ = 0;     // Of this context,
        std::uint64_t others_refusals_ = 0;  // and of the others, as last seen.
    };

  private:
    // At least `least`, or nothing; as much as a chunk, if that is left.
    std::uint64_t get(std::uint64_t least) {
        std::uint64_t left = left_.load(std::memory_order_relaxed);
        while (left >= least) {
            const std::uint64_t most = std::min(left, std::max(least, chunk_));
            if (left_.compare_exchange_weak(left, left - most, std::memory_order_relaxed)) {
                return most;
            }
        }
        refusals_.fetch_add(1, std::memory_order_relaxed);
        return 0;
    }
    void put(std::uint64_t amount) {
        if (amount != 0) left_.fetch_add(amount, std::memory_order_relaxed);
    }

    const std::uint64_t chunk_;
    const std::uint64_t reserve_;  // Of each context.
    const std::uint64_t common_;   // Of all: the limit without the reserves.
    alignas(128) std::atomic<std::uint64_t> left_;
    std::atomic<std::uint64_t> refusals_{0};  // Of all contexts.
};

// Limits that no option names, of the layers that have them.
struct FixedLimits {
    std::uint64_t body_bytes = 0;  // Of large bodies.
    std::uint64_t sessions = 0;
    std::uint64_t session_slots = 0;
};

// The limits of a runtime with several contexts.
struct Budgets {
    Budgets(const RuntimeOptions& options, const FixedLimits& fixed, std::uint32_t contexts)
        : handlers(options.handlers_max, contexts),
          handler_bytes(options.handler_bytes_max, contexts),
          sent_calls(options.calls_in_flight_max, contexts),
          sent_bytes(options.bytes_in_flight_max, contexts),
          waiting_calls(options.waiting_bytes_max, contexts),
          waiting_frames(options.waiting_bytes_max, contexts),
          short_frames(options.waiting_bytes_max / 4, contexts),
          body_bytes(fixed.body_bytes, contexts),
          sessions(fixed.sessions, contexts),
          session_slots(fixed.session_slots, contexts) {}

    Budget handlers;
    Budget handler_bytes;
    Budget sent_calls;
    Budget sent_bytes;
    Budget waiting_calls;   // Bytes.
    Budget waiting_frames;  // Bytes.
    Budget short_frames;    // Bytes beyond those.
    Budget body_bytes;
    Budget sessions;
    Budget session_slots;
};

// `budgets`: nullptr: the context is alone.
inline std::shared_ptr<Budget> budget_of(const std::shared_ptr<Budgets>& budgets,
                                         Budget Budgets::*which) {
    return budgets ? std::shared_ptr<Budget>(budgets, &(budgets.get()->*which)) : nullptr;
}

}  // namespace weft::core
