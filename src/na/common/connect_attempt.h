// The attempts of one connect: when they began, until when they may take, what has failed.
#pragma once

#include "na/connect_pacer.h"

namespace weft::na {

// Its part in the endpoint's pacer.
enum class PacerSlot : std::uint8_t { none, held, yielded };

struct ConnectAttempt {
    TimePoint since{};           // Of a connect: its begin, or its last answer; else the accept.
    TimePoint deadline = never;  // Until then the other side has to answer.
    TimePoint retry_at = never;  // With a pacer slot: the next attempt.
    std::uint32_t attempts = 0;  // Attempts that a busy listener refused,
    HangUps hang_ups;            // and those closed without a refusal.
    PacerSlot slot = PacerSlot::none;
    TimePoint slot_until = never;  // With a slot, from the first hello on.

    bool has_slot() const { return slot == PacerSlot::held; }
    // The pause before the next attempt at a busy listener.
    void back_off(TimePoint now, base::Random& random) {
        retry_at = now + ConnectPacer::backoff(++attempts, random);
    }

    // ---- by its pacer
    // False: it waits for its turn, and no retry is due before. It may have a slot already.
    bool take_slot(ConnectPacer& pacer, const std::string& to, PeerId peer) {
        if (has_slot()) return true;
        const bool has_yielded = slot == PacerSlot::yielded;
        const bool may_start = pacer.acquire(to, peer);
        if (has_yielded) pacer.end_yielded(to);
        slot = may_start ? PacerSlot::held : PacerSlot::none;
        if (!may_start) retry_at = never;
        return may_start;
    }
    // The pacer has started it.
    void start_turn() {
        slot = PacerSlot::held;
        retry_at = slot_until = never;
    }
    void note_hello(TimePoint now) {
        if (has_slot()) slot_until = std::min(slot_until, now + ConnectPacer::slot_time);
    }
    // Once `slot_until` has passed. `is_answered`: it pauses, as the listener was busy.
    void end_turn(ConnectPacer& pacer, const std::string& to, PeerId peer, bool is_answered,
                  TimePoint now) {
        const bool keeps = is_answered ? pacer.renew(to, peer) : !pacer.yield(to);
        slot_until = keeps ? now + ConnectPacer::slot_time : never;
        if (keeps) return;
        slot = is_answered ? PacerSlot::none : PacerSlot::yielded;
        if (is_answered) retry_at = never;
    }
    // It has succeeded or failed.
    void leave(ConnectPacer& pacer, const std::string& to) {
        if (slot == PacerSlot::held) pacer.release(to);
        if (slot == PacerSlot::yielded) pacer.end_yielded(to);
        slot = PacerSlot::none;
        slot_until = never;
    }
};

}  // namespace weft::na
