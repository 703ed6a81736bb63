// Which collectives this rank has taken part in, so that none runs twice here: who adopts the
// children of a rank that died asks them again, and does not know whether they were asked before.
// Pure: no I/O, no clock of its own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>

#include <weft/time.h>

namespace weft::coll {

// Of a collective: who began it (random, of a process), and the how many of his it is.
struct Identity {
    std::uint64_t origin = 0;
    std::uint64_t sequence = 0;
};

// `Part`: what is kept of each. While `running` it is never forgotten, then until `keep_until`, or
// until its origin has said that it is settled: that all outcomes are there.
template <class Part>
class Known {
  public:
    static constexpr std::size_t most = 1 << 16;   // Parts and origins.
    static constexpr Duration origin_lasts = 60s;  // After the last of its parts.

    enum class Place : std::uint8_t {
        fresh,  // It may begin: add().
        known,  // It began here: find().
        over,   // It is settled.
        full,   // Nothing can be forgotten yet.
    };

    // All of this origin's in front of `settled` are settled.
    Place look(Identity id, std::uint64_t settled, TimePoint now) {
        const std::size_t all = parts_ + origins_.size();
        if (all >= sweep_at_ || (all >= most && now >= again_at_)) sweep(now);
        const auto at = origins_.find(id.origin);
        if (at != origins_.end()) {
            Origin& origin = at->second;
            origin.last = now;
            origin.settled = std::max(origin.settled, settled);
            forget(
                origin, [](const Part&) { return true; }, origin.settled);
            if (origin.parts.count(id.sequence)) return Place::known;
            if (id.sequence < origin.settled) return Place::over;
        }
        return parts_ + origins_.size() < most ? Place::fresh : Place::full;
    }
    // Requires: look() said known.
    const std::shared_ptr<Part>& find(Identity id) const {
        return origins_.at(id.origin).parts.at(id.sequence);
    }
    // Requires: look() said fresh.
    void add(Identity id, std::uint64_t settled, TimePoint now, std::shared_ptr<Part> part) {
        Origin& origin = origins_[id.origin];
        origin.last = now;
        origin.settled = std::max(origin.settled, settled);
        origin.parts.emplace(id.sequence, std::move(part));
        ++parts_;
    }
    // All of them, and forgets them.
    template <class Visit>
    void clear(Visit visit) {
        for (auto& [id, origin] : std::exchange(origins_, {})) {
            for (auto& [sequence, part] : origin.parts) visit(*part);
        }
        parts_ = 0;
    }
    std::size_t parts() const { return parts_; }
    std::size_t origins() const { return origins_.size(); }

  private:
    struct Origin {
        std::uint64_t settled = 0;
        TimePoint last{};  // When one of its was asked for.
        std::map<std::uint64_t, std::shared_ptr<Part>> parts;
    };

    template <class May>
    void forget(Origin& origin, May may, std::uint64_t before) {
        for (auto at = origin.parts.begin(); at != origin.parts.end() && at->first < before;) {
            const bool goes = !at->second->running && may(*at->second);
            at = goes ? origin.parts.erase(at) : std::next(at);
            parts_ -= goes;
        }
    }
    // Often enough that what is over takes no more than what is not, or 64 places; once a second
    // when it is full.
    void sweep(TimePoint now) {
        for (auto at = origins_.begin(); at != origins_.end();) {
            Origin& origin = at->second;
            forget(
                origin, [now](const Part& part) { return part.keep_until <= now; }, UINT64_MAX);
            const bool goes = origin.parts.empty() && now - origin.last >= origin_lasts;
            at = goes ? origins_.erase(at) : std::next(at);
        }
        sweep_at_ = std::max<std::size_t>(64, 2 * (parts_ + origins_.size()));
        again_at_ = now + 1s;
    }

    std::unordered_map<std::uint64_t, Origin> origins_;
    std::size_t parts_ = 0;
    std::size_t sweep_at_ = 64;
    TimePoint again_at_{};  // When it is full.
};

}  // namespace weft::coll
