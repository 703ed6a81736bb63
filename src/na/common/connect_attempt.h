// The attempts of one connect: when they began, until when they may take, what has failed.
#pragma once

#include "na/connect_pacer.h"

namespace weft::na {

struct ConnectAttempt {
    TimePoint since{};            // Of a connect: its begin, or its last answer; else the accept.
    TimePoint deadline = never;   // Until then the other side has to answer.
    TimePoint retry_at = never;   // The next attempt, which may have to wait for a slot.
    std::uint32_t attempts = 0;   // Attempts that a busy listener refused,
    HangUps hang_ups;             // and those closed without a refusal.
    bool has_slot = false;        // Of the endpoint's pacer.
    bool lets_others_go = false;  // Before the next attempt: the listener was busy.

    // The pause before the next attempt at a busy listener.
    void back_off(TimePoint now, base::Random& random) {
        retry_at = now + ConnectPacer::backoff(++attempts, random);
    }

    // ---- by its pacer
    // True: the attempt may start. False: it waits for its turn.
    bool take_slot(ConnectPacer& pacer, const std::string& to, PeerId peer) {
        const bool goes_last = std::exchange(lets_others_go, false);
        retry_at = never;
        if (!has_slot) has_slot = pacer.acquire(to, peer);
        else if (goes_last) has_slot = !pacer.give_way(to, peer);
        return has_slot;
    }
    // The pacer has started it.
    void start_turn() { has_slot = true; }
    // It has succeeded or failed; or another context of the listener has it, and may be blocked.
    void leave(ConnectPacer& pacer, const std::string& to) {
        if (std::exchange(has_slot, false)) pacer.release(to);
    }
};

}  // namespace weft::na
