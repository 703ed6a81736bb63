// The invariants of the scenarios, how often each was checked, and the violations.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace weft::scenarios {

enum class Rule : std::uint8_t {
    // Calls and transfers, at each completion.
    completes_once,
    completes_later,
    completes_in_time,
    completes_after_death,
    cancel_completes,
    reply_is_own,
    effect_fits_code,
    stage_fits_effect,
    code_is_possible,
    deadline_is_over,
    cancel_was_requested,
    reply_arrives,
    reply_is_prompt,
    handler_failure_arrives,
    reply_has_cause,
    overload_fails_at_once,
    failure_names_peer,
    unreceived_is_resent,
    no_foreign_bytes_readable,
    // Handlers, whenever one starts, ends or is notified of a cancel.
    executes_once,
    executes_requested,
    executes_at_target,
    starts_in_time,
    deadline_is_carried,
    cancel_reaches_handler,
    cancel_has_cause,
    cancel_arrives,
    pinned_runs_there,
    submit_runs_once,
    submit_is_cancelled,
    // Transfers and regions.
    moves_all_or_fails,
    moves_nothing_else,
    put_stays,
    no_effect_no_bytes,
    nothing_after_fence,
    fence_completes,
    forged_is_denied,
    denied_has_cause,
    // Collectives.
    runs_at_most_once,
    participants_match,
    view_is_known,
    live_ranks_are_reached,
    dead_ranks_fail,
    hung_rank_is_named,
    merged_once,
    status_matches_policy,
    rest_is_delivered,
    gather_completes,
    gather_ends_in_time,
    gather_results_agree,
    gather_has_own_value,
    dead_leader_is_noticed,
    gather_recovers,
    nested_ends,
    nested_is_cancelled,
    collectives_are_back,
    // Broadcasts over a network of costs.
    live_ranks_run_once,
    no_rank_runs_twice,
    dead_ranks_never_succeed,
    two_messages_each,
    bound_is_near,
    state_is_small,
    heals_in_time,
    // At the end, of each call.
    ok_was_executed,
    none_was_not_executed,
    applied_was_executed,
    ok_was_not_cancelled,
    // With many clients at once.
    shares_are_fair,
    shutdown_loses_no_reply,
    shutdown_leaves_no_unknown,
    shutdown_is_prompt,
    // While it runs, of each host.
    bounds_hold,
    retries_keep_budget,
    no_protocol_violation,
    // After healing.
    all_complete,
    outcomes_balance,
    all_servers_recover,
    calls_are_back,
    handlers_are_back,
    slots_are_back,
    queues_are_empty,
    transfers_are_back,
    regions_are_back,
    timers_are_back,
    no_late_access,
    no_unwritten_bytes_sent,
};
inline constexpr std::size_t rules_count =
    static_cast<std::size_t>(Rule::no_unwritten_bytes_sent) + 1;

std::string_view name_of(Rule rule);
std::string_view meaning_of(Rule rule);
// Whether this scenario checks the rule.
bool is_checked_in(Rule rule, std::string_view scenario);

struct Tally {
    std::uint64_t checked = 0;
    std::uint64_t broken = 0;
};
using Tallies = std::array<Tally, rules_count>;

// Of one run: the tallies, and the first few violations.
class RuleResults {
  public:
    // To be called for each check. `seen()` is called on a violation only.
    template <class Seen>
    void hold(bool good, Rule rule, Seen&& seen) {
        ++tallies_[static_cast<std::size_t>(rule)].checked;
        if (!good) [[unlikely]]
            broke(rule, seen());
    }
    const std::vector<std::string>& broken() const { return broken_; }
    const Tallies& tallies() const { return tallies_; }
    // Runs at the first violation, once.
    void on_first_break(std::function<void()> witness) { witness_ = std::move(witness); }

  private:
    void broke(Rule rule, const std::string& seen);

    Tallies tallies_{};
    std::vector<std::string> broken_;
    std::function<void()> witness_;
};

}  // namespace weft::scenarios
