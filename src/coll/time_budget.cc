#include "coll/time_budget.h"

#include <algorithm>

#include "base/assert.h"

namespace weft::coll {

// Each hop keeps back part of the time, enough for a reply and two timer ticks: so a late rank is
// named by its parent, and not the parent by the grandparent.
static Duration share(Duration left) {
    WEFT_DCHECK(left >= Duration(0));
    if (left < 8ms) return left / 2;
    return left - std::clamp<Duration>(left / 32, 3ms, 500ms);
}

TimePoint share_of(TimePoint now, TimePoint deadline) {
    return deadline == never ? never : now + share(std::max(deadline - now, Duration(0)));
}

bool is_exact(const PeerClock& clock, TimePoint began, Duration time_limit) {
    return clock.is_known() && clock.loss(began) <= (time_limit - share(time_limit)) / 2;
}

}  // namespace weft::coll
