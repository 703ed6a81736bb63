#include "na/sim/door.h"

#include "na/hello.h"
#include "na/sim/network.h"

namespace weft::na::sim {

SimDoor::SimDoor(std::shared_ptr<World> world, std::string name, HostId host, DoorParts parts)
    : Door(std::move(parts)), world_(std::move(world)), name_(std::move(name)), host_(host) {}

Result<std::shared_ptr<SimDoor>> SimDoor::open(std::shared_ptr<World> world, std::string name,
                                               HostId host, DoorParts parts) {
    Network& network = world->network();
    auto door =
        std::make_shared<SimDoor>(std::move(world), std::move(name), host, std::move(parts));
    if (Status status = network.add(*door); !status.ok()) return status;
    door->is_open_ = true;
    return door;
}

void SimDoor::close(std::string_view why, bool notify_peers) {
    if (!std::exchange(is_open_, false)) return;
    while (!connects_.empty()) {
        const std::unique_ptr<Packet> one = connects_.pop();
        if (notify_peers) world_->network().refuse(*one, fail(Code::unavailable, std::string(why)));
    }
    world_->network().remove(*this);
}

void SimDoor::remove(Node& node, std::string_view why, bool notify_peers) {
    std::erase(nodes_, &node);
    if (nodes_.empty()) close(why, notify_peers);
}

Status SimDoor::enqueue(Packet& packet) {
    if (connects_.size() >= world_->network().options().listen_backlog)
        return fail(busy_code, "sim://" + name_ + " has too many queued connects");
    connects_.push(std::make_unique<Packet>(std::move(packet)));
    return {};
}

bool SimDoor::has_queued(NodeId from, PeerId peer) const {
    return connects_.any_of(
        [&](const auto& one) { return one->from == from && one->from_peer == peer; });
}

}  // namespace weft::na::sim
