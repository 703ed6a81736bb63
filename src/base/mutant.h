// Faults of our own, for the proof that the simulator finds them (tests/sim/mutants.py): in a build
// with WEFT_MUTANTS one of them is chosen at run time, in every other build there are none and this
// costs nothing.
#pragma once

#include <cstdint>
#include <string_view>

namespace weft::base {

enum class Mutant : std::uint8_t {
    none,
    lost_wakeup,
    record_leak,
    late_write,
    double_completion,
    deadline_ignored,
    stale_generation,
    cancel_lost,
    expired_runs,
    effect_denied,
    silence_ignored,
    early_success,
    grant_forgotten,
    reply_lost,
    body_unwritten,
    budget_ignored,
    slot_leak,
    cache_miss,
    stale_sequence,
    credit_double_grant,
    nested_forgotten,
    grant_presumed,
    unheard_forgotten,
    sessions_left,
    last_words_dropped,
    // Of the simulated transport.
    late_piece,
    late_read,
    lost_piece,
    repeat_accepted,
    damage_unseen,
    rotation_forgotten,
    unsent_forgotten,
    end_unsaid,
    denial_forgotten,
    end_unwatched,
    // Of collectives.
    child_forgotten,
    adopted_twice,
    reply_counted_twice,
    filter_inverted,
    stale_epoch_accepted,
    level_budget_ignored,
    orphan_kept,
    rest_abandoned,
    age_ignored,
};

#ifdef WEFT_MUTANTS
// Of the whole process. Set before anything runs.
inline Mutant chosen_mutant = Mutant::none;

struct MutantRow {
    Mutant mutant;
    std::string_view name;
    std::string_view what;
};
inline constexpr MutantRow mutants[] = {
    {Mutant::none, "none", "nothing is wrong"},
    {Mutant::lost_wakeup, "lost-wakeup", "a transport that has room again is not written to"},
    {Mutant::record_leak, "record-leak", "the record of a call whose client died is kept"},
    {Mutant::late_write, "late-write", "memory goes back before those who may write have let go"},
    {Mutant::double_completion, "double-completion", "a call that expires completes twice"},
    {Mutant::deadline_ignored, "deadline-ignored", "a call that waits to be sent has no deadline"},
    {Mutant::stale_generation, "stale-generation", "a stale id names the call after its own"},
    {Mutant::cancel_lost, "cancel-lost", "a cancel does nothing"},
    {Mutant::expired_runs, "expired-runs", "a request that expired on its way runs"},
    {Mutant::effect_denied, "effect-denied", "what was sent is said to have had no effect"},
    {Mutant::silence_ignored, "silence-ignored", "a peer that says nothing lives for ever"},
    {Mutant::early_success, "early-success", "a transfer is done with its last chunk posted"},
    {Mutant::grant_forgotten, "grant-forgotten", "the grants of a lost peer stay"},
    {Mutant::reply_lost, "reply-lost", "a reply that has to wait for room is dropped"},
    {Mutant::body_unwritten, "body-unwritten",
     "what is sent once more has a body that nothing wrote"},
    {Mutant::budget_ignored, "budget-ignored", "calls are retried without a budget"},
    {Mutant::slot_leak, "slot-leak", "the slot of a call that was given up is never free again"},
    {Mutant::cache_miss, "cache-miss", "a kept outcome is not found, and its call runs again"},
    {Mutant::stale_sequence, "stale-sequence", "a call that never came is told to be executing"},
    {Mutant::credit_double_grant, "credit-double-grant",
     "a slot that was given up comes back twice"},
    {Mutant::nested_forgotten, "nested-forgotten", "what a handler started goes on without it"},
    {Mutant::grant_presumed, "grant-presumed", "calls leave before their session was granted"},
    {Mutant::unheard_forgotten, "unheard-forgotten",
     "a session whose first frame was lost is taken for one that the server has forgotten"},
    {Mutant::sessions_left, "sessions-left",
     "a runtime that ends does not say so to the servers of its sessions"},
    {Mutant::last_words_dropped, "last-words-dropped",
     "a connection that ends in order is closed before what was sent last has left"},
    {Mutant::late_piece, "late-piece", "what a put has under way lands after the fence, too"},
    {Mutant::late_read, "late-read", "a get goes on after the fence"},
    {Mutant::lost_piece, "lost-piece", "the second piece of a put is said to be there and is not"},
    {Mutant::repeat_accepted, "repeat-accepted", "a message that comes twice is taken twice"},
    {Mutant::damage_unseen, "damage-unseen", "a damaged message is handed over"},
    {Mutant::rotation_forgotten, "rotation-forgotten",
     "of the peers that wait to be read the first is read as long as it sends anything"},
    {Mutant::unsent_forgotten, "unsent-forgotten",
     "an end does not know of what waits in the transport's own queue"},
    {Mutant::end_unsaid, "end-unsaid", "an orderly end does not say that it begins nothing more"},
    {Mutant::denial_forgotten, "denial-forgotten",
     "a call that came when its session was over is taken for one that was never made"},
    {Mutant::end_unwatched, "end-unwatched", "an end waits for peers that stand still"},
    {Mutant::child_forgotten, "child-forgotten",
     "the last of three children and more is not asked"},
    {Mutant::adopted_twice, "adopted-twice",
     "who is asked again by whoever adopts him runs it again"},
    {Mutant::reply_counted_twice, "reply-counted-twice",
     "what was merged already is merged again when it comes once more"},
    {Mutant::filter_inverted, "filter-inverted", "those who are excluded take part"},
    {Mutant::stale_epoch_accepted, "stale-epoch-accepted",
     "a question by another view is answered by one's own"},
    {Mutant::level_budget_ignored, "level-budget-ignored",
     "those below get all the time that there is"},
    {Mutant::orphan_kept, "orphan-kept", "what nobody waits for goes on"},
    {Mutant::rest_abandoned, "rest-abandoned",
     "a collective is cancelled at the ranks that its policy did not wait for"},
    {Mutant::age_ignored, "age-ignored",
     "a collective begins however long its request lay somewhere"},
};
inline bool is_mutated(Mutant mutant) { return chosen_mutant == mutant; }
#else
constexpr bool is_mutated(Mutant) { return false; }
#endif

}  // namespace weft::base
