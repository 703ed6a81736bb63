// Whether something that was asked for ended when it had to.
#pragma once

#include <algorithm>

#include <weft/time.h>

#include "sim/rules.h"

namespace weft::tool {

// When it was asked for, had to end, was given up and ended; since when its client runs without a
// pause, and since when that can't talk to the server.
struct Times {
    TimePoint submitted{};
    TimePoint deadline = never;
    TimePoint cancelled = never;
    TimePoint completed{};
    TimePoint awake_since{};
    TimePoint apart_since = never;
};

// What an answer may take where nothing is wrong.
inline constexpr Duration prompt_max = 50ms;
// How long a server keeps a session after its client was lost.
inline constexpr Duration session_memory = 10s;

template <class Seen>
void judge_times(Verdict& verdict, const Times& times, Seen&& seen) {
    constexpr Duration late_max = 10ms, death_max = 3s;
    const auto by = [&](TimePoint at) {
        return saturating_add(std::max(at, times.awake_since), late_max);
    };
    verdict.hold(times.completed <= by(times.deadline), Rule::completes_in_time, seen);
    if (times.cancelled != never) {
        verdict.hold(times.completed <= by(times.cancelled), Rule::cancel_completes, seen);
    }
    if (times.apart_since == never) return;
    const TimePoint since = std::max({times.apart_since, times.submitted, times.awake_since});
    verdict.hold(times.completed - since <= death_max + late_max, Rule::completes_after_death,
                 seen);
}

}  // namespace weft::tool
