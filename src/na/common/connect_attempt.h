// The attempts of one connect: when they began, until when they may take, what has failed.
#pragma once

#include "na/connect_pacer.h"

namespace weft::na {

struct ConnectAttempt {
    TimePoint since{};              // Of a connect: its begin, or its last answer; else the accept.
    TimePoint deadline = never;     // Until then the other side has to answer.
    TimePoint retry_at = never;     // With a pacer slot: the next attempt.
    std::uint32_t attempts = 0;     // Attempts that a busy listener refused,
    HangUps hang_ups;               // and those closed without a refusal.
    bool holds_pacer_slot = false;  // Of the endpoint's pacer.

    // The pause before the next attempt at a busy listener.
    void back_off(TimePoint now, base::Random& random) {
        retry_at = now + ConnectPacer::backoff(++attempts, random);
    }
};

}  // namespace weft::na
