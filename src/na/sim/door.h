// A name of a simulated network: the endpoints that listen there, and the connects that they have
// not taken yet.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "na/door.h"
#include "na/sim/fifo.h"
#include "na/sim/node.h"
#include "na/sim/sim.h"

namespace weft::na::sim {

class SimDoor final : public Door, public Listener {
  public:
    // Errors: ALREADY_EXISTS when a live endpoint has the name.
    static Result<std::shared_ptr<SimDoor>> open(std::shared_ptr<World> world, std::string name,
                                                 HostId host, DoorParts parts);
    SimDoor(std::shared_ptr<World> world, std::string name, HostId host, DoorParts parts);
    ~SimDoor() override { close("the peer closed its endpoint", true); }

    const std::string& name() const override { return name_; }
    HostId host() const override { return host_; }
    const std::vector<Node*>& nodes() const override { return nodes_; }
    Status enqueue(Packet& packet) override;
    bool has_queued(NodeId from, PeerId peer) const override;

    void add(Node& node) { nodes_.push_back(&node); }
    // The last one closes the door.
    void remove(Node& node, std::string_view why, bool notify_peers);

    bool has_connects() const { return !connects_.empty(); }
    std::unique_ptr<Packet> take() { return connects_.pop(); }

  private:
    // Frees the name.
    void close(std::string_view why, bool notify_peers);

    const std::shared_ptr<World> world_;
    const std::string name_;
    const HostId host_;
    bool is_open_ = false;
    std::vector<Node*> nodes_;
    Fifo<std::unique_ptr<Packet>> connects_;
};

}  // namespace weft::na::sim
