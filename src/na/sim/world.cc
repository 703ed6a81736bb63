#include "na/sim/endpoint.h"
#include "na/sim/network.h"
#include "na/sim/sim.h"

namespace weft::na::sim {

World::World(base::Random& random, WorldOptions options, TimePoint start)
    : network_(std::make_unique<Network>(random, options, start)) {}
World::~World() = default;

TimePoint World::now() const { return network_->now(); }
TimePoint World::next_event() const { return network_->next_event(); }
void World::advance(TimePoint now) { network_->advance(now); }
std::uint64_t World::late_accesses() const { return network_->late_accesses(); }

void World::watch_reads(ReadObserver see) { network_->watch_reads(std::move(see)); }
std::uint64_t World::unwritten_words() const { return network_->unwritten_words(); }

std::uint64_t World::trace_hash() const { return network_->trace_hash(); }
std::uint64_t World::events() const { return network_->events(); }
TimePoint World::last_received(std::string_view by, std::string_view from) const {
    Links& links = network_->links();
    return network_->last_received(links.host(by), links.host(from));
}

std::vector<std::pair<TimePoint, std::string>> World::last_events(std::size_t most) const {
    return network_->packet_log().last(network_->links(), most);
}

bool World::kill(std::string_view name) {
    const std::vector<Node*> nodes = network_->find_by_name(name);
    for (Node* node : nodes) node->end_process(true);
    return !nodes.empty();
}

bool World::stop_host(std::string_view host, bool notify_peers) {
    return network_->stop_host(network_->links().host(host), notify_peers);
}

void World::set_links(const weft::sim::Link& all) { network_->links().set_all(all); }

void World::set_link(std::string_view from, std::string_view to, const weft::sim::Link& link) {
    Links& links = network_->links();
    links.set(links.host(from), links.host(to), link);
}

void World::cut(std::string_view from, std::string_view to) {
    Links& links = network_->links();
    links.cut(links.host(from), links.host(to));
}

void World::heal(std::string_view from, std::string_view to) {
    Links& links = network_->links();
    links.heal(links.host(from), links.host(to));
}

void World::mend_all() { network_->links().mend_all(); }
void World::refuse(double share) { network_->set_refused_share(share); }
ResourceFaults& World::resource_faults(std::string_view host) {
    return network_->resource_faults(network_->links().host(host));
}
const NetworkFaults& World::faults() const { return network_->faults(); }

bool World::ignore_rma(std::string_view name) {
    const std::vector<Node*> nodes = network_->find_by_name(name);
    for (Node* node : nodes) node->ignore_rma();
    return !nodes.empty();
}

namespace {

class SimProvider final : public Provider {
  public:
    SimProvider(std::shared_ptr<World> world, std::string host)
        : world_(std::move(world)), host_(std::move(host)) {}

    std::string_view scheme() const override { return "sim"; }
    Diagnosis probe() override { return {true, "a simulated network inside this process"}; }

    Result<std::unique_ptr<Endpoint>> open(const Address* listen, EndpointParts parts,
                                           TimePoint now) override {
        world_->advance(now);
        std::shared_ptr<Door> door = parts.door;
        if (listen) {
            DoorParts alone;
            alone.peers_max = static_cast<std::uint32_t>(parts.peers_max);
            Result<std::shared_ptr<Door>> own = open_door(*listen, std::move(alone), now);
            if (!own) return std::move(own).status();
            door = *std::move(own);
        }
        Links& links = world_->network().links();
        HostId host = 0;
        if (!host_.empty()) {
            host = links.host(host_);
        } else if (door) {
            host = static_cast<SimDoor&>(*door).host();
        } else {
            host = links.own_host();
        }
        auto endpoint = std::make_unique<SimEndpoint>(
            world_, std::static_pointer_cast<SimDoor>(std::move(door)), host, parts);
        Status joined = endpoint->join();
        if (!joined.ok()) return joined;
        return std::unique_ptr<Endpoint>(std::move(endpoint));
    }

    Result<std::shared_ptr<Door>> open_door(const Address& listen, DoorParts parts,
                                            TimePoint now) override {
        if (listen.scheme != "sim") {
            return fail(Code::invalid_argument, "sim cannot listen at " + listen.uri());
        }
        world_->advance(now);
        const HostId host = world_->network().links().host(host_.empty() ? listen.name : host_);
        Result<std::shared_ptr<SimDoor>> door =
            SimDoor::open(world_, listen.name, host, std::move(parts));
        if (!door) return std::move(door).status();
        return std::shared_ptr<Door>(*std::move(door));
    }

  private:
    std::shared_ptr<World> world_;
    const std::string host_;
};

}  // namespace

std::unique_ptr<Provider> make_sim_provider(std::shared_ptr<World> world, std::string host) {
    return std::make_unique<SimProvider>(std::move(world), std::move(host));
}

}  // namespace weft::na::sim
