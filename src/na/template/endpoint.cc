#include "na/template/endpoint.h"

#include "na/common/exposure.h"

namespace weft::na::blank {

static Limits limits_of(const EndpointParts& parts) {
    Limits limits;
    limits.message_bytes_max = 17 * 1024;
    limits.eager_bytes_max = 16 * 1024;
    limits.rma_bytes_max = 1 << 20;
    limits.rma_depth = 128;
    limits.rma_per_peer_max = 16;
    limits.peers_max = static_cast<std::uint32_t>(parts.peers_max);
    return limits;
}

TemplateEndpoint::TemplateEndpoint(EndpointParts parts)
    : parts_(std::move(parts)), limits_(limits_of(parts_)) {}

// Only what holds for every peer and every region.
Caps TemplateEndpoint::caps() const {
    Caps caps;
    caps.rma_private = true;  // Memory outside of the arena, too.
    caps.fences_region = true;
    caps.fenced_by_end = true;
    return caps;
}

Result<PeerId> TemplateEndpoint::connect(const Address& to, TimePoint) {
    if (to.scheme != scheme()) {
        return fail(Code::invalid_argument, "template can't connect to " + to.uri());
    }
    if (peers_.size() >= limits_.peers_max) {
        return fail(Code::resource_exhausted, "connecting to " + to.uri() + ": all of the " +
                                                  std::to_string(limits_.peers_max) +
                                                  " peers_max are in use");
    }
    Connection* const added = peers_.try_add();
    if (!added) return fail(Code::resource_exhausted, "connecting to " + to.uri() + ": no memory");
    Connection& connection = *added;
    connection.info.uri = to.uri();
    const PeerId id = connection.id;
    connection.phase.move_to(PeerPhase::connecting);
    // Here: start to connect. Then encode(Hello) to the peer, and apply_hello() of its answer.
    take_down(connection, Code::unavailable, "nothing listens at " + to.uri());
    return id;
}

const PeerInfo* TemplateEndpoint::info(PeerId peer) const {
    const Connection* connection = peers_.find_up(peer);
    return connection ? &connection->info : nullptr;
}

void TemplateEndpoint::close(PeerId peer) {
    // Here: send what is committed, then a bye. Transfers of the peer complete as cancelled. The
    // bytes of its messages that wait in events_ return to their pool.
    if (peers_.find(peer)) (void)peers_.remove(peer);
    events_.drop_events_of(peer, [this](const Event& event) {
        if (event.kind == EventKind::peer_down) peers_.recycle(event.peer.index);
    });
}

// The only place where a peer is lost: exactly one peer_down. No other peer has the index before
// the poll after the one that hands it out.
void TemplateEndpoint::take_down(Connection& connection, Code code, std::string why) {
    connection.phase.move_to(PeerPhase::down);
    events_.push(down_event(connection.id, code), std::move(why));
    (void)peers_.release(connection.id);
}

std::byte* TemplateEndpoint::reserve(PeerId, std::size_t) noexcept {
    // Here: room in the peer's ring, socket buffer or slot.
    return nullptr;
}

bool TemplateEndpoint::commit(std::size_t) noexcept { return false; }

std::size_t TemplateEndpoint::unsent(PeerId) const { return 0; }

std::size_t TemplateEndpoint::poll(std::span<Event> events, TimePoint) noexcept {
    peers_.begin_poll();
    // Here: the bytes of the last poll's messages return to their pool.
    events_.begin(events);
    // Here: while events_.has_room(), take messages and completions, and push their events.
    const std::size_t count = events_.end();
    peers_.note_reported(events.first(count));
    return count;
}

Result<FabricKey> TemplateEndpoint::expose(const Exposure& exposure) {
    if (Status status = validate_exposure(exposure); !status.ok()) return status;
    if (exposed_[exposure.region]) return already_exposed(exposure.region);
    exposed_.set(exposure.region);
    // Here: register the memory.
    return FabricKey{reinterpret_cast<std::uintptr_t>(exposure.memory.data()), exposure.key};
}

void TemplateEndpoint::fence(std::uint32_t region, Holders) {
    WEFT_ASSERT(region < regions_max);
    exposed_.reset(region);
    // Here: the event follows when no access is possible any more.
    events_.push(fenced_event(region));
}

// Each item that is accepted completes exactly once.
std::size_t TemplateEndpoint::post(std::span<const RmaItem> items) noexcept {
    for (const RmaItem& item : items) {
        events_.push_done(item, Code::unavailable,
                          transfer_text(item, nullptr, "the peer is not up"));
    }
    return items.size();
}

namespace {

class TemplateProvider final : public Provider {
  public:
    std::string_view scheme() const override { return "template"; }
    Diagnosis probe() override { return {false, "an empty transport: the guide for new ones"}; }
    Result<std::unique_ptr<Endpoint>> open(const Address* listen, EndpointParts parts,
                                           TimePoint) override {
        if (listen) {
            return fail(Code::unavailable, "template can't listen at " + listen->uri());
        }
        return std::unique_ptr<Endpoint>(std::make_unique<TemplateEndpoint>(std::move(parts)));
    }
};

}  // namespace

std::unique_ptr<Provider> make_template_provider() { return std::make_unique<TemplateProvider>(); }

}  // namespace weft::na::blank
