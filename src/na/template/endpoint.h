// An endpoint of the empty transport (template.h).
#pragma once

#include <sys/types.h>

#include <bitset>

#include "na/common/event_queue.h"
#include "na/common/peer_phase.h"
#include "na/common/peer_slots.h"
#include "na/provider.h"

namespace weft::na::blank {

// The state of one peer. Here: its socket or queue pair, its buffers, its transfers, its deadline.
struct Connection {
    PeerId id;
    PhaseState phase{PeerPhase::waiting};
    PeerInfo info;
    bool incoming = false;
};

class TemplateEndpoint final : public Endpoint {
  public:
    explicit TemplateEndpoint(EndpointParts parts);
    ~TemplateEndpoint() override;

    std::string_view scheme() const override { return "template"; }
    std::string address() const override;
    Caps caps() const override;
    const Limits& limits() const override { return limits_; }

    Result<PeerId> connect(const Address& to, TimePoint now) override;
    const PeerInfo* info(PeerId peer) const override;
    void close(PeerId peer) override;
    std::string error() const override { return events_.reason(); }

    std::byte* reserve(PeerId peer, std::size_t bytes) noexcept override;
    bool commit(std::size_t bytes) noexcept override;
    void flush() noexcept override;
    std::size_t unsent(PeerId peer) const override;
    std::size_t poll(std::span<Event> events, TimePoint now) noexcept override;

    Result<FabricKey> expose(const Exposure& exposure) override;
    void fence(std::uint32_t region, Holders holders) override;
    std::size_t post(std::span<const RmaItem> items) noexcept override;

    // Here: wait_fd(), arm() and next_deadline(), to sleep; why_waiting(), copy_out(),
    // commit_later(), has_arrived() and has_left(), where their defaults are not enough.

  private:
    void bring_up(Connection& connection);
    void take_down(Connection& connection, Code code, std::string why);

    // Constant.
    const EndpointParts parts_;
    const Limits limits_;
    const pid_t owner_;

    // Of the context's thread.
    PeerSlots<Connection> peers_;
    std::bitset<regions_max> exposed_;
    EventQueue events_;
};

}  // namespace weft::na::blank
