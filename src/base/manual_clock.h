// The clock of simulations and tests.
#pragma once

#include <algorithm>

#include "base/clock.h"

namespace weft::base {

// Stands still until advance(); never goes back.
class ManualClock final : public Clock {
  public:
    explicit ManualClock(TimePoint start = TimePoint(Duration(1'000'000'000))) : now_(start) {}
    TimePoint now() const override { return now_; }
    // A negative duration counts as zero.
    void advance(Duration by) { now_ = saturating_add(now_, std::max(by, Duration::zero())); }

  private:
    TimePoint now_;
};

}  // namespace weft::base
