// The connections that a channel with ConnectOptions::spread has from one context, each with
// another context of the server.
#pragma once

#include <memory>
#include <vector>

#include "core/context.h"

namespace weft::rpc {

class Client;
struct ServerFacts;

// Ends the session with a peer that its channel no longer uses, and removes it. No effect if it is
// removed. Not in a callback of the peer.
void end_peer(core::Context& context, Client& client, core::PeerRef peer);

// Thread: the context's, except where stated.
class SpreadPeers {
  public:
    // `first`: the peer of the channel, which is placed by the server. Thread: any.
    SpreadPeers(core::Context& context, std::shared_ptr<const ServerFacts> facts,
                core::PeerRef first);
    // Of a channel to the context `wanted` - 1 of the server: its peer is added when there is room
    // for one. Until then operations go to `missing`, which is no peer: they fail. Thread: any.
    SpreadPeers(core::Context& context, std::shared_ptr<const ServerFacts> facts,
                core::PeerRef missing, std::uint16_t wanted);

    // The peer for an operation that begins now: of two random ones the one with fewer operations
    // in flight (M. Mitzenmacher, "The power of two choices in randomized load balancing", 1996).
    core::PeerRef pick();
    // For the end of the channel.
    std::vector<core::PeerRef> all() const;

  private:
    // Of additional peers and connections, without which the channel works, too.
    static constexpr Duration retry_after = std::chrono::seconds(1);
    // Of load(): more than any number of operations. Times 1 to 5.
    static constexpr std::size_t not_up = std::size_t{1} << 32;
    static constexpr std::uint64_t never_seen = ~std::uint64_t{0};

    // Of the first peer, as of its last connection.
    struct Place {
        std::uint16_t contexts = 0;  // Of the server; 0: there was no connection.
        std::uint16_t context = 0;
        friend bool operator==(const Place&, const Place&) = default;
    };
    void update();
    bool is_elsewhere(core::PeerRef ref) const;
    core::PeerRef pick_and_connect();
    bool place_others();
    void place_others(const Place& first);
    // False: there is no room for more peers.
    bool add(core::WantedContext wanted);
    void remove_idle();
    std::size_t load(core::PeerRef peer) const;

    core::Context& context_;
    base::SeededRandom random_{
        context_.random().next()};  // Each draw of the context's is a system call.
    const std::shared_ptr<const ServerFacts> facts_;
    const std::size_t most_;
    const core::PeerRef missing_;
    const std::uint16_t wanted_ = 0;  // 0: of a channel to any context.
    std::vector<core::PeerRef> peers_;
    std::vector<core::PeerRef> replaced_;  // Peers with operations in flight; no more begin there.
    // Context::connects(), for which the peers are up to date. So the hot path has one comparison.
    std::uint64_t seen_ = never_seen;
    Place known_;  // For which the others are placed.
    TimePoint retry_at_{};
};

// Where an operation of a channel goes.
struct SpreadTarget {
    core::PeerRef peer;
    std::shared_ptr<SpreadPeers> spread;  // nullptr: always to `peer`.
    // Thread: the context's.
    core::PeerRef pick() const { return spread ? spread->pick() : peer; }
};

}  // namespace weft::rpc
