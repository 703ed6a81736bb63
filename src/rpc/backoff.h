// When a call that the server pushed back is retried. Pure: the caller passes time and randomness.
//
// A budget per peer (as in gRFC A6 and Finagle): every success earns a part of a retry. Retries are
// therefore a bounded share of the load, whatever the server replies.
#pragma once

#include <algorithm>
#include <cstdint>

#include <weft/time.h>

#include "base/assert.h"
#include "base/random.h"

namespace weft::rpc {

class RetryBudget {
  public:
    static constexpr std::uint32_t retry_cost = 10;  // Successes.
    static constexpr std::uint32_t most = 10 * retry_cost;

    void earn() {
        if (tokens_ < most) ++tokens_;
    }
    bool spend() {
        if (tokens_ < retry_cost) return false;
        tokens_ -= retry_cost;
        return true;
    }
    std::uint32_t retries_left() const { return tokens_ / retry_cost; }

  private:
    std::uint32_t tokens_ = most;
};

// From half of `backoff` to one and a half.
inline Duration with_jitter(Duration backoff, base::Random& random) {
    const auto count = std::max<std::int64_t>(backoff.count(), 1);
    return backoff / 2 +
           Duration(static_cast<std::int64_t>(random.next() % static_cast<std::uint64_t>(count)));
}

// Retries of one call.
inline constexpr std::uint32_t retries_max = 100;

// The pause before a retry (the first one is 1): the server's pushback, and on top an exponential
// backoff of at most `longest`, with jitter.
inline Duration retry_backoff(std::uint32_t retry, Duration pushback, base::Random& random) {
    WEFT_DCHECK(retry != 0);
    constexpr Duration first = 5ms, longest = 2s;  // Before the jitter.
    const Duration own = std::min(first * (1 << std::min(retry - 1, 10u)), longest);
    return std::max(pushback, Duration::zero()) + with_jitter(own, random);
}

}  // namespace weft::rpc
