// The clock of simulations and tests.
#pragma once

#include "base/clock.h"

namespace weft::base {

// Stands still until told to move.
class ManualClock final : public Clock {
  public:
    explicit ManualClock(TimePoint start = TimePoint(Duration(1'000'000'000))) : now_(start) {}
    TimePoint now() const override { return now_; }
    void advance(Duration by) { now_ = saturating_add(now_, by); }

  private:
    TimePoint now_;
};

}  // namespace weft::base
