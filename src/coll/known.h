// Which collectives this rank has taken part in, so that none runs twice here: who adopts the
// children of a rank that died asks them again, and does not know whether they were asked before.
// Pure: no I/O, no clock of its own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include <weft/time.h>

namespace weft::coll {

// Of a collective: who began it (random, of a runtime), and the how many of his it is.
struct Identity {
    std::uint64_t origin = 0;
    std::uint64_t sequence = 0;
};

// `Part`: what is kept of each. While `running` it is never forgotten; then until `keep_until`, or
// until its origin has said that it is settled: that all outcomes are there. With `keep_until`
// never it is kept until the half of what there may be is taken, and nothing was heard of its
// origin for a while. `answer`: what it came to; `own_answer`: of this rank alone.
template <class Part>
class Known {
  public:
    static constexpr std::size_t most = 1 << 16;                // Parts and origins.
    static constexpr std::size_t answer_bytes_most = 64 << 20;  // Of all of them.
    static constexpr Duration origin_lasts = 60s;               // After the last of its parts.
    static constexpr Duration silence_lasts = 600s;             // Then it may be gone.

    enum class Place : std::uint8_t {
        fresh,  // It may begin: add().
        known,  // It began here: find().
        over,   // It is settled.
        full,   // Nothing can be forgotten yet.
    };

    // `secret`: of this process, for origins are numbers that a peer chose.
    explicit Known(std::uint64_t secret) : origins_(0, Hash{secret | 1}) {}

    // All of this origin's in front of `settled` are settled.
    Place look(Identity id, std::uint64_t settled, TimePoint now) {
        const std::size_t all = parts_ + origins_.size();
        if (all >= sweep_at_ || (all >= most && now >= again_at_)) sweep(now);
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
    // It runs no more. Of its answers those are forgotten for which there is no room.
    void finish(Part& part) {
        part.running = false;
        for (std::vector<std::byte>* answer : {&part.answer, &part.own_answer}) {
            // The memory goes, too: that of one that is assigned {} stays.
            if (answer_bytes_ + answer->size() > answer_bytes_most) std::exchange(*answer, {});
            answer_bytes_ += answer->size();
        }
    }
    // As if it had never been there, if it is still. Requires: it runs no more.
    void drop(Identity id) {
        const auto at = origins_.find(id.origin);
        if (at == origins_.end() || !at->second.parts.count(id.sequence)) return;
        Origin& origin = at->second;
        answer_bytes_ -= kept_of(*origin.parts.at(id.sequence));
        origin.parts.erase(id.sequence);
        --parts_;
        if (origin.parts.empty() && origin.settled == 0) origins_.erase(at);
    }
    // All of them, and forgets them.
    template <class Visit>
    void clear(Visit visit) {
        for (auto& [id, origin] : origins_) {
            for (auto& [sequence, part] : origin.parts) visit(*part);
        }
        origins_.clear();
        parts_ = answer_bytes_ = 0;
    }
    // Forgets what is over. To be called now and then where nothing else is.
    void sweep(TimePoint now) {
        const bool is_tight =
            parts_ + origins_.size() >= most / 2 || answer_bytes_ >= answer_bytes_most / 2;
        for (auto at = origins_.begin(); at != origins_.end();) {
            Origin& origin = at->second;
            const bool is_silent = is_tight && now - origin.last >= silence_lasts;
            forget(origin, origin.parts.end(), [&](const Part& part) {
                return part.keep_until == never ? is_silent : part.keep_until <= now;
            });
            const bool goes = origin.parts.empty() && now - origin.last >= origin_lasts;
            at = goes ? origins_.erase(at) : std::next(at);
        }
        // Often enough that what is over takes no more than what is not, or 64 places; once a
        // second when it is full.
        sweep_at_ = std::max<std::size_t>(64, 2 * (parts_ + origins_.size()));
        again_at_ = now + 1s;
    }
    bool empty() const { return origins_.empty(); }
    std::size_t parts() const { return parts_; }
    std::size_t origins() const { return origins_.size(); }
    std::size_t answer_bytes() const { return answer_bytes_; }

  private:
    using Parts = std::map<std::uint64_t, std::shared_ptr<Part>>;
    struct Origin {
        std::uint64_t settled = 0;
        TimePoint last{};  // When one of its was asked for.
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

    static std::size_t kept_of(const Part& part) {
        return part.answer.size() + part.own_answer.size();
    }
    template <class May>
    void forget(Origin& origin, typename Parts::iterator end, May may) {
        for (auto at = origin.parts.begin(); at != end;) {
            const bool goes = !at->second->running && may(*at->second);
            if (goes) answer_bytes_ -= kept_of(*at->second);
            parts_ -= goes;
            at = goes ? origin.parts.erase(at) : std::next(at);
        }
    }

    std::unordered_map<std::uint64_t, Origin, Hash> origins_;
    std::size_t parts_ = 0;
    std::size_t answer_bytes_ = 0;
    std::size_t sweep_at_ = 64;
    TimePoint again_at_{};  // When it is full.
};

}  // namespace weft::coll
