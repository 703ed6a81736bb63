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
    Node* node = network_->find_by_name(name);
    if (!node) return false;
    node->end_process(true);
    return true;
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
    Node* node = network_->find_by_name(name);
    if (!node) return false;
    node->ignore_rma();
    return true;
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
        if (listen && listen->scheme != "sim") {
            return fail(Code::invalid_argument, "sim cannot listen at " + listen->uri());
        }
        world_->advance(now);
        auto endpoint =
            std::make_unique<SimEndpoint>(world_, listen ? listen->name : "", host_, parts);
        Status joined = endpoint->join();
        if (!joined.ok()) return joined;
        return std::unique_ptr<Endpoint>(std::move(endpoint));
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
