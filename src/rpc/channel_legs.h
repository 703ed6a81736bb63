// The channels of a runtime's contexts to one server: each context has a connection of its own,
// made when it is first used there.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "na/address.h"
#include "rpc/channel_impl.h"

namespace weft::rpc {

// A context of a runtime, with its layers.
struct ContextParts {
    core::Context& context;
    Client& client;
    bulk::Bulk& bulk;
};

class ChannelLegs final : public LegSource {
  public:
    // `contexts` outlives this.
    ChannelLegs(std::span<const ContextParts> contexts, std::vector<na::Address> addresses,
                std::uint16_t wanted)
        : contexts_(contexts),
          addresses_(std::move(addresses)),
          wanted_(wanted),
          legs_(std::make_unique<Slot[]>(contexts.size())) {}

    Result<ChannelImpl*> leg(std::uint16_t context, const ChannelImpl& home) override;
    ChannelImpl& made(std::uint16_t context) const override;

  private:
    // Alone in its lines: written by its context, while others read theirs.
    struct alignas(128) Slot {
        std::shared_ptr<ChannelImpl> channel;
    };

    const std::span<const ContextParts> contexts_;
    const std::vector<na::Address> addresses_;
    const std::uint16_t wanted_;
    const std::unique_ptr<Slot[]> legs_;
};

}  // namespace weft::rpc
