// Which collectives this rank has taken part in, so that none runs twice here: who adopts the
// children of a rank that died asks them again, and does not know whether they were asked before.
// Pure: no I/O, no clock of its own.
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

#include "coll/peer_clock.h"

namespace weft::coll {

// Of a collective: who began it (random, of a runtime), and the how many of his it is.
struct Identity {
    std::uint64_t origin = 0;
    std::uint64_t sequence = 0;
};

// A peer by which collectives come here, as its session is named: a connection has one, which is
// never named {0, 0}. That is none in particular.
using AskerId = std::pair<std::uint64_t, std::uint64_t>;

// One of the clients whose collectives a peer brings: each rank passes on a number for the client,
// so that the ranks below can tell apart the clients of one parent. 0: not told apart.
struct Client {
    AskerId peer;
    std::uint16_t number = 0;

    Client() = default;
    // NOLINTNEXTLINE(google-explicit-constructor): a peer is one client where none is told apart.
    Client(const AskerId& of, std::uint16_t told = 0) : peer(of), number(told) {}
    // NOLINTNEXTLINE(modernize-use-nullptr): a false alarm about comparisons that are made here.
    auto operator<=>(const Client&) const = default;
};

// Counts for each client and, as number 0, for its peer: makes both entries, or throws and makes
// none.
template <class Held>
void make_entries(std::map<Client, Held>& held, const Client& client) {
    const auto [at, is_new] = held.try_emplace(client);
    try {
        held.try_emplace(client.peer);
    } catch (...) {
        if (is_new) held.erase(at);
        throw;
    }
}

// `Part`: what is kept of each. While `running` it is not forgotten; then until `keep_until`, or
// until its origin has said that it is settled: that all outcomes are there. `answer`: what it came
// to; `own_answer`: of this rank alone. What an origin has settled is remembered for as long as any
// of its parts would have been.
//
// What comes by one peer takes a share of it. A peer whose share is full loses the older half of
// what is over, of its clients that have most; when that is little, what only `waits` for other
// ranks is given up. When all of it is taken, peers that are gone lose what is over, and what only
// waits; when that is little, those that have most lose what is over. From then on what began
// before those is too old to begin here (floor()), for it may be one of them.
template <class Part>
class Known {
  public:
    static constexpr std::size_t most = 1 << 16;                // Parts and origins.
    static constexpr std::size_t answer_bytes_most = 64 << 20;  // Of all of them.
    static constexpr std::size_t share = 4;  // One peer has a fourth of the places. Of the answers
                                             // one client has a fourth, and one peer a half.

    enum class Place : std::uint8_t {
        fresh,  // It may begin: add().
        known,  // It began here: find().
        over,   // It is settled.
        full,   // Nothing can be forgotten yet, or the asker has its share.
    };

    // `secret`: of this process, for origins are numbers that a peer chose. `is_here`: whether an
    // asker may still ask; empty: all may. `give_up`: ends one that waits, with finish().
    explicit Known(std::uint64_t secret, std::function<bool(const AskerId&)> is_here = {},
                   std::function<void(Part&)> give_up = {})
        : origins_(0, Hash{secret | 1}),
          is_here_(std::move(is_here)),
          give_up_(std::move(give_up)) {
        floors_.fill(TimePoint::min());
    }

    // All of this origin's in front of `settled` are settled.
    Place look(Identity id, std::uint64_t settled, TimePoint now, const AskerId& asker = {}) {
        if (size() >= sweep_at_ || (size() >= most && now >= again_at_)) sweep(now);
        const auto at = origins_.find(id.origin);
        if (at != origins_.end()) {
            Origin& origin = at->second;
            origin.settled = std::max(origin.settled, settled);
            forget_settled(origin);
            const auto part = origin.parts.find(id.sequence);
            const bool is_settled = id.sequence < origin.settled;
            if (part != origin.parts.end()) {
                if (part->second->running || !is_settled) return Place::known;
                erase(origin, part);
            }
            if (is_settled) return Place::over;
        }
        if (has_share(asker)) make_room_of(asker, now);
        if (has_share(asker)) return Place::full;
        if (size() + 2 > most) make_room(asker, now);
        return size() < most ? Place::fresh : Place::full;
    }
    // Nothing of this origin that began until then may begin here any more: it may be forgotten.
    TimePoint floor(std::uint64_t origin) const { return floors_[row_of(origin)]; }
    // Requires: look() said known.
    const std::shared_ptr<Part>& find(Identity id) const {
        return origins_.at(id.origin).parts.at(id.sequence);
    }
    // Requires: look() said fresh, of the part's asker. Where it throws, nothing was added.
    void add(Identity id, std::uint64_t settled, TimePoint now, std::shared_ptr<Part> part) {
        Part& added = *part;
        auto at = origins_.find(id.origin);
        Places places(*this, added.brought_by, at == origins_.end() ? 2 : 1);
        if (at == origins_.end()) {
            Origin made;
            made.asker = added.brought_by;
            made.parts.emplace(id.sequence, std::move(part));
            at = origins_.emplace(id.origin, std::move(made)).first;
        } else {
            at->second.parts.emplace(id.sequence, std::move(part));
        }
        places.keep();
        ++parts_;
        Origin& origin = at->second;
        origin.begun = added.known_since = now;
        origin.settled = std::max(origin.settled, settled);
        origin.until = std::max(origin.until, added.keep_until);
    }
    // It runs no more. Of its answers those are forgotten for which there is no room.
    void finish(Part& part) {
        part.running = false;
        const std::size_t room = room_for_answers(part.brought_by);
        std::size_t taken = 0;
        for (std::vector<std::byte>* answer : {&part.answer, &part.own_answer}) {
            // The memory goes, too: that of one that is assigned {} stays.
            if (taken + answer->size() > room) std::exchange(*answer, {});
            taken += answer->size();
        }
        answer_bytes_ += taken;
        held_[part.brought_by].bytes += taken;
        if (part.brought_by.number != 0) held_[part.brought_by.peer].bytes += taken;
    }
    // Its origin needs it no more: to be dropped when it runs no more.
    bool is_settled(Identity id) const {
        const auto at = origins_.find(id.origin);
        return at != origins_.end() && id.sequence < at->second.settled;
    }
    // As if it had never been there, if it is still. Requires: it runs no more.
    void drop(Identity id) {
        const auto at = origins_.find(id.origin);
        if (at == origins_.end()) return;
        Origin& origin = at->second;
        const auto part = origin.parts.find(id.sequence);
        if (part == origin.parts.end()) return;
        erase(origin, part);
        if (origin.parts.empty() && origin.settled == 0) erase(at);
    }
    // All of them, and forgets them.
    template <class Visit>
    void clear(Visit visit) {
        for (auto& [id, origin] : origins_) {
            for (auto& [sequence, part] : origin.parts) visit(*part);
        }
        origins_.clear();
        held_.clear();
        parts_ = answer_bytes_ = 0;
    }
    // Ends what only waits for other ranks for peers that are gone, and holds what others need:
    // ten times a second at most, for it walks over all. It is remembered all the same.
    void give_up_gone(TimePoint now) {
        if (now < gone_at_ || !give_up_) return;
        gone_at_ = now + 100ms;
        const std::set<Client> gone = peers_gone();
        if (gone.empty()) return;
        give_up_each([&](const Part& part) {
            return part.running && part.waits && gone.contains(part.brought_by.peer);
        });
    }
    // Forgets what is over. To be called now and then where nothing else is.
    void sweep(TimePoint now) {
        for (auto at = origins_.begin(); at != origins_.end();) {
            Origin& origin = at->second;
            forget(origin, origin.parts.end(),
                   [&](const Part& part) { return part.keep_until <= now; });
            const bool goes = origin.parts.empty() && now >= origin.until;
            at = goes ? erase(at) : std::next(at);
        }
        // Often enough that what is over takes no more than what is not, or 64 places; once a
        // second when it is full.
        sweep_at_ = std::max<std::size_t>(64, 2 * size());
        again_at_ = now + 1s;
    }
    bool empty() const { return origins_.empty(); }
    std::size_t parts() const { return parts_; }
    std::size_t origins() const { return origins_.size(); }
    std::size_t answer_bytes() const { return answer_bytes_; }
    std::size_t askers() const { return held_.size(); }

  private:
    using Parts = std::map<std::uint64_t, std::shared_ptr<Part>>;
    struct Origin {
        std::uint64_t settled = 0;
        std::uint64_t forgotten = 0;  // In front of this all went that did not run.
        TimePoint begun{};            // When the last one began here,
        TimePoint until{};            // and when none of them may begin any more.
        Client asker;                 // Of the first one.
        Parts parts;
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
    using Origins = std::unordered_map<std::uint64_t, Origin, Hash>;
    // Of one client, or of all of one peer's.
    struct Held {
        std::size_t places = 0;  // Parts and origins.
        std::size_t bytes = 0;   // Of answers.
        TimePoint room_at{};     // When little of it can be forgotten.
    };

    std::size_t size() const { return parts_ + origins_.size(); }
    std::size_t row_of(std::uint64_t origin) const {
        return origins_.hash_function()(origin) % floor_rows;
    }
    bool has_share(const AskerId& asker) const {
        const auto held = held_.find(asker);
        return asker != AskerId() && held != held_.end() && held->second.places + 2 > most / share;
    }
    std::size_t room_for_answers(const Client& client) {
        const std::size_t room = answer_bytes_most - answer_bytes_;
        if (client.peer == AskerId()) return room;
        constexpr std::size_t one = answer_bytes_most / share;
        const std::size_t most_of_peer = client.number == 0 ? one : 2 * one;
        const std::size_t by_client = held_[client].bytes;
        const std::size_t by_peer = held_[client.peer].bytes;
        return std::min(
            {room, one - std::min(by_client, one), most_of_peer - std::min(by_peer, most_of_peer)});
    }
    // Places that are taken for a client, and given back unless they are kept.
    class Places {
      public:
        Places(Known& of, const Client& client, std::size_t count)
            : of_(&of), client_(client), count_(count) {
            make_entries(of.held_, client);
            of.held_.find(client)->second.places += count;
            if (client.number != 0) of.held_.find(client.peer)->second.places += count;
        }
        Places(const Places&) = delete;
        Places& operator=(const Places&) = delete;
        ~Places() {
            for (; of_ && count_ > 0; --count_) of_->give_back(client_, 0);
        }
        void keep() { of_ = nullptr; }

      private:
        Known* of_;
        const Client client_;
        std::size_t count_;
    };
    void give_back(const Client& client, std::size_t bytes) {
        const auto give = [&](const Client& one) {
            const auto held = held_.find(one);
            held->second.bytes -= bytes;
            if (--held->second.places == 0) held_.erase(held);
        };
        give(client);
        if (client.number != 0) give(client.peer);
    }
    typename Parts::iterator erase(Origin& origin, typename Parts::iterator at) {
        const std::size_t bytes = at->second->answer.size() + at->second->own_answer.size();
        // Of one that runs the answers are not counted yet.
        const std::size_t counted = at->second->running ? 0 : bytes;
        answer_bytes_ -= counted;
        give_back(at->second->brought_by, counted);
        --parts_;
        return origin.parts.erase(at);
    }
    typename Origins::iterator erase(typename Origins::iterator at) {
        give_back(at->second.asker, 0);
        return origins_.erase(at);
    }
    // What ran then goes when it ends: no word walks over it again.
    void forget_settled(Origin& origin) {
        const std::uint64_t from = std::exchange(origin.forgotten, origin.settled);
        if (from == origin.settled) return;
        const auto end = origin.parts.lower_bound(origin.settled);
        for (auto at = origin.parts.lower_bound(from); at != end;) {
            at = at->second->running ? std::next(at) : erase(origin, at);
        }
    }
    template <class May>
    void forget(Origin& origin, typename Parts::iterator end, May may) {
        for (auto at = origin.parts.begin(); at != end;) {
            const bool goes = !at->second->running && may(*at->second);
            at = goes ? erase(origin, at) : std::next(at);
        }
    }

    // Those with most places, until they have so many together.
    template <class Is>
    std::set<Client> with_most(std::size_t enough, Is may_lose) const {
        std::vector<std::pair<std::size_t, Client>> by_places;
        for (const auto& [one, held] : held_) {
            if (may_lose(one)) by_places.emplace_back(held.places, one);
        }
        std::sort(by_places.begin(), by_places.end(), std::greater<>());
        std::set<Client> losers;
        std::size_t places = 0;
        for (const auto& [held, one] : by_places) {
            if (places >= enough) break;
            losers.insert(one);
            places += held;
        }
        return losers;
    }
    // In the share of one peer, by those of its clients that have most: others of its clients are
    // not refused for them.
    void make_room_of(const AskerId& asker, TimePoint now) {
        Held& held = held_[asker];
        if (now < held.room_at) return;
        held.room_at = now + 1s;  // Unless there is enough.
        constexpr std::size_t enough = most / share / 16;
        for (const bool also_waiting : {false, true}) {
            std::set<Client> losers = with_most(most / share / 4, [&](const Client& one) {
                return one.peer == asker && one.number != 0;
            });
            if (losers.empty()) losers.insert(asker);
            const std::size_t before = size();
            evict([&](const Client& one) { return losers.contains(one); }, also_waiting);
            if (before - size() < enough) continue;
            if (const auto left = held_.find(asker); left != held_.end()) {
                left->second.room_at = TimePoint();
            }
            return;
        }
    }
    // By those that are gone, else by those that have most, so that the walk over all of it is paid
    // for by many others; but for the asker itself.
    void make_room(const AskerId& asker, TimePoint now) {
        if (now < room_at_) return;
        const std::size_t before = size();
        const auto has_enough = [&] { return before - size() >= most / 64; };
        const auto evict_of = [&](const std::set<Client>& losers, bool also_waiting) {
            const auto is_theirs = [&](const Client& one) { return losers.contains(one.peer); };
            if (!losers.empty() && !has_enough()) evict(is_theirs, also_waiting);
        };
        const std::set<Client> gone = peers_gone();
        evict_of(gone, false);
        evict_of(gone, true);
        if (!has_enough()) {
            const auto may_lose = [&](const Client& one) {
                return one.number == 0 && one.peer != asker;
            };
            evict_of(with_most(most / 16, may_lose), false);
        }
        if (!has_enough()) room_at_ = now + 1s;
    }
    std::set<Client> peers_gone() const {
        std::set<Client> gone;
        for (const auto& [one, held] : held_) {
            const bool is_peer = one.number == 0 && one.peer != AskerId();
            if (is_here_ && is_peer && !is_here_(one.peer)) gone.insert(one);
        }
        return gone;
    }
    template <class May>
    void give_up_each(May may) {
        std::vector<std::shared_ptr<Part>> waiting;
        for (const auto& [id, origin] : origins_) {
            for (const auto& [sequence, part] : origin.parts) {
                if (may(*part)) waiting.push_back(part);
            }
        }
        for (const auto& part : waiting) give_up_(*part);
    }
    // Evicts the older half of what is over, and of what waits if that is said, of these clients.
    template <class Is>
    void evict(Is is_theirs, bool also_waiting) {
        const auto may_go = [&](const Part& part) {
            return is_theirs(part.brought_by) && (!part.running || (also_waiting && part.waits));
        };
        std::vector<TimePoint> begun;
        for (const auto& [id, origin] : origins_) {
            if (origin.parts.empty() && is_theirs(origin.asker)) begun.push_back(origin.begun);
            for (const auto& [sequence, part] : origin.parts) {
                if (may_go(*part)) begun.push_back(part->known_since);
            }
        }
        if (begun.empty()) return;
        const auto middle = begun.begin() + static_cast<std::ptrdiff_t>(begun.size() / 2);
        std::nth_element(begun.begin(), middle, begun.end());
        if (also_waiting && give_up_) {
            give_up_each([&](const Part& part) {
                return part.running && may_go(part) && part.known_since <= *middle;
            });
        }
        for (auto at = origins_.begin(); at != origins_.end();) {
            Origin& origin = at->second;
            TimePoint& floor = floors_[row_of(at->first)];
            forget(origin, origin.parts.end(), [&](const Part& part) {
                const bool goes = may_go(part) && part.known_since <= *middle;
                if (goes) floor = std::max(floor, part.known_since);
                return goes;
            });
            const bool goes =
                origin.parts.empty() && is_theirs(origin.asker) && origin.begun <= *middle;
            if (goes) floor = std::max(floor, origin.begun);
            at = goes ? erase(at) : std::next(at);
        }
    }

    Origins origins_;
    const std::function<bool(const AskerId&)> is_here_;
    const std::function<void(Part&)> give_up_;
    std::map<Client, Held> held_;  // Number 0: all of a peer's.
    std::size_t parts_ = 0;
    std::size_t answer_bytes_ = 0;
    std::size_t sweep_at_ = 64;
    TimePoint again_at_{};  // When it is full,
    TimePoint room_at_{};   // and little of it can be forgotten.
    TimePoint gone_at_{};   // When give_up_gone() may be done again.
    // By origin, several in a row: an origin whose own row lost nothing is not refused. Which share
    // a row no peer can know.
    static constexpr std::size_t floor_rows = 1024;
    std::array<TimePoint, floor_rows> floors_;
};

}  // namespace weft::coll
