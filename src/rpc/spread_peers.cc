#include "rpc/spread_peers.h"

#include <algorithm>

#include "base/assert.h"
#include "rpc/channel_legs.h"

namespace weft::rpc {

SpreadPeers::SpreadPeers(core::Context& context, std::shared_ptr<const ServerFacts> facts,
                         core::PeerRef first)
    : context_(context), facts_(std::move(facts)), most_(facts_->spread), peers_{first} {}

SpreadPeers::SpreadPeers(core::Context& context, std::shared_ptr<const ServerFacts> facts,
                         core::PeerRef missing, std::uint16_t wanted)
    : context_(context), facts_(std::move(facts)), most_(1), missing_(missing), wanted_(wanted) {
    WEFT_ASSERT(wanted != 0 && !core::Context::find(missing));
}

core::PeerRef SpreadPeers::pick() {
    if (peers_.size() < most_) [[unlikely]]
        add_missing();
    const auto count = static_cast<std::uint32_t>(peers_.size());
    if (count <= 1) return count == 0 ? missing_ : peers_.front();
    const std::uint64_t drawn = random_.next();
    const auto at = static_cast<std::uint32_t>(drawn) % count;
    const auto other = (at + 1 + static_cast<std::uint32_t>(drawn >> 32) % (count - 1)) % count;
    return load(peers_[other]) < load(peers_[at]) ? peers_[other] : peers_[at];
}

bool SpreadPeers::add(core::WantedContext wanted) {
    const Result<core::PeerRef> added = ChannelLegs::add_peer(context_, *facts_, wanted);
    if (added) peers_.push_back(*added);
    return added.ok();
}

// The server's contexts are known from the first connection on; a server that has started again may
// have more.
void SpreadPeers::add_missing() {
    if (wanted_ != 0) {
        add({wanted_});
        return;
    }
    const core::Peer* const first = core::Context::find(peers_.front());
    if (!first || first->remote.contexts == known_contexts_ || context_.now() < retry_at_) return;
    const std::uint16_t contexts = first->remote.contexts;
    const std::size_t count = std::min<std::size_t>(most_, contexts);
    while (peers_.size() < count) {
        const auto context = (first->remote.context + peers_.size()) % contexts;
        if (!add({.number = static_cast<std::uint16_t>(context + 1), .is_required = false})) {
            retry_at_ = context_.now() + retry_after;
            return;
        }
    }
    known_contexts_ = contexts;
}

// One operation waits for a connection; meanwhile the others use those that are up.
std::size_t SpreadPeers::load(core::PeerRef peer) {
    constexpr std::size_t not_up = std::size_t{1} << 32;
    const core::Peer* const found = core::Context::find(peer);
    if (!found) return 2 * not_up;
    const bool is_waiting = found->interest != 0 && found->state != core::PeerState::up;
    return found->interest + (is_waiting ? not_up : 0);
}

}  // namespace weft::rpc
