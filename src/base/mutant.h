// Faults of our own, for the proof that the simulator finds them (tests/sim/mutants.py): in a build
// with WEFT_MUTANTS one of them is chosen at run time, in every other build there are none and this
// costs nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace weft::base {

enum class Mutant : std::uint8_t {
    none,
    lost_wakeup,        // A transport that has room again is not written to.
    record_leak,        // A server's record of a call whose client died is kept.
    late_write,         // Memory is given back before those who were granted it have let go.
    double_completion,  // A call that expires completes twice.
    deadline_ignored,   // A call that waits for its connection has no deadline.
    stale_generation,   // A late reply is taken for that of the next call in its slot.
    cancel_lost,        // A cancel does nothing.
    expired_runs,       // A request that expired on its way runs.
    effect_denied,      // What was sent is said to have had no effect.
    silence_ignored,    // A peer that says nothing lives for ever.
    early_success,      // A transfer is done when its last chunk was posted.
    grant_forgotten,    // A lost peer's grants are not given up.
    reply_lost,         // A reply that has to wait for room is dropped.
};
inline constexpr std::string_view mutant_names[] = {
    "none",
    "lost-wakeup",
    "record-leak",
    "late-write",
    "double-completion",
    "deadline-ignored",
    "stale-generation",
    "cancel-lost",
    "expired-runs",
    "effect-denied",
    "silence-ignored",
    "early-success",
    "grant-forgotten",
    "reply-lost",
};
static_assert(std::size(mutant_names) == static_cast<std::size_t>(Mutant::reply_lost) + 1);

#ifdef WEFT_MUTANTS
// Of the whole process. Set before anything runs.
inline Mutant chosen_mutant = Mutant::none;
inline bool is_mutated(Mutant mutant) { return chosen_mutant == mutant; }
#else
constexpr bool is_mutated(Mutant) { return false; }
#endif

}  // namespace weft::base
