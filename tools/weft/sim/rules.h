// The invariants that scenarios judge by, how often each had something to judge, and what broke.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace weft::tool {

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
    cancel_was_asked,
    answer_arrives,
    answer_is_prompt,
    failure_is_answer,
    reply_has_cause,
    full_is_told_at_once,
    failure_names_peer,
    unheard_is_sent_again,
    nothing_foreign_is_shown,
    // Handlers, whenever one starts, ends or hears of a cancel.
    executes_once,
    executes_wanted,
    executes_here,
    starts_in_time,
    deadline_is_carried,
    cancel_reaches_handler,
    cancel_has_cause,
    cancel_arrives,
    // Transfers and regions.
    moves_all_or_fails,
    moves_nothing_else,
    put_stays,
    no_effect_no_bytes,
    nothing_after_fence,
    fence_comes,
    forged_is_denied,
    denied_has_cause,
    // Collectives.
    runs_once_a_life,
    those_take_part,
    view_is_known,
    living_are_reached,
    dead_are_named,
    late_is_named,
    merged_once,
    verdict_fits,
    rest_is_delivered,
    meets_after_all,
    meets_in_time,
    meets_alike,
    meets_with_own,
    leader_is_missed,
    meets_again,
    nested_ends,
    nested_is_cancelled,
    collectives_are_back,
    // Broadcasts over a network of costs.
    everyone_is_told,
    nobody_is_told_twice,
    dead_have_no_success,
    two_messages_each,
    bound_is_near,
    state_is_small,
    heals_in_time,
    // At the end, of each call.
    ok_was_executed,
    none_was_not_executed,
    applied_was_executed,
    ok_was_not_cancelled,
    // Of many clients at once.
    shares_are_fair,
    ends_lose_no_reply,
    ends_leave_no_doubt,
    ends_are_prompt,
    // While it runs, of each host.
    bounds_hold,
    retries_keep_budget,
    nobody_is_broken,
    // After healing.
    all_complete,
    outcomes_balance,
    all_answer_again,
    calls_are_back,
    handlers_are_back,
    slots_are_back,
    queues_are_empty,
    transfers_are_back,
    regions_are_back,
    timers_are_back,
    no_late_access,
    nothing_unwritten_leaves,
};
inline constexpr std::size_t rules_count =
    static_cast<std::size_t>(Rule::nothing_unwritten_leaves) + 1;

std::string_view name_of(Rule rule);
std::string_view meaning_of(Rule rule);
// Whether this scenario has anything for the rule to judge.
bool is_judged_in(Rule rule, std::string_view scenario);

struct Tally {
    std::uint64_t judged = 0;
    std::uint64_t broken = 0;
};
using Tallies = std::array<Tally, rules_count>;

// Of one run: the tallies, and the first few of what broke.
class Verdict {
  public:
    // To be called when there is something to judge. `seen()` is asked only when it broke.
    template <class Seen>
    void hold(bool good, Rule rule, Seen&& seen) {
        ++tallies_[static_cast<std::size_t>(rule)].judged;
        if (!good) [[unlikely]]
            broke(rule, seen());
    }
    const std::vector<std::string>& broken() const { return broken_; }
    const Tallies& tallies() const { return tallies_; }
    // Runs when the first rule breaks, once.
    void on_first_break(std::function<void()> witness) { witness_ = std::move(witness); }

  private:
    void broke(Rule rule, const std::string& seen);

    Tallies tallies_{};
    std::vector<std::string> broken_;
    std::function<void()> witness_;
};

}  // namespace weft::tool
