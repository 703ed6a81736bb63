#include "rpc/channel_legs.h"

namespace weft::rpc {

Result<ChannelImpl*> ChannelLegs::leg(std::uint16_t context, const ChannelImpl& home) {
    WEFT_ASSERT(context < contexts_.size());
    Slot& slot = legs_[context];
    if (slot.channel) return slot.channel.get();
    const ContextParts& at = contexts_[context];
    WEFT_ASSERT(at.context.in_turn());
    Result<core::PeerRef> peer = at.context.add_peer(addresses_, wanted_);
    if (!peer) return std::move(peer).status();
    slot.channel = home.leg_at(at.context, at.client, at.bulk, *peer);
    return slot.channel.get();
}

ChannelImpl& ChannelLegs::made(std::uint16_t context) const {
    WEFT_ASSERT(context < contexts_.size() && legs_[context].channel);
    return *legs_[context].channel;
}

}  // namespace weft::rpc
