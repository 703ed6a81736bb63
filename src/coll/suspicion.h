// How long a parent waits for the next reply of a child before it suspects the child and contacts
// the ranks below directly. Pure.
#pragma once

#include <weft/time.h>

namespace weft::coll {

struct ChildRequest;

// A child must reply, at least partially, within the progress interval; it is suspect if
// `suspect_after` passes on top. Higher levels have more time, so that their replies include those
// from below.
inline constexpr Duration progress_interval_min = 120ms;
inline constexpr Duration progress_interval_per_level = 10ms;
inline constexpr Duration progress_interval_max = 2s;
inline constexpr Duration suspect_after = 500ms;

// The time within which the child of this request must reply. Doubles with each partial reply: a
// slow handler costs few messages.
Duration progress_interval_of(const ChildRequest& request);

// When the request is sent again, or its child becomes suspect; `never`: neither.
TimePoint due_of(const ChildRequest& request);

}  // namespace weft::coll
