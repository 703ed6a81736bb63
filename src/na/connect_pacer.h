// Paces the connects of one endpoint by destination: a bounded number of them waits for one
// listener's answer, the others queue in order. A burst of a thousand channels then takes a small
// part of the listener's queue. Pure: no I/O, the caller passes time and random numbers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <utility>

#include <weft/time.h>

#include "base/assert.h"
#include "base/random.h"
#include "na/provider.h"

namespace weft::na {

class ConnectPacer {
  public:
    static constexpr std::uint32_t half_open_max = 32;  // Per destination.
    // True: the connect may start now. False: next() returns it when it may start.
    bool acquire(const std::string& to, PeerId peer) {
        Destination& there = destinations_[to];
        WEFT_ASSERT(there.half_open <= half_open_max);
        if (there.half_open == half_open_max) {
            there.waiting.push_back(peer);
            return false;
        }
        ++there.half_open;
        return true;
    }
    // The listener at `to` has answered.
    void on_answer(const std::string& to, TimePoint now) {
        const auto at = destinations_.find(to);
        if (at != destinations_.end()) at->second.answered_at = now;
    }
    // An attempt that began at `since`, or was answered last then, timed out. The listener counts
    // as silent unless it has answered another attempt since.
    void on_no_answer(const std::string& to, TimePoint since) {
        const auto at = destinations_.find(to);
        if (at == destinations_.end() || at->second.answered_at > since) return;
        at->second.answered_at = TimePoint::min();
    }
    // The listener's reason, for all connects that wait for it.
    void on_refused(const std::string& to, std::string why) {
        const auto at = destinations_.find(to);
        if (at != destinations_.end()) at->second.why = std::move(why);
    }
    std::string why_waiting(const std::string& to) const {
        const auto at = destinations_.find(to);
        return at == destinations_.end() ? std::string() : at->second.why;
    }
    // When the listener answered last; TimePoint::min(): never, or no connect to it is in progress.
    TimePoint answered_at(const std::string& to) const {
        const auto at = destinations_.find(to);
        return at == destinations_.end() ? TimePoint::min() : at->second.answered_at;
    }
    // A started connect has succeeded or has failed, or the listener has passed it on to another
    // context: the next one may start.
    void release(const std::string& to) {
        const auto at = destinations_.find(to);
        if (at == destinations_.end()) return;
        Destination& there = at->second;
        WEFT_ASSERT(there.half_open != 0);
        if (!there.waiting.empty()) {
            started_.push_back({there.waiting.front(), to});
            there.waiting.pop_front();
        } else if (--there.half_open == 0) {
            destinations_.erase(at);
        }
    }
    // A started connect, which a busy listener refused, gives its slot to the next one, and waits
    // for another as after acquire(). False: no other waits, so it keeps its slot.
    bool give_way(const std::string& to, PeerId peer) {
        Destination& there = destinations_.at(to);
        if (there.waiting.empty()) return false;
        there.waiting.push_back(peer);
        release(to);
        return true;
    }

    // The next peer to connect; its attempt counts as started. If the peer no longer exists,
    // release() passes the slot on.
    struct Started {
        PeerId peer;
        std::string to;
    };
    bool has_started() const { return !started_.empty(); }
    Started next() {
        WEFT_ASSERT(has_started());
        Started started = std::move(started_.front());
        started_.pop_front();
        return started;
    }

    // The pause before retry `attempt`, counted from 1, at a busy listener: at random between half
    // and three halves of a mean that begins with 2 ms, doubles, and stays at 128 ms.
    static Duration backoff(std::uint32_t attempt, base::Random& random) {
        WEFT_ASSERT(attempt != 0);
        constexpr Duration first = 2ms, mean_max = 128ms;
        const Duration mean = std::min(first * (1 << std::min(attempt - 1, 7u)), mean_max);
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
    std::deque<Started> started_;
};

// Consecutive attempts of one connect that the listener accepted and closed without a refusal. The
// listener's process is exiting, has no descriptor left even for a refusal, or does not speak weft.
class HangUps {
  public:
    static constexpr std::uint32_t count_max = 20;  // About 2 s with the pauses.
    static constexpr Duration time_max = 2500ms;    // The upper bound of that time.

    // Counts one hang-up. False: the connect fails.
    bool may_retry(TimePoint now) {
        if (count_++ == 0) since_ = now;
        return count_ <= count_max && now - since_ < time_max;
    }
    // The listener answered.
    void clear() { count_ = 0; }
    // This process was stalled for `stall` until `now`.
    void postpone(Duration stall, TimePoint now) { since_ = std::min(since_ + stall, now); }

  private:
    std::uint32_t count_ = 0;
    TimePoint since_{};
};

}  // namespace weft::na
