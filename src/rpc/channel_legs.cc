#include "rpc/channel_legs.h"

#include <optional>

namespace weft::rpc {

Result<core::PeerRef> ChannelLegs::add_peer(core::Context& context, const ServerFacts& facts,
                                            core::WantedContext wanted) {
    Result<core::PeerRef> peer = context.add_peer(facts.addresses, wanted);
    if (peer) core::Context::find(*peer)->remote.report = facts.contexts;
    return peer;
}

Result<ChannelImpl*> ChannelLegs::leg(std::uint16_t context, const ChannelImpl& home) {
    WEFT_ASSERT(context < facts_->here.size());
    Slot& slot = legs_[context];
    if (slot.channel) return slot.channel.get();
    const ContextParts& at = facts_->here[context];
    WEFT_ASSERT(at.context.in_turn());
    Result<core::PeerRef> peer = add_peer(at.context, *facts_, {wanted_});
    if (!peer) return std::move(peer).status();
    slot.channel = home.leg_at(at.context, at.client, at.bulk, *peer);
    slot.channel->set_home(home_);
    if (wanted_ == 0) slot.channel->set_spread(facts_);
    if (!slot.channel->has_spread()) home_.set_direct_leg(context, *slot.channel);
    return slot.channel.get();
}

// ---- channels to contexts of the server --------------------------------------------------------

// On the context of the channel, as the operations of other threads go there. A thread in a turn of
// another context does not wait for it, as that one may wait for this thread. Without a peer the
// operations add it: they fail while there is no room for it.
std::shared_ptr<ChannelImpl> ChannelLegs::make_pinned(std::uint16_t context) {
    const auto wanted = static_cast<std::uint16_t>(context + 1);
    const std::uint16_t home = home_.context().member();
    const ContextParts& at = facts_->here[home];
    core::PeerRef peer{home_.peer().at, 0};
    const auto add = [&] {
        if (const Result<core::PeerRef> added = add_peer(at.context, *facts_, {wanted}))
            peer = *added;
    };
    const std::optional<std::uint16_t> here = home_.context().relative_here();
    const bool waits_in_turn =
        here ? *here != home : Executor::current() && !home_.context().is_owner_or_creator();
    if (!waits_in_turn) (void)facts_->at_home(add);
    std::shared_ptr<ChannelImpl> made = home_.leg_at(at.context, at.client, at.bulk, peer);
    if (peer.generation == 0) made->add_peer_later(facts_, wanted);
    made->set_legs(std::make_unique<ChannelLegs>(*made, facts_, wanted, this), facts_->here.size());
    return made;
}

ChannelImpl& ChannelLegs::pinned(std::uint16_t context) {
    WEFT_ASSERT(context < na::contexts_max);
    if (origin_) return origin_->pinned(context);
    if (const Pins* const pins = pins_.load(std::memory_order_acquire)) {
        ChannelImpl* const known = (*pins)[context].load(std::memory_order_acquire);
        if (known) return *known;
    }
    // A forked child has no thread that could make one: all operations of this one fail, too.
    if (home_.context().is_forked()) return home_;
    // Outside of the lock: it may wait for the channel's thread, which may be here, too.
    std::shared_ptr<ChannelImpl> made = make_pinned(context);
    const std::lock_guard lock(mutex_);
    if (!owned_pins_) {
        owned_pins_ = std::make_unique<Pins>();
        pins_.store(owned_pins_.get(), std::memory_order_release);
    }
    std::atomic<ChannelImpl*>& slot = (*owned_pins_)[context];
    if (ChannelImpl* const other = slot.load(std::memory_order_relaxed)) return *other;
    owned_.push_back(std::move(made));
    slot.store(owned_.back().get(), std::memory_order_release);
    return *owned_.back();
}

}  // namespace weft::rpc
