// The channels of a runtime's contexts to one server: each context has a connection of its own, made
// when it is first used there.
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

// Operations of a leg have ids that name its context, because each context counts its own.
class ChannelLegs {
  public:
    // `contexts` outlives this.
    ChannelLegs(std::span<const ContextParts> contexts, std::vector<na::Address> addresses,
                std::uint16_t wanted)
        : contexts_(contexts),
          addresses_(std::move(addresses)),
          wanted_(wanted),
          legs_(std::make_unique<Slot[]>(contexts.size())) {}

    // The channel of that context, made when needed. Thread: in a turn of it. Errors:
    // RESOURCE_EXHAUSTED, UNAVAILABLE.
    Result<ChannelImpl*> leg(std::uint16_t context, const ChannelImpl& home);
    // The same, which must have been made. Thread: any that has an id of it.
    ChannelImpl& made(std::uint16_t context) const;

    static OperationId tagged(OperationId id, std::uint16_t context) {
        if (id.generation == 0) return id;
        WEFT_DCHECK(id.slot >> tag_shift == 0);
        return {id.slot | (context + 1u) << tag_shift, id.generation};
    }
    // The context of the leg that has the operation, plus 1; 0: the channel itself has it.
    static std::uint16_t tag_of(OperationId id) {
        return static_cast<std::uint16_t>(id.slot >> tag_shift);
    }
    static OperationId untagged(OperationId id) {
        return {id.slot & ((1u << tag_shift) - 1), id.generation};
    }

  private:
    static constexpr unsigned tag_shift = 25;
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
