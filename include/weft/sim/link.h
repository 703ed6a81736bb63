// How a simulated network treats the packets from one host to another.
#pragma once

#include <weft/time.h>

namespace weft::sim {

inline constexpr Duration link_time_max = 24h;
inline constexpr Duration link_resend_min = 1us;
inline constexpr double link_rate_min = 1, link_rate_max = 1e15;  // Bytes a second.

// One direction. Below a connection is a network of packets, which it may lose, delay, repeat,
// reorder and damage. The connection sends packets again, puts them in order and checks them, as
// tcp and RDMA do. The program sees delay, and connections that end. Shares are from 0 to 1, times
// from 0 to link_time_max. A value out of its range aborts the program with a message where the
// link is set.
struct Link {
    Duration latency = 5us;
    Duration jitter = 0ns;        // Up to this much more.
    double bytes_per_second = 0;  // 0: without limit; else link_rate_min to link_rate_max.
    double loss = 0;              // Of packets: sent again after `resend_after`, then twice that.
    double duplicate = 0;
    double reorder = 0;  // Of packets: up to `reorder_by` later than they should be.
    Duration reorder_by = 200us;
    double damage = 0;   // Of packets: found by a checksum; the connection ends with DATA_LOSS.
    double hang_up = 0;  // Of connections: their first message is lost, and they end with it.
    Duration resend_after = 1ms;  // link_resend_min at least, as resend_after_max.
    Duration resend_after_max = 100ms;
    // A packet that does not arrive for so long ends its connection at the sender.
    Duration give_up_after = 1s;
};

}  // namespace weft::sim
