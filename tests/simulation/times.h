// Whether an operation ended in time.
#pragma once

#include <algorithm>

#include <weft/time.h>

#include "simulation/rules.h"

namespace weft::scenarios {

// When it was submitted, had to end, was cancelled and completed; since when its client runs
// without a pause, and since when that client can't reach the server.
struct Times {
    TimePoint submitted{};
    TimePoint deadline = never;
    TimePoint cancelled = never;
    TimePoint completed{};
    TimePoint running_since{};
    TimePoint unreachable_since = never;
};

// The longest time of a reply without faults.
inline constexpr Duration prompt_max = 50ms;
// How long a server keeps a session after its client was lost.
inline constexpr Duration session_memory = 10s;

template <class Seen>
void validate_times(RuleResults& results, const Times& times, Seen&& seen) {
    constexpr Duration lateness_max = 10ms, death_max = 3s;
    const auto by = [&](TimePoint at) {
        return saturating_add(std::max(at, times.running_since), lateness_max);
    };
    results.hold(times.completed <= by(times.deadline), Rule::completes_in_time, seen);
    if (times.cancelled != never) {
        results.hold(times.completed <= by(times.cancelled), Rule::cancel_completes, seen);
    }
    if (times.unreachable_since == never) return;
    const TimePoint since =
        std::max({times.unreachable_since, times.submitted, times.running_since});
    results.hold(times.completed - since <= death_max + lateness_max, Rule::completes_after_death,
                 seen);
}

}  // namespace weft::scenarios
