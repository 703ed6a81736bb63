// The collectives that this rank has taken part in, so that none runs twice here: a parent that
// adopts the children of a dead rank repeats its requests, and does not know which were sent
// before. Pure: no I/O, no clock of its own.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include <weft/time.h>

#include "base/assert.h"
#include "coll/peer_clock.h"

namespace weft::coll {

// Names a collective: its origin (random, of a runtime), and its number at that origin.
struct CollectiveKey {
    std::uint64_t origin = 0;
    std::uint64_t sequence = 0;
};

// A peer that brings collectives, named by its session. A connection has one session, which is
// never {0, 0}. {0, 0}: no peer in particular.
using SessionKey = std::pair<std::uint64_t, std::uint64_t>;

// A client with collectives that a peer brings. Each rank passes on a number for the client, so
// that the ranks below can distinguish the clients of one parent. 0: not distinguished.
struct ClientKey {
    SessionKey peer;
    std::uint16_t number = 0;

    ClientKey() = default;
    // NOLINTNEXTLINE(google-explicit-constructor): a peer is one client if not distinguished.
    ClientKey(const SessionKey& of, std::uint16_t in_peer = 0) : peer(of), number(in_peer) {}
    // NOLINTNEXTLINE(modernize-use-nullptr): a false alarm about comparisons that are made here.
    auto operator<=>(const ClientKey&) const = default;
};

// Counts for each client and, as number 0, for its peer: makes both entries, or throws and makes
// none.
template <class Usage>
void make_usage_entries(std::map<ClientKey, Usage>& usage, const ClientKey& client) {
    const auto [at, is_new] = usage.try_emplace(client);
    try {
        usage.try_emplace(client.peer);
    } catch (...) {
        if (is_new) usage.erase(at);
        throw;
    }
}

// What the table reads and writes of a collective, besides `client`, which it reads: the client
// that it comes from.
struct CollectiveRecord {
    bool running = true;         // Lacks outcomes: it is not forgotten.
    bool awaits_others = false;  // The local method has ended: waits for other ranks.
    TimePoint known_since{};     // When this rank learnt of it.
    // Peers may repeat requests until then, unless the origin acknowledges that it has all
    // outcomes.
    TimePoint keep_until = never;
    // At completion, for peers that repeat a request: of the subtree, and of this rank alone.
    std::vector<std::byte> subtree_reply;
    std::vector<std::byte> own_reply;
};

// The acknowledgements of an origin are remembered for as long as any of its collectives would have
// been. `Collective`: a CollectiveRecord with a `client`.
//
// The collectives of one peer use its share of the table. A peer at its share loses the older half
// of its completed ones, from its clients with most; if that frees little, those that only wait for
// other ranks are ended. When the table is full, disconnected peers lose completed collectives, and
// those that only wait; if that frees little, the peers with most lose completed ones. From then
// on, collectives that began before an evicted one are too old to begin here (floor()), since they
// may be that one.
template <class Collective>
class CollectiveTable {
  public:
    static constexpr std::size_t entries_max = 1 << 16;       // Collectives and origins.
    static constexpr std::size_t reply_bytes_max = 64 << 20;  // Of all entries.
    // One peer has a quarter of the entries. Of the reply bytes one client has a quarter, and one
    // peer a half.
    static constexpr std::size_t share = 4;

    enum class Lookup : std::uint8_t {
        fresh,      // It may begin: add().
        known,      // It began here: find().
        completed,  // Its origin has acknowledged it.
        full,       // Nothing can be forgotten yet, or the peer is at its share.
    };

    // `secret`: of this process, since origins are numbers that peers chose. `is_connected`:
    // whether a peer may still send requests; empty: all may. `cancel_waiting`: ends a waiting one,
    // with finish().
    explicit CollectiveTable(std::uint64_t secret,
                             std::function<bool(const SessionKey&)> is_connected = {},
                             std::function<void(Collective&)> cancel_waiting = {})
        : origins_(0, Hash{secret | 1}),
          is_connected_(std::move(is_connected)),
          cancel_waiting_(std::move(cancel_waiting)) {
        floors_.fill(TimePoint::min());
    }

    // All collectives of this origin before `acknowledged_below` are acknowledged.
    Lookup lookup(CollectiveKey id, std::uint64_t acknowledged_below, TimePoint now,
                  const SessionKey& peer = {}) {
        if (size() >= sweep_at_ || (size() >= entries_max && now >= full_sweep_at_)) sweep(now);
        const auto at = origins_.find(id.origin);
        if (at != origins_.end()) {
            OriginEntry& origin = at->second;
            origin.acknowledged_below = std::max(origin.acknowledged_below, acknowledged_below);
            erase_acknowledged(origin);
            const auto collective = origin.collectives.find(id.sequence);
            const bool is_acknowledged = id.sequence < origin.acknowledged_below;
            if (collective != origin.collectives.end()) {
                if (collective->second->running || !is_acknowledged) return Lookup::known;
                erase(origin, collective);
            }
            if (is_acknowledged) return Lookup::completed;
        }
        if (is_at_quota(peer)) make_room_for_peer(peer, now);
        if (is_at_quota(peer)) return Lookup::full;
        if (size() + 2 > entries_max) make_room(peer, now);
        return size() < entries_max ? Lookup::fresh : Lookup::full;
    }
    // Collectives of this origin that began by then may not begin here: they may be forgotten ones.
    TimePoint floor(std::uint64_t origin) const { return floors_[bucket_of(origin)]; }
    // Requires: lookup() returned known.
    const std::shared_ptr<Collective>& find(CollectiveKey id) const {
        return origins_.at(id.origin).collectives.at(id.sequence);
    }
    // Requires: lookup() returned fresh for the collective's peer. If it throws, nothing was added.
    void add(CollectiveKey id, std::uint64_t acknowledged_below, TimePoint now,
             std::shared_ptr<Collective> collective) {
        Collective& added = *collective;
        auto at = origins_.find(id.origin);
        Reservation reservation(*this, added.client, at == origins_.end() ? 2 : 1);
        if (at == origins_.end()) {
            OriginEntry made;
            made.client = added.client;
            made.collectives.emplace(id.sequence, std::move(collective));
            at = origins_.emplace(id.origin, std::move(made)).first;
        } else {
            at->second.collectives.emplace(id.sequence, std::move(collective));
        }
        reservation.commit();
        ++collectives_;
        OriginEntry& origin = at->second;
        origin.begun = added.known_since = now;
        origin.acknowledged_below = std::max(origin.acknowledged_below, acknowledged_below);
        origin.until = std::max(origin.until, added.keep_until);
    }
    // The collective does not run any more. Its replies are dropped if there is no room for them.
    void finish(Collective& collective) {
        WEFT_ASSERT(reply_bytes_ <= reply_bytes_max);
        collective.running = false;
        const std::size_t room = room_for_replies(collective.client);
        std::size_t taken = 0;
        for (std::vector<std::byte>* reply : {&collective.subtree_reply, &collective.own_reply}) {
            // Frees the memory: assigning {} would keep it.
            if (taken + reply->size() > room) std::exchange(*reply, {});
            taken += reply->size();
        }
        reply_bytes_ += taken;
        usage_[collective.client].bytes += taken;
        if (collective.client.number != 0) usage_[collective.client.peer].bytes += taken;
    }
    // Its origin does not need it any more: to be dropped when it has ended.
    bool is_acknowledged(CollectiveKey id) const {
        const auto at = origins_.find(id.origin);
        return at != origins_.end() && id.sequence < at->second.acknowledged_below;
    }
    // Removes the entry, if it exists, as if it had never been added. Requires: it does not run.
    void drop(CollectiveKey id) {
        const auto at = origins_.find(id.origin);
        if (at == origins_.end()) return;
        OriginEntry& origin = at->second;
        const auto collective = origin.collectives.find(id.sequence);
        if (collective == origin.collectives.end()) return;
        WEFT_ASSERT(!collective->second->running);
        erase(origin, collective);
        if (origin.collectives.empty() && origin.acknowledged_below == 0) erase(at);
    }
    // Visits and forgets all of them.
    template <class Visit>
    void clear(Visit visit) {
        for (auto& [id, origin] : origins_) {
            for (auto& [sequence, collective] : origin.collectives) visit(*collective);
        }
        origins_.clear();
        usage_.clear();
        collectives_ = reply_bytes_ = 0;
    }
    // Ends collectives that only wait for other ranks, and hold shared resources, for disconnected
    // peers. At most ten times a second, since it walks over all. They are remembered all the same.
    void cancel_disconnected(TimePoint now) {
        if (now < next_disconnect_check_ || !cancel_waiting_) return;
        next_disconnect_check_ = now + 100ms;
        const std::set<ClientKey> gone = disconnected_peers();
        if (gone.empty()) return;
        cancel_each([&](const Collective& collective) {
            return collective.running && collective.awaits_others &&
                   gone.contains(collective.client.peer);
        });
    }
    // Forgets expired entries. To be called now and then when the table is not used otherwise.
    void sweep(TimePoint now) {
        for (auto at = origins_.begin(); at != origins_.end();) {
            OriginEntry& origin = at->second;
            erase_matching(origin, origin.collectives.end(), [&](const Collective& collective) {
                return collective.keep_until <= now;
            });
            const bool goes = origin.collectives.empty() && now >= origin.until;
            at = goes ? erase(at) : std::next(at);
        }
        // Often enough that expired entries are no more than the others, or 64; once a second when
        // the table is full.
        sweep_at_ = std::max<std::size_t>(64, 2 * size());
        full_sweep_at_ = now + 1s;
    }
    bool empty() const { return origins_.empty(); }
    std::size_t collectives() const { return collectives_; }
    std::size_t origins() const { return origins_.size(); }
    std::size_t reply_bytes() const { return reply_bytes_; }
    std::size_t clients() const { return usage_.size(); }

  private:
    using Collectives = std::map<std::uint64_t, std::shared_ptr<Collective>>;
    struct OriginEntry {
        std::uint64_t acknowledged_below = 0;
        std::uint64_t erased_below = 0;  // All below this that did not run are erased.
        TimePoint begun{};               // When the last collective began here,
        TimePoint until{};               // and from when on none may begin.
        ClientKey client;                // Of the first collective.
        Collectives collectives;
    };
    struct Hash {
        std::uint64_t factor;
        std::size_t operator()(std::uint64_t origin) const {
            std::uint64_t mixed = origin * factor;
            mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9;
            mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
            return mixed ^ mixed >> 31;
        }
    };
    using Origins = std::unordered_map<std::uint64_t, OriginEntry, Hash>;
    // Of one client, or of all clients of one peer.
    struct Usage {
        std::size_t entries = 0;    // Collectives and origins.
        std::size_t bytes = 0;      // Of replies.
        TimePoint next_eviction{};  // After an eviction that freed little.
    };

    std::size_t size() const { return collectives_ + origins_.size(); }
    std::size_t bucket_of(std::uint64_t origin) const {
        return origins_.hash_function()(origin) % floor_buckets;
    }
    bool is_at_quota(const SessionKey& peer) const {
        const auto usage = usage_.find(peer);
        return peer != SessionKey() && usage != usage_.end() &&
               usage->second.entries + 2 > entries_max / share;
    }
    std::size_t room_for_replies(const ClientKey& client) {
        const std::size_t room = reply_bytes_max - reply_bytes_;
        if (client.peer == SessionKey()) return room;
        constexpr std::size_t one = reply_bytes_max / share;
        const std::size_t most_of_peer = client.number == 0 ? one : 2 * one;
        const std::size_t by_client = usage_[client].bytes;
        const std::size_t by_peer = usage_[client.peer].bytes;
        return std::min(
            {room, one - std::min(by_client, one), most_of_peer - std::min(by_peer, most_of_peer)});
    }
    // Entries reserved for a client, released unless committed.
    class Reservation {
      public:
        Reservation(CollectiveTable& of, const ClientKey& client, std::size_t count)
            : of_(&of), client_(client), count_(count) {
            make_usage_entries(of.usage_, client);
            of.usage_.find(client)->second.entries += count;
            if (client.number != 0) of.usage_.find(client.peer)->second.entries += count;
        }
        Reservation(const Reservation&) = delete;
        Reservation& operator=(const Reservation&) = delete;
        ~Reservation() {
            for (; of_ && count_ > 0; --count_) of_->give_back(client_, 0);
        }
        void commit() { of_ = nullptr; }

      private:
        CollectiveTable* of_;
        const ClientKey client_;
        std::size_t count_;
    };
    void give_back(const ClientKey& client, std::size_t bytes) {
        const auto give = [&](const ClientKey& one) {
            const auto usage = usage_.find(one);
            WEFT_ASSERT(usage != usage_.end() && usage->second.bytes >= bytes);
            usage->second.bytes -= bytes;
            if (--usage->second.entries == 0) usage_.erase(usage);
        };
        give(client);
        if (client.number != 0) give(client.peer);
    }
    typename Collectives::iterator erase(OriginEntry& origin, typename Collectives::iterator at) {
        const std::size_t bytes = at->second->subtree_reply.size() + at->second->own_reply.size();
        // The replies of a running collective are not counted yet.
        const std::size_t counted = at->second->running ? 0 : bytes;
        WEFT_ASSERT(collectives_ > 0 && reply_bytes_ >= counted);
        reply_bytes_ -= counted;
        give_back(at->second->client, counted);
        --collectives_;
        return origin.collectives.erase(at);
    }
    typename Origins::iterator erase(typename Origins::iterator at) {
        WEFT_DCHECK(at->second.collectives.empty());
        give_back(at->second.client, 0);
        return origins_.erase(at);
    }
    // A running one is dropped when it ends: no later acknowledgement walks over it again.
    void erase_acknowledged(OriginEntry& origin) {
        const std::uint64_t from = std::exchange(origin.erased_below, origin.acknowledged_below);
        if (from == origin.acknowledged_below) return;
        const auto end = origin.collectives.lower_bound(origin.acknowledged_below);
        for (auto at = origin.collectives.lower_bound(from); at != end;) {
            at = at->second->running ? std::next(at) : erase(origin, at);
        }
    }
    template <class May>
    void erase_matching(OriginEntry& origin, typename Collectives::iterator end, May may) {
        for (auto at = origin.collectives.begin(); at != end;) {
            const bool goes = !at->second->running && may(*at->second);
            at = goes ? erase(origin, at) : std::next(at);
        }
    }

    // The clients with most entries, until they have `enough` together.
    template <class Is>
    std::set<ClientKey> with_most(std::size_t enough, Is may_lose) const {
        std::vector<std::pair<std::size_t, ClientKey>> by_entries;
        for (const auto& [one, usage] : usage_) {
            if (may_lose(one)) by_entries.emplace_back(usage.entries, one);
        }
        std::sort(by_entries.begin(), by_entries.end(), std::greater<>());
        std::set<ClientKey> losers;
        std::size_t entries = 0;
        for (const auto& [usage, one] : by_entries) {
            if (entries >= enough) break;
            losers.insert(one);
            entries += usage;
        }
        return losers;
    }
    // Within the share of one peer, from its clients with most entries: its other clients are not
    // refused for them.
    void make_room_for_peer(const SessionKey& peer, TimePoint now) {
        Usage& usage = usage_[peer];
        if (now < usage.next_eviction) return;
        usage.next_eviction = now + 1s;  // Unless enough is freed.
        constexpr std::size_t enough = entries_max / share / 16;
        for (const bool also_waiting : {false, true}) {
            std::set<ClientKey> losers = with_most(
                entries_max / share / 4,
                [&](const ClientKey& one) { return one.peer == peer && one.number != 0; });
            if (losers.empty()) losers.insert(peer);
            const std::size_t before = size();
            evict([&](const ClientKey& one) { return losers.contains(one); }, also_waiting);
            if (before - size() < enough) continue;
            if (const auto left = usage_.find(peer); left != usage_.end()) {
                left->second.next_eviction = TimePoint();
            }
            return;
        }
    }
    // From disconnected peers, else from those with most entries, so that one walk over the table
    // makes room for many requests; but not from the requesting peer.
    void make_room(const SessionKey& peer, TimePoint now) {
        if (now < next_eviction_) return;
        const std::size_t before = size();
        const auto has_enough = [&] { return before - size() >= entries_max / 64; };
        const auto evict_of = [&](const std::set<ClientKey>& losers, bool also_waiting) {
            const auto is_theirs = [&](const ClientKey& one) { return losers.contains(one.peer); };
            if (!losers.empty() && !has_enough()) evict(is_theirs, also_waiting);
        };
        const std::set<ClientKey> gone = disconnected_peers();
        evict_of(gone, false);
        evict_of(gone, true);
        if (!has_enough()) {
            const auto may_lose = [&](const ClientKey& one) {
                return one.number == 0 && one.peer != peer;
            };
            evict_of(with_most(entries_max / 16, may_lose), false);
        }
        if (!has_enough()) next_eviction_ = now + 1s;
    }
    std::set<ClientKey> disconnected_peers() const {
        std::set<ClientKey> gone;
        for (const auto& [one, usage] : usage_) {
            const bool is_peer = one.number == 0 && one.peer != SessionKey();
            if (is_connected_ && is_peer && !is_connected_(one.peer)) gone.insert(one);
        }
        return gone;
    }
    template <class May>
    void cancel_each(May may) {
        std::vector<std::shared_ptr<Collective>> waiting;
        for (const auto& [id, origin] : origins_) {
            for (const auto& [sequence, collective] : origin.collectives) {
                if (may(*collective)) waiting.push_back(collective);
            }
        }
        for (const auto& collective : waiting) cancel_waiting_(*collective);
    }
    // Evicts the older half of the completed collectives of these clients, with `also_waiting` also
    // of waiting ones.
    template <class Is>
    void evict(Is is_theirs, bool also_waiting) {
        const auto may_go = [&](const Collective& collective) {
            return is_theirs(collective.client) &&
                   (!collective.running || (also_waiting && collective.awaits_others));
        };
        std::vector<TimePoint> begun;
        for (const auto& [id, origin] : origins_) {
            if (origin.collectives.empty() && is_theirs(origin.client))
                begun.push_back(origin.begun);
            for (const auto& [sequence, collective] : origin.collectives) {
                if (may_go(*collective)) begun.push_back(collective->known_since);
            }
        }
        if (begun.empty()) return;
        const auto middle = begun.begin() + static_cast<std::ptrdiff_t>(begun.size() / 2);
        std::nth_element(begun.begin(), middle, begun.end());
        if (also_waiting && cancel_waiting_) {
            cancel_each([&](const Collective& collective) {
                return collective.running && may_go(collective) &&
                       collective.known_since <= *middle;
            });
        }
        for (auto at = origins_.begin(); at != origins_.end();) {
            OriginEntry& origin = at->second;
            TimePoint& floor = floors_[bucket_of(at->first)];
            erase_matching(origin, origin.collectives.end(), [&](const Collective& collective) {
                const bool goes = may_go(collective) && collective.known_since <= *middle;
                if (goes) floor = std::max(floor, collective.known_since);
                return goes;
            });
            const bool goes =
                origin.collectives.empty() && is_theirs(origin.client) && origin.begun <= *middle;
            if (goes) floor = std::max(floor, origin.begun);
            at = goes ? erase(at) : std::next(at);
        }
    }

    Origins origins_;
    const std::function<bool(const SessionKey&)> is_connected_;
    const std::function<void(Collective&)> cancel_waiting_;
    std::map<ClientKey, Usage> usage_;  // Number 0: the total of a peer.
    std::size_t collectives_ = 0;
    std::size_t reply_bytes_ = 0;
    std::size_t sweep_at_ = 64;
    TimePoint full_sweep_at_{};          // While it is full.
    TimePoint next_eviction_{};          // After an eviction that freed little.
    TimePoint next_disconnect_check_{};  // The next walk of cancel_disconnected().
    // By origin, several in one bucket: an origin is not refused if its own bucket lost nothing. No
    // peer can predict which origins share a bucket.
    static constexpr std::size_t floor_buckets = 1024;
    std::array<TimePoint, floor_buckets> floors_;
};

}  // namespace weft::coll
