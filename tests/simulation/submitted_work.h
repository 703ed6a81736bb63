// Work that a handler submits to another context of its server.
#pragma once

#include <optional>

#include <weft/runtime.h>
#include <weft/sleep.h>

#include "simulation/rules.h"

namespace weft::scenarios {

// Sleeps on a context of the runtime, and resumes on that of the caller. Returns how the sleep
// ended: a cancel of the call, or its deadline, ends it.
inline Task<Status> sleep_elsewhere(RuleResults& results, const Runtime& runtime, unsigned context,
                                    Duration pause) {
    const std::optional<unsigned> home = runtime.here();
    unsigned runs = 0;
    bool was_there = true;
    const auto work = [&]() -> Task<Status> {
        ++runs;
        was_there = was_there && runtime.here() == context;
        const Status slept = co_await sleep_for(pause);
        was_there = was_there && runtime.here() == context;
        co_return slept;
    };
    const Status slept = co_await runtime.context(context).submit(work);
    results.hold(runs == 1 && was_there && runtime.here() == home, Rule::submit_runs_once, [&] {
        return std::to_string(runs) + " times" + (was_there ? "" : ", on another context");
    });
    co_return slept;
}

}  // namespace weft::scenarios
