// An empty transport: the guide for new ones (docs/write-a-transport.md). Copy the folder, rename
// it, and fill in what is marked "here". It keeps the contract of provider.h with a network that
// reaches no peer. Tests compile and check it; the library does not contain it.
#pragma once

#include <bitset>
#include <memory>

#include "na/common/event_queue.h"
#include "na/common/peer_phase.h"
#include "na/common/peer_slots.h"
#include "na/provider.h"

namespace weft::na::blank {

// The state of one peer. Here: its socket or queue pair, its buffers, its place in a handshake.
struct Connection {
    PeerId id;
    PhaseState phase{PeerPhase::waiting};
    PeerInfo info;
};

class TemplateEndpoint final : public Endpoint {
  public:
    explicit TemplateEndpoint(EndpointParts parts);

    std::string_view scheme() const override { return "template"; }
    std::string address() const override { return {}; }
    Caps caps() const override;
    const Limits& limits() const override { return limits_; }

    Result<PeerId> connect(const Address& to, TimePoint now) override;
    const PeerInfo* info(PeerId peer) const override;
    void close(PeerId peer) override;
    std::string error() const override { return events_.reason(); }

    std::byte* reserve(PeerId peer, std::size_t bytes) noexcept override;
    bool commit(std::size_t bytes) noexcept override;
    void flush() noexcept override {}
    std::size_t unsent(PeerId peer) const override;
    std::size_t poll(std::span<Event> events, TimePoint now) noexcept override;

    Result<FabricKey> expose(const Exposure& exposure) override;
    void fence(std::uint32_t region, Holders holders) override;
    std::size_t post(std::span<const RmaItem> items) noexcept override;

  private:
    void take_down(Connection& connection, Code code, std::string why);

    // Constant.
    const EndpointParts parts_;
    const Limits limits_;

    // Of the context's thread.
    PeerSlots<Connection> peers_;
    std::bitset<regions_max> exposed_;
    EventQueue events_;
};

std::unique_ptr<Provider> make_template_provider();

}  // namespace weft::na::blank
