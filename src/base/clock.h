// The source of time. Production code reads it once per turn and passes the instant on.
#pragma once

#include <weft/time.h>

namespace weft::base {

class Clock {
  public:
    virtual ~Clock() = default;
    // Never goes back. Cost: 10 to 30 ns on a real clock (base/steady_clock.h).
    virtual TimePoint now() const = 0;
};

}  // namespace weft::base
