// Deliberate faults, for the proof that the simulation finds faults (tests/mutants/mutants.py). A build
// with WEFT_MUTANTS selects one of them at run time; every other build has none, at no cost.
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
    effect_misreported,
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
    grant_assumed,
    unreceived_forgotten,
    sessions_unclosed,
    final_frames_dropped,
    // Faults of the simulated transport.
    late_piece,
    late_read,
    lost_piece,
    repeat_accepted,
    damage_undetected,
    rotation_forgotten,
    unsent_forgotten,
    drain_unannounced,
    rejection_forgotten,
    drain_unmonitored,
    // Faults of collectives.
    child_forgotten,
    adopted_twice,
    reply_counted_twice,
    filter_inverted,
    stale_epoch_accepted,
    level_budget_ignored,
    orphan_kept,
    slow_ranks_cancelled,
    age_ignored,
};

#ifdef WEFT_MUTANTS
// Process-wide. Set before any runtime exists.
inline Mutant chosen_mutant = Mutant::none;

struct MutantRow {
    Mutant mutant;
    std::string_view name;
    std::string_view what;
};
inline constexpr MutantRow mutants[] = {
    {Mutant::none, "none", "nothing is wrong"},
    {Mutant::lost_wakeup, "lost-wakeup", "a transport that has room again is not written to"},
    {Mutant::record_leak, "record-leak", "the record of a call of a disconnected client is kept"},
    {Mutant::late_write, "late-write", "memory is returned while a peer may still write to it"},
    {Mutant::double_completion, "double-completion", "a call that expires completes twice"},
    {Mutant::deadline_ignored, "deadline-ignored", "a call that waits to be sent has no deadline"},
    {Mutant::stale_generation, "stale-generation", "a stale id matches the next call in its slot"},
    {Mutant::cancel_lost, "cancel-lost", "a cancel does nothing"},
    {Mutant::expired_runs, "expired-runs", "a request that expired in transit runs"},
    {Mutant::effect_misreported, "effect-misreported",
     "a call that was sent is reported with effect none"},
    {Mutant::silence_ignored, "silence-ignored", "a silent peer never times out"},
    {Mutant::early_success, "early-success", "a transfer completes when its last chunk is posted"},
    {Mutant::grant_forgotten, "grant-forgotten", "the grants of a disconnected peer are kept"},
    {Mutant::reply_lost, "reply-lost", "a reply that has to wait for room is dropped"},
    {Mutant::body_unwritten, "body-unwritten",
     "a request that is sent again has an unwritten body"},
    {Mutant::budget_ignored, "budget-ignored", "calls are retried without a budget"},
    {Mutant::slot_leak, "slot-leak", "the slot of an abandoned call is never freed"},
    {Mutant::cache_miss, "cache-miss", "a kept outcome is not found, and its call runs again"},
    {Mutant::stale_sequence, "stale-sequence",
     "a call that never arrived is reported as executing"},
    {Mutant::credit_double_grant, "credit-double-grant",
     "the credit of an abandoned slot is returned twice"},
    {Mutant::nested_forgotten, "nested-forgotten",
     "operations that a handler started continue after it"},
    {Mutant::grant_assumed, "grant-assumed", "calls are sent before their session is granted"},
    {Mutant::unreceived_forgotten, "unreceived-forgotten",
     "a session with a lost first frame is treated as one that the server has dropped"},
    {Mutant::sessions_unclosed, "sessions-unclosed",
     "a runtime that ends does not close its sessions at their servers"},
    {Mutant::final_frames_dropped, "final-frames-dropped",
     "an orderly close drops the frames that were sent last"},
    {Mutant::late_piece, "late-piece",
     "the pieces of a put in flight are written after the fence, too"},
    {Mutant::late_read, "late-read", "a get continues after the fence"},
    {Mutant::lost_piece, "lost-piece",
     "the second piece of a put is reported as written and is not"},
    {Mutant::repeat_accepted, "repeat-accepted", "a message that arrives twice is delivered twice"},
    {Mutant::damage_undetected, "damage-undetected", "a damaged message is delivered"},
    {Mutant::rotation_forgotten, "rotation-forgotten",
     "the first peer with unread messages is read for as long as it sends"},
    {Mutant::unsent_forgotten, "unsent-forgotten",
     "a shutdown ignores messages in the transport's own queue"},
    {Mutant::drain_unannounced, "drain-unannounced",
     "an orderly shutdown does not announce that it runs no more calls"},
    {Mutant::rejection_forgotten, "rejection-forgotten",
     "a call that arrived after the end of its session is reported as never received"},
    {Mutant::drain_unmonitored, "drain-unmonitored",
     "a shutdown waits for peers that make no progress"},
    {Mutant::child_forgotten, "child-forgotten",
     "the last of three or more children gets no request"},
    {Mutant::adopted_twice, "adopted-twice",
     "a rank that receives its request again from an adopting parent runs it again"},
    {Mutant::reply_counted_twice, "reply-counted-twice",
     "a reply that arrives again is merged again"},
    {Mutant::filter_inverted, "filter-inverted", "excluded ranks take part"},
    {Mutant::stale_epoch_accepted, "stale-epoch-accepted",
     "a request of another view is answered by the local view"},
    {Mutant::level_budget_ignored, "level-budget-ignored", "children get the whole remaining time"},
    {Mutant::orphan_kept, "orphan-kept", "an operation without a waiting parent continues"},
    {Mutant::slow_ranks_cancelled, "slow-ranks-cancelled",
     "a collective is cancelled at the ranks that its policy did not wait for"},
    {Mutant::age_ignored, "age-ignored",
     "a collective begins regardless of the age of its request"},
};
inline bool is_mutated(Mutant mutant) { return chosen_mutant == mutant; }
#else
constexpr bool is_mutated(Mutant) { return false; }
#endif

}  // namespace weft::base
