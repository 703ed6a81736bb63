#include "coll/suspicion.h"

#include <algorithm>
#include <bit>

#include "coll/child_requests.h"

namespace weft::coll {

Duration progress_interval_of(const ChildRequest& request) {
    const Duration first =
        progress_interval_min + progress_interval_per_level * std::bit_width(request.of.size());
    return std::min<Duration>(first * (1 << std::min<int>(request.rounds, 8)),
                              progress_interval_max);
}

TimePoint due_of(const ChildRequest& request) {
    if (request.is(RequestPhase::backing_off))
        return request.sent_at + progress_interval_of(request) / 2;
    if (!request.is(RequestPhase::sent) || request.is_suspect) return never;
    return request.sent_at + progress_interval_of(request) + suspect_after;
}

}  // namespace weft::coll
