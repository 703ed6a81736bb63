// Which collectives this rank has taken part in, so that none runs twice here: who adopts the
// children of a rank that died asks them again, and does not know whether they were asked before.
// Pure: no I/O, no clock of its own.
#pragma once

#include <algorithm>
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

// A peer by which collectives come here, as its session is named. {0, 0}: none in particular.
using AskerId = std::pair<std::uint64_t, std::uint64_t>;

// `Part`: what is kept of each. While `running` it is never forgotten; then until `keep_until`, or
// until its origin has said that it is settled: that all outcomes are there. With `keep_until`
// never it is kept until the half of what there may be is taken, and nothing was heard of its
// origin for a while. `answer`: what it came to; `own_answer`: of this rank alone. What an origin
// has settled is remembered for as long as any of its parts would have been.
//
// What comes by one asker takes a share of it. When all of it is taken, askers that are gone lose
// what is over, and then the one that has most: what began before the last of those is too old to
// begin here from then on (floor()), for it may be one of them.
template <class Part>
class Known {
  public:
    static constexpr std::size_t most = 1 << 16;                // Parts and origins.
    static constexpr std::size_t answer_bytes_most = 64 << 20;  // Of all of them.
    static constexpr std::size_t share = 4;                     // One asker has a fourth of either.
    // Then an origin may be gone, and no rank begins anything of its any more.
    static constexpr Duration silence_lasts = begin_within_most + remembered_on;

    enum class Place : std::uint8_t {
        fresh,  // It may begin: add().
        known,  // It began here: find().
        over,   // It is settled.
        full,   // Nothing can be forgotten yet, or the asker has its share.
    };

    // `secret`: of this process, for origins are numbers that a peer chose. `is_here`: whether an
    // asker may still ask; empty: all may.
    explicit Known(std::uint64_t secret, std::function<bool(const AskerId&)> is_here = {})
        : origins_(0, Hash{secret | 1}), is_here_(std::move(is_here)) {}

    // All of this origin's in front of `settled` are settled.
    Place look(Identity id, std::uint64_t settled, TimePoint now, const AskerId& asker = {}) {
        const auto has_share = [&] {
            const auto held = held_.find(asker);
            return asker != AskerId() && held != held_.end() &&
                   held->second.places + 2 > most / share;
        };
        const bool is_tight = size() + 2 > most || has_share();
        if (size() >= sweep_at_ || (is_tight && now >= again_at_)) sweep(now);
        const auto at = origins_.find(id.origin);
        if (at != origins_.end()) {
            Origin& origin = at->second;
            origin.last = now;
            origin.settled = std::max(origin.settled, settled);
            forget(origin, origin.parts.lower_bound(origin.settled),
                   [](const Part&) { return true; });
            if (origin.parts.count(id.sequence)) return Place::known;
            if (id.sequence < origin.settled) return Place::over;
        }
        if (has_share()) return Place::full;
        if (size() + 2 > most) make_room(asker, now);
        return size() < most ? Place::fresh : Place::full;
    }
    // Nothing that began until then may begin here any more: it may be forgotten.
    TimePoint floor() const { return floor_; }
    // Requires: look() said known.
    const std::shared_ptr<Part>& find(Identity id) const {
        return origins_.at(id.origin).parts.at(id.sequence);
    }
    // Requires: look() said fresh, of the part's asker.
    void add(Identity id, std::uint64_t settled, TimePoint now, std::shared_ptr<Part> part) {
        const auto [at, is_new] = origins_.try_emplace(id.origin);
        Origin& origin = at->second;
        if (is_new) {
            origin.asker = part->brought_by;
            ++held_[origin.asker].places;
        }
        origin.last = origin.begun = part->known_since = now;
        origin.settled = std::max(origin.settled, settled);
        origin.until = std::max(origin.until,
                                part->keep_until == never ? now + silence_lasts : part->keep_until);
        ++held_[part->brought_by].places;
        origin.parts.emplace(id.sequence, std::move(part));
        ++parts_;
    }
    // It runs no more. Of its answers those are forgotten for which there is no room.
    void finish(Part& part, TimePoint now) {
        const std::size_t wanted = part.answer.size() + part.own_answer.size();
        if (wanted > room_for_answers(part.brought_by) && now >= again_at_) sweep(now);
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
    // Forgets what is over. To be called now and then where nothing else is.
    void sweep(TimePoint now) {
        const bool is_tight = size() >= most / 2 || answer_bytes_ >= answer_bytes_most / 2;
        for (auto at = origins_.begin(); at != origins_.end();) {
            Origin& origin = at->second;
            const bool is_silent = is_tight && now - origin.last >= silence_lasts;
            forget(origin, origin.parts.end(), [&](const Part& part) {
                return part.keep_until == never ? is_silent : part.keep_until <= now;
            });
            const bool goes = origin.parts.empty() && now >= origin.until;
            at = goes ? erase(at) : std::next(at);
        }
        // Often enough that what is over takes no more than what is not, or 64 places; once a
        // second when it is full, or a share of it is.
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
        TimePoint last{};   // When one of its was asked for,
        TimePoint begun{};  // the last one here,
        TimePoint until{};  // and when none of them may begin any more.
        AskerId asker;      // Of the first one.
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
    // By one asker.
    struct Held {
        std::size_t places = 0;  // Parts and origins.
        std::size_t bytes = 0;   // Of answers.
    };

    std::size_t size() const { return parts_ + origins_.size(); }
    std::size_t room_for_answers(const AskerId& asker) const {
        const std::size_t room = answer_bytes_most - answer_bytes_;
        const auto held = held_.find(asker);
        if (asker == AskerId() || held == held_.end()) return room;
        constexpr std::size_t its = answer_bytes_most / share;
        return std::min(room, its - std::min(held->second.bytes, its));
    }
    void give_back(const AskerId& asker, std::size_t bytes) {
        const auto held = held_.find(asker);
        held->second.bytes -= bytes;
        if (--held->second.places == 0) held_.erase(held);
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
    template <class May>
    void forget(Origin& origin, typename Parts::iterator end, May may) {
        for (auto at = origin.parts.begin(); at != end;) {
            const bool goes = !at->second->running && may(*at->second);
            at = goes ? erase(origin, at) : std::next(at);
        }
    }

    // By those that are gone, else by those that have most, so that the walk over all of it is paid
    // for by many others; but for the asker itself.
    void make_room(const AskerId& asker, TimePoint now) {
        if (now < room_at_) return;
        const std::size_t before = size();
        std::set<AskerId> losers;
        for (const auto& [one, held] : held_) {
            if (is_here_ && one != AskerId() && !is_here_(one)) losers.insert(one);
        }
        if (losers.empty()) {
            std::vector<std::pair<std::size_t, AskerId>> by_places;
            for (const auto& [one, held] : held_) by_places.emplace_back(held.places, one);
            std::sort(by_places.begin(), by_places.end(), std::greater<>());
            std::size_t places = 0;
            for (const auto& [held, one] : by_places) {
                if (one == asker || places >= most / 16) break;
                losers.insert(one);
                places += held;
            }
        }
        if (!losers.empty()) evict(losers);
        if (before - size() < most / 64) room_at_ = now + 1s;
    }
    // Evicts the older half of the completed collectives of these askers.
    void evict(const std::set<AskerId>& theirs) {
        const auto is_theirs = [&](const AskerId& one) { return theirs.contains(one); };
        std::vector<TimePoint> begun;
        for (const auto& [id, origin] : origins_) {
            if (origin.parts.empty() && is_theirs(origin.asker)) begun.push_back(origin.begun);
            for (const auto& [sequence, part] : origin.parts) {
                if (!part->running && is_theirs(part->brought_by))
                    begun.push_back(part->known_since);
            }
        }
        if (begun.empty()) return;
        const auto middle = begun.begin() + static_cast<std::ptrdiff_t>(begun.size() / 2);
        std::nth_element(begun.begin(), middle, begun.end());
        floor_ = std::max(floor_, *middle);
        for (auto at = origins_.begin(); at != origins_.end();) {
            Origin& origin = at->second;
            forget(origin, origin.parts.end(), [&](const Part& part) {
                return is_theirs(part.brought_by) && part.known_since <= floor_;
            });
            const bool goes =
                origin.parts.empty() && is_theirs(origin.asker) && origin.begun <= floor_;
            at = goes ? erase(at) : std::next(at);
        }
    }

    Origins origins_;
    const std::function<bool(const AskerId&)> is_here_;
    std::map<AskerId, Held> held_;
    std::size_t parts_ = 0;
    std::size_t answer_bytes_ = 0;
    std::size_t sweep_at_ = 64;
    TimePoint again_at_{};  // When it, or a share, is full,
    TimePoint room_at_{};   // and little of it can be forgotten.
    TimePoint floor_ = TimePoint::min();
};

}  // namespace weft::coll
