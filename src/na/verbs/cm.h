// Events and identifiers of rdma_cm.
#pragma once

#include <cstddef>
#include <optional>

#include <weft/result.h>

#include "base/slot_table.h"
#include "na/verbs/rdma.h"
#include "na/verbs/wire.h"

namespace weft::na::verbs {

// A copy of an event, so that the event is acknowledged before it is handled.
struct CmEvent {
    rdma_cm_event_type type{};
    int status = 0;
    // Destroyed by another thread already, if it is a connect request that this one passed on.
    rdma_cm_id* id = nullptr;
    base::SlotId queue_pair;  // Of the id.
    std::byte private_data[256]{};
    std::size_t private_data_bytes = 0;

    ByteView data() const { return {private_data, private_data_bytes}; }
};
// nullopt: there is none.
std::optional<CmEvent> take_cm_event(rdma_event_channel& channel);

// An identifier; its events name the queue pair. nullptr: errno.
rdma_cm_id* make_cm_id(rdma_event_channel* channel, base::SlotId queue_pair);
void set_queue_pair(rdma_cm_id& cm_id, base::SlotId queue_pair);
void reject(rdma_cm_id& cm_id, const Status& why);

// Non-blocking. Errors: UNAVAILABLE, with the remedy.
Result<Owned<rdma_event_channel>> make_event_channel();
// Errors: UNAVAILABLE: this machine has none.
Status why_no_device();

}  // namespace weft::na::verbs
