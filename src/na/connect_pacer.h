// Paces the connects of one endpoint by destination: a bounded number of them waits for one
// listener's answer, the others queue in order. A burst of a thousand channels then takes a small
// part of the listener's queue. Pure: no I/O, the caller passes time and random numbers.
//
// A listener of several contexts takes connections that are for a blocked one, and answers them
// late. So a connect to such a one keeps its slot for a short time only after its hello: then it
// waits on without one, or, if the listener was busy, for its next turn. Those to a listener of one
// context, which takes none while it is blocked, stay in its queue, and keep their slots.
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
    static constexpr std::uint32_t half_open_max = 32;  // Per destination,
    static constexpr std::uint32_t yielded_max = 64;    // and of those without a slot.
    static constexpr Duration slot_time = 100ms;
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
    // A started connect has succeeded, has failed, or gives up its slot: the next one may start.
    void release(const std::string& to) {
        const auto at = destinations_.find(to);
        if (at == destinations_.end()) return;
        Destination& there = at->second;
        WEFT_ASSERT(there.half_open != 0);
        if (!there.waiting.empty()) {
            started_.push_back({there.waiting.front(), to});
            there.waiting.pop_front();
            return;
        }
        --there.half_open;
        erase_unused(at);
    }

    // Whether the listener at `to` has several contexts, as its last answer says, or a connect that
    // names one after the first. A connect to it is in progress, or begins.
    void on_contexts(const std::string& to, bool several) {
        destinations_[to].has_contexts = several;
    }
    // Of a listener of several contexts so many wait that the next one can't start: more contexts
    // are blocked than one. Then a connect that yield() refuses begins anew, as after a refusal.
    bool is_crowded(const std::string& to) const {
        const Destination& there = destinations_.at(to);
        return there.has_contexts && there.yielded == yielded_max && !there.waiting.empty();
    }
    // A started connect waits on for the answer, and the next one may start. False: it keeps its
    // slot, as too many wait so, or the listener may have one context.
    bool yield(const std::string& to) {
        Destination& there = destinations_.at(to);
        if (!there.has_contexts || there.yielded == yielded_max) return false;
        ++there.yielded;
        release(to);
        return true;
    }
    // A started connect, which a busy listener refused, may go on. False: others have waited; its
    // turn comes again, as after acquire().
    bool renew(const std::string& to, PeerId peer) {
        Destination& there = destinations_.at(to);
        if (!there.has_contexts || there.waiting.empty()) return true;
        there.waiting.push_back(peer);
        release(to);
        return false;
    }
    // A connect that has yielded its slot has succeeded or has failed.
    void end_yielded(const std::string& to) {
        const auto at = destinations_.find(to);
        WEFT_ASSERT(at != destinations_.end() && at->second.yielded != 0);
        --at->second.yielded;
        erase_unused(at);
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
        std::uint32_t yielded = 0;
        bool has_contexts = false;
        TimePoint answered_at = TimePoint::min();
        std::string why;
        std::deque<PeerId> waiting;
    };

    using Destinations = std::unordered_map<std::string, Destination>;
    static constexpr std::size_t known_max = 1024;
    void erase_unused(Destinations::iterator at) {
        Destination& there = at->second;
        if (there.half_open != 0 || there.yielded != 0) return;
        if (!there.has_contexts || destinations_.size() > known_max) {
            destinations_.erase(at);
            return;
        }
        there.answered_at = TimePoint::min();
        there.why.clear();
    }

    Destinations destinations_;
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
