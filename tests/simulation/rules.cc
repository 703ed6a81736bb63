#include "simulation/rules.h"

#include <utility>

namespace weft::scenarios {

namespace {

enum Scenarios : std::uint8_t {
    rpc = 1,
    bulk = 2,
    group = 4,
    bcast = 8,
    both = rpc | bulk,
    rpc_and_group = rpc | group,
    all = rpc | bulk | group,
    members = group | bcast,
    ranks = rpc | group | bcast,
};

struct RuleInfo {
    Rule rule;
    Scenarios where;
    std::string_view name;
    std::string_view meaning;
};

constexpr std::array<RuleInfo, rules_count> rule_infos{{
    {Rule::completes_once, all, "completes-once", "a call completes once and never again"},
    {Rule::completes_later, all, "completes-later",
     "no completion runs inside the call that began it"},
    {Rule::completes_in_time, all, "completes-in-time",
     "a call completes at most 10 ms after its deadline"},
    {Rule::completes_after_death, both, "completes-after-death",
     "a call to a peer that can't be reached completes within 3 s of its last message"},
    {Rule::cancel_completes, all, "cancel-completes", "a cancelled call completes within 10 ms"},
    {Rule::reply_is_own, rpc_and_group, "reply-is-own", "a reply is that of its request"},
    {Rule::effect_fits_code, both, "effect-fits-code", "OK means applied"},
    {Rule::stage_fits_effect, both, "stage-fits-effect", "what was never sent has no effect"},
    {Rule::code_is_possible, both, "code-is-possible", "no failure blames a valid call"},
    {Rule::deadline_is_over, both, "deadline-is-over",
     "DEADLINE_EXCEEDED comes after the deadline"},
    {Rule::cancel_was_requested, both, "cancel-was-requested", "CANCELLED comes after a cancel"},
    {Rule::reply_arrives, both, "reply-arrives",
     "without a broken host or link the reply arrives, or the deadline expires"},
    {Rule::reply_is_prompt, both, "reply-is-prompt",
     "without any fault the reply arrives within 50 ms"},
    {Rule::handler_failure_arrives, rpc, "handler-failure-arrives",
     "a failure of a handler arrives unchanged"},
    {Rule::reply_has_cause, rpc, "reply-has-cause",
     "no reply arrives before its handler has replied"},
    {Rule::overload_fails_at_once, both, "overload-fails-at-once",
     "RESOURCE_EXHAUSTED of the local side comes within 1 ms, without effect"},
    {Rule::failure_names_peer, rpc, "failure-names-peer", "UNAVAILABLE names the peer"},
    {Rule::unreceived_is_resent, rpc, "unreceived-is-resent",
     "no call ends with ABORTED if the server never received a call of its client"},
    {Rule::no_foreign_bytes_readable, rpc, "no-foreign-bytes-readable",
     "memory that a get may read holds no byte of a call between others"},
    {Rule::executes_once, rpc, "executes-once",
     "a method that is not idempotent runs at most once"},
    {Rule::executes_requested, rpc_and_group, "executes-requested",
     "no handler runs without a request"},
    {Rule::executes_at_target, rpc_and_group, "executes-at-target",
     "a request runs on the server that it was sent to"},
    {Rule::starts_in_time, rpc, "starts-in-time", "no handler starts after its deadline"},
    {Rule::deadline_is_carried, rpc, "deadline-is-carried",
     "a handler's deadline is its caller's, less the time in flight"},
    {Rule::cancel_reaches_handler, rpc, "cancel-reaches-handler",
     "a handler is notified once that its call was cancelled"},
    {Rule::cancel_has_cause, rpc, "cancel-has-cause",
     "no handler is notified of a cancel while its caller waits and can be reached"},
    {Rule::cancel_arrives, rpc, "cancel-arrives",
     "without any fault a handler is notified within 50 ms of its caller's cancel"},
    {Rule::pinned_runs_there, rpc, "pinned-runs-there",
     "a call to a context runs there; it is out of range only where the server has no such "
     "context"},
    {Rule::submit_runs_once, rpc, "submit-runs-once",
     "work for another context runs there once, and resumes on the context that awaits"},
    {Rule::submit_is_cancelled, rpc, "submit-is-cancelled",
     "work for another context ends within 50 ms of the cancel of its call"},
    {Rule::moves_all_or_fails, bulk, "moves-all-or-fails", "a transfer with OK moved every byte"},
    {Rule::moves_nothing_else, bulk, "moves-nothing-else",
     "a put writes only inside of its range, a get delivers only bytes of the region"},
    {Rule::put_stays, bulk, "put-stays", "the bytes of a put with OK stay until the fence"},
    {Rule::no_effect_no_bytes, bulk, "no-effect-no-bytes", "a put with effect none wrote nothing"},
    {Rule::nothing_after_fence, bulk, "nothing-after-fence",
     "memory is its owner's alone after its fence, and no transfer begins there"},
    {Rule::fence_completes, bulk, "fence-completes", "a closed region is fenced within 14 s"},
    {Rule::forged_is_denied, bulk, "forged-is-denied",
     "a changed reference moves nothing, and never returns OK"},
    {Rule::denied_has_cause, bulk, "denied-has-cause",
     "PERMISSION_DENIED is returned only for regions that are closed or lost"},
    {Rule::runs_at_most_once, group, "runs-at-most-once",
     "a collective runs at most once in each life of a rank"},
    {Rule::participants_match, group, "participants-match",
     "each rank that takes part by view and filters has one outcome, and no other rank has one, or "
     "runs it"},
    {Rule::view_is_known, group, "view-is-known",
     "a collective runs in a view that its caller knew, or a later one"},
    {Rule::live_ranks_are_reached, group, "live-ranks-are-reached",
     "a rank without faults is reached, whichever others are dead or paused, and no rank refuses "
     "for lack of room"},
    {Rule::dead_ranks_fail, group, "dead-ranks-fail", "a rank that is down has no success"},
    {Rule::hung_rank_is_named, group, "hung-rank-is-named",
     "if a handler does not end, its rank is named, and no other"},
    {Rule::merged_once, group, "merged-once",
     "a merged value has the reply of each successful rank once, in order if requested"},
    {Rule::status_matches_policy, group, "status-matches-policy",
     "the status is that of the policy"},
    {Rule::rest_is_delivered, group, "rest-is-delivered",
     "a collective that completed by its policy still runs at every rank without faults"},
    {Rule::gather_completes, group, "gather-completes",
     "a member collective succeeds once all members have joined"},
    {Rule::gather_ends_in_time, group, "gather-ends-in-time",
     "a member collective completes once at a live member, at most 1 s after its deadline"},
    {Rule::gather_results_agree, group, "gather-results-agree",
     "results of member collectives with OK that have a value in common are equal"},
    {Rule::gather_has_own_value, group, "gather-has-own-value",
     "a member collective of all with OK has each rank of its view once, and its own value"},
    {Rule::dead_leader_is_noticed, group, "dead-leader-is-noticed",
     "a member that waits for a dead leader fails within 10 s"},
    {Rule::gather_recovers, group, "gather-recovers",
     "after the faults a member collective succeeds at once under a new name, and under an "
     "interrupted one within six calls"},
    {Rule::nested_ends, group, "nested-ends", "a collective that a handler began completes once"},
    {Rule::nested_is_cancelled, group, "nested-is-cancelled",
     "5 s after its call was cancelled none of its handlers still runs uncancelled"},
    {Rule::collectives_are_back, members, "collectives-are-back", "no collective is left"},
    {Rule::live_ranks_run_once, bcast, "live-ranks-run-once",
     "a live rank runs it once, and its outcome is OK"},
    {Rule::no_rank_runs_twice, bcast, "no-rank-runs-twice", "no rank runs it twice"},
    {Rule::dead_ranks_never_succeed, bcast, "dead-ranks-never-succeed",
     "a rank that died before it replied has a failure"},
    {Rule::two_messages_each, bcast, "two-messages-each",
     "without faults there are one request and one reply for each rank but the first"},
    {Rule::bound_is_near, bcast, "bound-is-near",
     "without faults the last rank is reached within 1.15 times the least time, along the tree "
     "that the root has learnt"},
    {Rule::state_is_small, bcast, "state-is-small",
     "the state of a rank takes at most 256 bytes, on average"},
    {Rule::heals_in_time, bcast, "heals-in-time",
     "all outcomes are known within one detection for each dead rank above another, and one more"},
    {Rule::ok_was_executed, ranks, "ok-was-executed", "a handler ran for each OK"},
    {Rule::none_was_not_executed, ranks, "none-was-not-executed", "no handler ran for effect none"},
    {Rule::applied_was_executed, rpc, "applied-was-executed",
     "a handler ran for each effect applied"},
    {Rule::ok_was_not_cancelled, rpc, "ok-was-not-cancelled",
     "the handler of a call with OK was not notified of a cancel"},
    {Rule::shares_are_fair, rpc, "shares-are-fair",
     "each client of a busy server is served at least half as often as the mean of its context"},
    {Rule::shutdown_loses_no_reply, rpc, "shutdown-loses-no-reply",
     "a reply that was made before an orderly end began arrives, however slow its reader"},
    {Rule::shutdown_leaves_no_unknown, rpc, "shutdown-leaves-no-unknown",
     "a call during an orderly end gets its reply, or has effect none and never ran"},
    {Rule::shutdown_is_prompt, rpc, "shutdown-is-prompt",
     "clients that keep calling, or are paused, do not delay an orderly end"},
    {Rule::bounds_hold, all, "bounds-hold", "queues and handlers keep to their limits"},
    {Rule::retries_keep_budget, rpc, "retries-keep-budget",
     "a client retries ten calls, and one more for each ten replies, to each server"},
    {Rule::no_protocol_violation, all, "no-protocol-violation",
     "no host reports a protocol violation of another"},
    {Rule::all_complete, all, "all-complete", "after healing every call completes"},
    {Rule::outcomes_balance, both, "outcomes-balance",
     "as many calls ended, by outcome, as were begun"},
    {Rule::all_servers_recover, rpc, "all-servers-recover",
     "after healing every server replies to every client"},
    {Rule::calls_are_back, rpc_and_group, "calls-are-back", "no call is left in flight"},
    {Rule::handlers_are_back, rpc_and_group, "handlers-are-back", "no call is left in a handler"},
    {Rule::slots_are_back, rpc_and_group, "slots-are-back",
     "no slot of a session and no room of a context is in use"},
    {Rule::queues_are_empty, all, "queues-are-empty", "no frame waits"},
    {Rule::transfers_are_back, all, "transfers-are-back", "no transfer is left"},
    {Rule::regions_are_back, bulk, "regions-are-back", "no region is left"},
    {Rule::timers_are_back, all, "timers-are-back", "no timer is left"},
    {Rule::no_late_access, all, "no-late-access", "no memory is touched after its fence"},
    {Rule::no_unwritten_bytes_sent, all, "no-unwritten-bytes-sent",
     "no message carries bytes that nothing wrote"},
}};

constexpr bool is_in_order() {
    for (std::size_t i = 0; i < rule_infos.size(); ++i) {
        if (static_cast<std::size_t>(rule_infos[i].rule) != i) return false;
    }
    return true;
}
static_assert(is_in_order());

constexpr std::size_t broken_max = 20;

const RuleInfo& info_of(Rule rule) { return rule_infos[static_cast<std::size_t>(rule)]; }

}  // namespace

std::string_view name_of(Rule rule) { return info_of(rule).name; }
std::string_view meaning_of(Rule rule) { return info_of(rule).meaning; }

bool is_checked_in(Rule rule, std::string_view scenario) {
    const Scenarios where = scenario == "rpc"     ? rpc
                            : scenario == "bulk"  ? bulk
                            : scenario == "group" ? group
                                                  : bcast;
    return (info_of(rule).where & where) != 0;
}

void RuleResults::broke(Rule rule, const std::string& seen) {
    ++tallies_[static_cast<std::size_t>(rule)].broken;
    if (broken_.size() < broken_max) broken_.push_back(std::string(name_of(rule)) + ": " + seen);
    // Taken first: it may break a rule, too.
    if (const auto witness = std::exchange(witness_, nullptr)) witness();
}

}  // namespace weft::scenarios
