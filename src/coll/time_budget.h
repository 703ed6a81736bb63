// The time that each hop of a collective may use. Pure.
#pragma once

#include <weft/time.h>

#include "coll/peer_clock.h"

namespace weft::coll {

// A share of the time until a deadline; the rest is kept back for later steps.
TimePoint share_of(TimePoint now, TimePoint deadline);

// Whether a start that is translated by this clock loses less time than each hop keeps back: an old
// reading makes a collective look older and ends its time early.
bool is_exact(const PeerClock& clock, TimePoint began, Duration time_limit);

}  // namespace weft::coll
