// What a context hands to the layers above it.
#pragma once

#include <cstdint>
#include <string>

#include <weft/status.h>

#include "core/frame.h"
#include "core/peer.h"

namespace weft::core {

struct EndpointSlot;

// A layer above that owns some frame kinds. Callbacks come from turn() with all tables consistent:
// they may call anything of the context, except destroying it.
class FrameSink {
  public:
    // `frame` is valid until the return. A malformed frame: call Context::broken() and return.
    virtual void on_frame(Peer& peer, FrameHead head, ByteView frame) = 0;
    virtual void on_peer_up(Peer&) {}
    // The transport has room again and the FIFO is empty.
    virtual void on_room(Peer&) {}
    // For backlog_max turns were long, or did not read all there was: what arrives lies there for
    // longer and longer. Said again as long as it lasts.
    virtual void on_backlog() {}
    // A peer that is needed, from time to time while it is up.
    virtual void on_heartbeat(Peer&) {}
    // The connection is gone (or never came); the frames that waited are dropped.
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
