// An endpoint, as the network and the other endpoints of a simulation see it.
#pragma once

#include <string>
#include <vector>

#include "na/sim/packet.h"

namespace weft::na::sim {

class Node {
  public:
    virtual ~Node() = default;

    virtual HostId host() const = 0;
    virtual const std::string& public_uri() const = 0;
    // Ends as a killed process does: its host notifies the peers, unless the host ends as well.
    virtual void end_process(bool notify_peers) = 0;
    // Stops all replies to transfers.
    virtual void ignore_rma() = 0;

    // Arrivals. Passes the packets that are next on their connection to Network::dispatch(), and
    // keeps those that are ahead.
    virtual void deliver_in_order(Packet& packet) = 0;
    virtual void receive(Packet& packet) = 0;
    // A packet is lost for good, so its connection ends.
    virtual void on_lost(const Packet& packet, Code code, std::string_view why) = 0;
    // The connection has failed, as far as this side can tell.
    virtual void take_down(PeerId peer, Code code, std::string_view why) = 0;

    // Room for messages from another endpoint, which knows the connection as `peer`. The bytes of
    // its messages that the last poll here handed out:
    virtual std::size_t delivered_bytes(PeerId peer) const = 0;
    // Makes this side poll again, which returns the room of what it has read.
    virtual void request_room() = 0;
    // The peer has read `bytes` from this endpoint.
    virtual void give_back_room(PeerId peer, std::size_t bytes) = 0;
    virtual bool waits_for_room(PeerId peer) const = 0;
};

// A name that endpoints listen under.
class Listener {
  public:
    virtual ~Listener() = default;

    virtual const std::string& name() const = 0;
    virtual HostId host() const = 0;
    virtual const std::vector<Node*>& nodes() const = 0;  // The endpoints.
    // A connect arrives. Returns why it is refused; a queued one may be refused later.
    virtual Status enqueue(Packet& packet) = 0;
    // Whether a connect of that peer is queued here.
    virtual bool has_queued(NodeId from, PeerId peer) const = 0;
};

}  // namespace weft::na::sim
