// Pings all members of a group.
#pragma once

#include <vector>

#include <weft/group_view.h>
#include <weft/time.h>

namespace weft::tool {

struct ProbeResult {
    Status status;
    Duration trip{};  // With connecting; only if `status` is OK.
};

// Results in order of the members; up to 256 are pinged at a time. Shows a bar when `progress` is
// wanted. Errors: as Runtime::create().
Result<std::vector<ProbeResult>> probe(const GroupView& view, Duration timeout, bool progress);

}  // namespace weft::tool
