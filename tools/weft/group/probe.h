// All members of a group, asked whether they live.
#pragma once

#include <vector>

#include <weft/group_view.h>
#include <weft/time.h>

namespace weft::tool {

struct Answer {
    Status status;
    Duration trip{};  // The connecting included. Of one that answered.
};

// In order of the members; hundreds are asked at a time. Shows a bar when `progress` is wanted.
// Errors: as Runtime::create().
Result<std::vector<Answer>> probe(const GroupView& view, Duration timeout, bool progress);

}  // namespace weft::tool
