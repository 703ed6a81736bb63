#include "na/tcp/bulk_schedule.h"

namespace weft::na::tcp {

void BulkSchedule::note_moved(Bulk& bulk, std::size_t bytes, TimePoint now) {
    throttle_.on_bulk_bytes(now, bytes);
    bulk.UnderWayNode::unlink_if_linked();
    if (!bulk.is_under_way()) return;
    WEFT_DCHECK(bulk.phase == BulkPhase::up);
    bulk.moved_at = now;
    under_way_.push_back(bulk);
}

bool BulkSchedule::is_moving(TimePoint now) {
    if (!pumping_.empty()) return true;
    const Bulk* last = under_way_.back();
    return last && now - last->moved_at < stands_still_after;
}

}  // namespace weft::na::tcp
