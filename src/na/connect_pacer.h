// Paces the connects of one endpoint by destination: a bounded number of them waits for one
// listener's answer, the others wait for their turn in order. A burst of a thousand channels then
// takes a small part of the listener's queue. Pure: no I/O, the caller brings time and chance.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <utility>

#include <weft/time.h>

#include "base/random.h"
#include "na/provider.h"

namespace weft::na {

class ConnectPacer {
  public:
    static constexpr std::uint32_t half_open_max = 32;  // Of one destination.
    // True: it may start now. False: next() names it when its turn comes.
    bool enter(const std::string& to, PeerId peer) {
        Destination& there = destinations_[to];
        if (there.half_open == half_open_max) {
            there.waiting.push_back(peer);
            return false;
        }
        ++there.half_open;
        return true;
    }
    // The listener there has shown that it exists.
    void answered(const std::string& to, TimePoint now) {
        const auto at = destinations_.find(to);
        if (at != destinations_.end()) at->second.answered_at = now;
    }
    // An attempt that began at `since`, or was answered last then, had no answer. The listener is
    // silent unless it answered another one meanwhile.
    void unanswered(const std::string& to, TimePoint since) {
        const auto at = destinations_.find(to);
        if (at == destinations_.end() || at->second.answered_at > since) return;
        at->second.answered_at = TimePoint::min();
    }
    // What it said of why; for all that wait there.
    void refused(const std::string& to, std::string why) {
        const auto at = destinations_.find(to);
        if (at != destinations_.end()) at->second.why = std::move(why);
    }
    std::string why_waiting(const std::string& to) const {
        const auto at = destinations_.find(to);
        return at == destinations_.end() ? std::string() : at->second.why;
    }
    // The last time, while any connect there is under way; TimePoint::min(): never.
    TimePoint answered_at(const std::string& to) const {
        const auto at = destinations_.find(to);
        return at == destinations_.end() ? TimePoint::min() : at->second.answered_at;
    }
    // One that started is connected or over, or passes the turn that it was given.
    void leave(const std::string& to) {
        const auto at = destinations_.find(to);
        if (at == destinations_.end()) return;
        Destination& there = at->second;
        if (!there.waiting.empty()) {
            turns_.push_back({there.waiting.front(), to});
            there.waiting.pop_front();
        } else if (--there.half_open == 0) {
            destinations_.erase(at);
        }
    }

    // The next peer to connect; its attempt counts as started. The peer may be gone: then leave()
    // passes its turn on.
    struct Turn {
        PeerId peer;
        std::string to;
    };
    bool has_turns() const { return !turns_.empty(); }
    Turn next() {
        Turn turn = std::move(turns_.front());
        turns_.pop_front();
        return turn;
    }

    // Before attempt `attempt` (the first again is 1) at a listener that is busy.
    static Duration pause(std::uint32_t attempt, base::Random& random) {
        constexpr Duration first = 1ms, longest = 128ms;
        const Duration mean = std::min(first * (1 << std::min(attempt, 8u)), longest);
        return mean / 2 + Duration(static_cast<std::int64_t>(
                              random.next() % static_cast<std::uint64_t>(mean.count())));
    }

  private:
    struct Destination {
        std::uint32_t half_open = 0;
        TimePoint answered_at = TimePoint::min();
        std::string why;
        std::deque<PeerId> waiting;
    };

    std::unordered_map<std::string, Destination> destinations_;
    std::deque<Turn> turns_;
};

// Of one connect: tries in a row that the listener accepted and ended without a refusal. Its
// process ends, has no descriptor left even to say so, or does not speak weft.
class HangUps {
  public:
    static constexpr std::uint32_t max = 20;  // About 2 s with the pauses,
    static constexpr Duration last = 2500ms;  // and not longer.

    // Counts one. False: the connect fails.
    bool may_try_again(TimePoint now) {
        if (count_++ == 0) since_ = now;
        return count_ <= max && now - since_ < last;
    }
    // The listener answered.
    void clear() { count_ = 0; }
    // This process stood still for `stall` until now.
    void postpone(Duration stall, TimePoint now) { since_ = std::min(since_ + stall, now); }

  private:
    std::uint32_t count_ = 0;
    TimePoint since_{};
};

}  // namespace weft::na
