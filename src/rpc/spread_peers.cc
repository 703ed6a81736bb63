#include "rpc/spread_peers.h"

#include <algorithm>
#include <bitset>

#include "base/assert.h"
#include "rpc/channel_legs.h"
#include "rpc/client_session.h"

namespace weft::rpc {

void end_peer(core::Context& context, Client& client, core::PeerRef peer) {
    core::Peer* const found = core::Context::find(peer);
    if (!found) return;
    client.end_session(*found);
    context.remove_peer(*found, fail(Code::cancelled, "the channel was closed"));
}

SpreadPeers::SpreadPeers(core::Context& context, std::shared_ptr<const ServerFacts> facts,
                         core::PeerRef first)
    : context_(context), facts_(std::move(facts)), most_(facts_->spread), peers_{first} {}

SpreadPeers::SpreadPeers(core::Context& context, std::shared_ptr<const ServerFacts> facts,
                         core::PeerRef missing, std::uint16_t wanted)
    : context_(context), facts_(std::move(facts)), most_(1), missing_(missing), wanted_(wanted) {
    WEFT_ASSERT(wanted != 0 && missing.generation == 0);
}

core::PeerRef SpreadPeers::pick() {
    if (context_.connects() != seen_) [[unlikely]]
        update();
    const auto count = static_cast<std::uint32_t>(peers_.size());
    if (count <= 1) return count == 0 ? missing_ : peers_.front();
    const std::uint64_t drawn = random_.next();
    const auto at = static_cast<std::uint32_t>(drawn) % count;
    const auto other = (at + 1 + static_cast<std::uint32_t>(drawn >> 32) % (count - 1)) % count;
    const std::size_t loads[] = {load(peers_[at]), load(peers_[other])};
    if (std::max(loads[0], loads[1]) >= not_up) [[unlikely]]
        return pick_and_connect();
    return loads[1] < loads[0] ? peers_[other] : peers_[at];
}

// No operation waits for a connection while another one is up, or fails because it is refused.
// While none is up, operations go to a peer that searches for its server, as calls in flight there
// do, or to the first one, as on a channel without spread: another one may be refused alone. Of
// several that search the first one, too: a server that has started again places it first.
core::PeerRef SpreadPeers::pick_and_connect() {
    core::PeerRef least = peers_.front();
    for (const core::PeerRef ref : peers_) {
        if (load(ref) < load(least)) least = ref;
        core::Peer* const peer = core::Context::find(ref);
        const bool may_connect = peer && peer->state == core::PeerState::idle &&
                                 !context_.is_forked() &&
                                 peer->attempt.failed_at + retry_after <= context_.now();
        if (may_connect) context_.connect(*peer);
    }
    return least;
}

std::vector<core::PeerRef> SpreadPeers::all() const {
    std::vector<core::PeerRef> all = peers_;
    all.insert(all.end(), replaced_.begin(), replaced_.end());
    return all;
}

// Again with each operation, while there is no room for a peer, or a replaced one is in use.
void SpreadPeers::update() {
    if (context_.is_forked()) return;
    const std::uint64_t connects = context_.connects();
    const bool has_peers = wanted_ == 0 ? place_others() : !peers_.empty() || add({wanted_});
    remove_idle();
    if (has_peers && replaced_.empty()) seen_ = connects;
}

// The server's contexts are known from the first connection on. A server that has started again may
// have others, and the first peer may be with another one. False: a peer is missing.
bool SpreadPeers::place_others() {
    const core::Peer* const first = core::Context::find(peers_.front());
    if (!first) return true;
    const Place place{first->remote.contexts, first->remote.context};
    const bool is_placed = std::none_of(peers_.begin() + 1, peers_.end(),
                                        [this](core::PeerRef ref) { return is_elsewhere(ref); });
    if (place == known_ && is_placed) return true;
    if (context_.now() < retry_at_) return false;
    place_others(place);
    if (peers_.size() < std::min<std::size_t>(most_, place.contexts)) {
        retry_at_ = context_.now() + retry_after;
        return false;
    }
    known_ = place;
    return true;
}

// A peer with calls in flight comes to any context of a server that has started again, where it has
// no session any more.
bool SpreadPeers::is_elsewhere(core::PeerRef ref) const {
    const core::Peer* const peer = core::Context::find(ref);
    return peer && peer->state == core::PeerState::up && peer->remote.returns &&
           peer->remote.context + 1 != peer->remote.chosen.number;
}

// A peer for the first one's context, or for one that the server lacks, or that is with another
// one, is replaced. The others stay.
void SpreadPeers::place_others(const Place& first) {
    std::bitset<na::contexts_max> taken;
    taken.set(first.context);
    std::vector<core::PeerRef> kept{peers_.front()};
    for (auto at = peers_.begin() + 1; at != peers_.end(); ++at) {
        const core::Peer* const peer = core::Context::find(*at);
        const std::size_t chosen = peer ? peer->remote.chosen.number - 1u : first.context;
        const bool is_kept = chosen < first.contexts && !taken.test(chosen) && !is_elsewhere(*at);
        if (is_kept) taken.set(chosen);
        (is_kept ? kept : replaced_).push_back(*at);
    }
    peers_ = std::move(kept);
    const std::size_t count = std::min<std::size_t>(most_, first.contexts);
    for (std::size_t next = first.context; peers_.size() < count;) {
        next = (next + 1) % first.contexts;
        if (taken.test(next)) continue;
        if (!add({.number = static_cast<std::uint16_t>(next + 1), .is_required = false})) return;
        taken.set(next);
    }
}

bool SpreadPeers::add(core::WantedContext wanted) {
    const Result<core::PeerRef> added = ChannelLegs::add_peer(context_, *facts_, wanted);
    if (added) peers_.push_back(*added);
    return added.ok();
}

// Posted: this may run inside a completion of such a peer.
void SpreadPeers::remove_idle() {
    std::erase_if(replaced_, [this](core::PeerRef ref) {
        const core::Peer* const peer = core::Context::find(ref);
        if (peer && peer->interest != 0) return false;
        Client& client = facts_->here[context_.member()].client;
        context_.post([owner = context_.share(), &context = context_, &client, ref] {
            end_peer(context, client, ref);
        });
        return true;
    });
}

std::size_t SpreadPeers::load(core::PeerRef peer) const {
    const core::Peer* const found = core::Context::find(peer);
    const bool is_first = peer == peers_.front();
    if (!found) return 5 * not_up;
    if (found->state == core::PeerState::up) return found->interest;
    const ClientSession* const session = client_session(*found);
    const bool searches = session && session->state == SessionState::reconnecting;
    return found->interest + (searches ? (is_first ? 1 : 2) : (is_first ? 3 : 4)) * not_up;
}

}  // namespace weft::rpc
