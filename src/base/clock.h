// The source of time. Production code asks it once per turn and passes the instant on.
#pragma once

#include <weft/time.h>

namespace weft::base {

class Clock {
  public:
    virtual ~Clock() = default;
    // Never goes back. Cost: about 20 ns on a real clock.
    virtual TimePoint now() const = 0;
};

class SteadyClock final : public Clock {
  public:
    TimePoint now() const override { return std::chrono::steady_clock::now(); }
};

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
