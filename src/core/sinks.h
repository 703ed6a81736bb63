// The calls of a context to the layers above it.
#pragma once

#include <cstdint>
#include <string>

#include <weft/status.h>

#include "core/frame.h"
#include "core/peer.h"

namespace weft::core {

struct EndpointSlot;

// A layer above that owns some frame kinds. turn() calls it with all tables consistent: a callback
// may call any function of the context, but not destroy it.
class FrameSink {
  public:
    // `frame` is valid until the return. A malformed frame: call Context::close_malformed() and
    // return.
    virtual void on_frame(Peer& peer, FrameHead head, ByteView frame) = 0;
    virtual void on_peer_up(Peer&) {}
    // The transport has room again and the FIFO is empty.
    virtual void on_room(Peer&) {}
    // For backlog_max, turns were long or left messages unread: the delay of arriving messages
    // grows. Repeated as long as it lasts.
    virtual void on_backlog() {}
    // At each heartbeat of a needed peer that is up.
    virtual void on_heartbeat(Peer&) {}
    // Returns to the other contexts what this one does not use of their common limits, and begins
    // what waits for what they have returned. True: it still has more than is reserved for it, or
    // something waits. Called at heartbeats; and at the same interval, until it is false, after a
    // connection was lost or had no room.
    virtual bool trim_shares() { return false; }
    // The connection is lost, or was never up; the waiting frames are dropped.
    virtual void on_peer_down(Peer&, const Status& /*why*/) {}

  protected:
    ~FrameSink() = default;
};

// Receives rma_done and region_fenced.
class RmaSink {
  public:
    virtual void on_rma_done(std::uint64_t cookie, Code code, const std::string& error) = 0;
    virtual void on_region_fenced(std::uint32_t region, EndpointSlot& endpoint) = 0;

  protected:
    ~RmaSink() = default;
};

}  // namespace weft::core
