// The bodies of a scatter: by rank at the caller, by position on the wire. Pure.
#pragma once

#include "coll/collective_request.h"
#include "coll/rank_order.h"

namespace weft::coll {

// So that each rank appears once. Errors: INVALID_ARGUMENT: two bodies for one rank.
Status sort_by_rank(std::vector<RankBytes>& bodies);
// The bodies by position. Those that remain in `bodies` are for ranks that are not members.
// Requires: `bodies` are sorted, and each rank of the order has one.
std::vector<std::byte> take_in_order(const RankOrder& rank_order, std::vector<RankBytes>& bodies);
// The reverse, added to `others`.
std::vector<RankBytes> bodies_by_rank(const RankOrder& rank_order, ByteView pieces,
                                      std::vector<RankBytes> others);

}  // namespace weft::coll
