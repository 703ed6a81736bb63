#include "sim/rules.h"

#include <utility>

namespace weft::tool {

namespace {

enum Where : std::uint8_t {
    rpc = 1,
    bulk = 2,
    group = 4,
    bcast = 8,
    both = rpc | bulk,
    talk = rpc | group,
    all = rpc | bulk | group,
    members = group | bcast,
    ranks = rpc | group | bcast,
};

struct Row {
    Rule rule;
    Where where;
    std::string_view name;
    std::string_view meaning;
};

constexpr std::array<Row, rules_count> rows{{
    {Rule::completes_once, all, "completes-once", "a call completes once and never again"},
    {Rule::completes_later, all, "completes-later",
     "no completion runs inside the call that began it"},
    {Rule::completes_in_time, all, "completes-in-time",
     "a call completes at most 10 ms after its deadline"},
    {Rule::completes_after_death, both, "completes-after-death",
     "a call to who can't be reached completes within 3 s of his last word"},
    {Rule::cancel_completes, all, "cancel-completes", "a cancelled call completes within 10 ms"},
    {Rule::reply_is_own, talk, "reply-is-own", "a reply is that of its request"},
    {Rule::effect_fits_code, both, "effect-fits-code", "OK means applied"},
    {Rule::stage_fits_effect, both, "stage-fits-effect", "what was never sent has no effect"},
    {Rule::code_is_possible, both, "code-is-possible",
     "no failure blames a call that is right in itself"},
    {Rule::deadline_is_over, both, "deadline-is-over",
     "DEADLINE_EXCEEDED comes after the deadline"},
    {Rule::cancel_was_asked, both, "cancel-was-asked", "CANCELLED comes after a cancel"},
    {Rule::answer_arrives, both, "answer-arrives",
     "where no host and no link broke, the answer comes, unless the deadline does"},
    {Rule::answer_is_prompt, both, "answer-is-prompt",
     "where nothing was wrong at all, it comes within 50 ms"},
    {Rule::failure_is_answer, rpc, "failure-is-answer",
     "a failure that a handler told arrives as it was told"},
    {Rule::reply_has_cause, rpc, "reply-has-cause", "no reply comes before its handler's answer"},
    {Rule::full_is_told_at_once, both, "full-is-told-at-once",
     "RESOURCE_EXHAUSTED of this side comes within 1 ms, without effect"},
    {Rule::failure_names_peer, rpc, "failure-names-peer", "what could not be reached is named"},
    {Rule::unheard_is_sent_again, rpc, "unheard-is-sent-again",
     "no call of a client that the server has never heard ends with ABORTED"},
    {Rule::nothing_foreign_is_shown, rpc, "nothing-foreign-is-shown",
     "memory that a get may read holds no byte of a call between others"},
    {Rule::executes_once, rpc, "executes-once",
     "a method that is not idempotent runs at most once"},
    {Rule::executes_wanted, talk, "executes-wanted", "nothing runs that nobody asked for"},
    {Rule::executes_here, talk, "executes-here", "a request runs on the server it was for"},
    {Rule::starts_in_time, rpc, "starts-in-time", "no handler starts after its deadline"},
    {Rule::deadline_is_carried, rpc, "deadline-is-carried",
     "a handler's deadline is its caller's, but for the time on the way"},
    {Rule::cancel_reaches_handler, rpc, "cancel-reaches-handler",
     "a handler hears that its call was cancelled, once"},
    {Rule::cancel_has_cause, rpc, "cancel-has-cause",
     "no handler hears of a cancel while its caller waits and can be reached"},
    {Rule::cancel_arrives, rpc, "cancel-arrives",
     "where nothing was wrong, a handler hears within 50 ms that its caller gave up"},
    {Rule::moves_all_or_fails, bulk, "moves-all-or-fails",
     "a transfer that says OK moved every byte"},
    {Rule::moves_nothing_else, bulk, "moves-nothing-else",
     "a put writes inside of its range only, a get brings only what is there"},
    {Rule::put_stays, bulk, "put-stays", "what a put that said OK wrote is there until the fence"},
    {Rule::no_effect_no_bytes, bulk, "no-effect-no-bytes",
     "a put that said effect none wrote nothing"},
    {Rule::nothing_after_fence, bulk, "nothing-after-fence",
     "memory is its owner's alone after its fence, and no transfer begins there"},
    {Rule::fence_comes, bulk, "fence-comes", "a closed region is fenced within 14 s"},
    {Rule::forged_is_denied, bulk, "forged-is-denied",
     "a reference that was changed moves nothing, and never says OK"},
    {Rule::denied_has_cause, bulk, "denied-has-cause",
     "PERMISSION_DENIED is said of regions that are closed or gone"},
    {Rule::runs_once_a_life, group, "runs-once-a-life",
     "a collective runs at most once in each life of a rank"},
    {Rule::those_take_part, group, "those-take-part",
     "who takes part by view and filters has one outcome, and nobody else has, or runs it"},
    {Rule::view_is_known, group, "view-is-known",
     "it runs in a view that its caller knew, or a later one"},
    {Rule::living_are_reached, group, "living-are-reached",
     "a rank with which nothing is wrong is reached, whichever others are dead or stand still"},
    {Rule::dead_are_named, group, "dead-are-named", "a rank that is down has no success"},
    {Rule::late_is_named, group, "late-is-named",
     "of a handler that does not end its rank is named, and no other"},
    {Rule::merged_once, group, "merged-once",
     "a merged value has the reply of each that succeeded once, in order where that is asked for"},
    {Rule::verdict_fits, group, "verdict-fits", "the verdict is that of the policy"},
    {Rule::rest_is_delivered, group, "rest-is-delivered",
     "what completes by its policy runs at every rank with which nothing is wrong all the same"},
    {Rule::meets_after_all, group, "meets-after-all", "a meeting ends well once all have come"},
    {Rule::meets_in_time, group, "meets-in-time",
     "a meeting of a member that lives ends once, at most 1 s after its deadline"},
    {Rule::meets_alike, group, "meets-alike",
     "members whose meetings said OK and have a value in common came to the same"},
    {Rule::meets_with_own, group, "meets-with-own",
     "a meeting of all that said OK has each of its view once, and one's own value"},
    {Rule::leader_is_missed, group, "leader-is-missed",
     "who waits for a leader that is dead is told so within 10 s"},
    {Rule::meets_again, group, "meets-again",
     "when all is well members meet at once under a new name, and under one that broke within "
     "three calls"},
    {Rule::nested_ends, group, "nested-ends", "a collective that a handler began completes once"},
    {Rule::nested_is_cancelled, group, "nested-is-cancelled",
     "within 5 s after its call was given up none of its handlers goes on uncancelled"},
    {Rule::collectives_are_back, members, "collectives-are-back", "no collective is left"},
    {Rule::everyone_is_told, bcast, "everyone-is-told",
     "a rank that lives runs it once, and its outcome is OK"},
    {Rule::nobody_is_told_twice, bcast, "nobody-is-told-twice", "no rank runs it twice"},
    {Rule::dead_have_no_success, bcast, "dead-have-no-success",
     "a rank that died before it answered has a failure"},
    {Rule::two_messages_each, bcast, "two-messages-each",
     "without faults there are one question and one answer for each rank but the first"},
    {Rule::bound_is_near, bcast, "bound-is-near",
     "without faults the last rank is told within 1.15 times the least time"},
    {Rule::state_is_small, bcast, "state-is-small",
     "what a rank keeps of it takes 256 bytes at most, on average"},
    {Rule::heals_in_time, bcast, "heals-in-time",
     "all outcomes are there within one detection for each dead rank above another, and one more"},
    {Rule::ok_was_executed, ranks, "ok-was-executed", "what said OK has run"},
    {Rule::none_was_not_executed, ranks, "none-was-not-executed",
     "what said effect none never ran"},
    {Rule::applied_was_executed, rpc, "applied-was-executed", "what said effect applied has run"},
    {Rule::ok_was_not_cancelled, rpc, "ok-was-not-cancelled",
     "the handler of what said OK heard of no cancel"},
    {Rule::shares_are_fair, rpc, "shares-are-fair",
     "of clients that keep a server busy each is served half as often as the mean at least"},
    {Rule::ends_lose_no_reply, rpc, "ends-lose-no-reply",
     "a reply that was made before an orderly end began arrives, however slow its reader"},
    {Rule::ends_leave_no_doubt, rpc, "ends-leave-no-doubt",
     "a call that meets an orderly end is answered, or has effect none and never ran"},
    {Rule::ends_are_prompt, rpc, "ends-are-prompt",
     "clients that go on calling, or stand still, do not hold up an orderly end"},
    {Rule::bounds_hold, all, "bounds-hold", "queues and handlers keep to their limits"},
    {Rule::retries_keep_budget, rpc, "retries-keep-budget",
     "a client retries ten calls, and one more for each ten answers, to each server"},
    {Rule::nobody_is_broken, all, "nobody-is-broken",
     "no host says of another that it broke the rules of the wire"},
    {Rule::all_complete, all, "all-complete", "after healing every call comes to its end"},
    {Rule::outcomes_balance, both, "outcomes-balance",
     "as many calls ended, by outcome, as were begun"},
    {Rule::all_answer_again, rpc, "all-answer-again",
     "after healing every server answers everyone"},
    {Rule::calls_are_back, talk, "calls-are-back", "no call is left in flight"},
    {Rule::handlers_are_back, talk, "handlers-are-back", "no call is left in a handler"},
    {Rule::slots_are_back, talk, "slots-are-back",
     "no slot of a session and no room of a context is in use"},
    {Rule::queues_are_empty, all, "queues-are-empty", "no frame waits"},
    {Rule::transfers_are_back, all, "transfers-are-back", "no transfer is left"},
    {Rule::regions_are_back, bulk, "regions-are-back", "no region is left"},
    {Rule::timers_are_back, all, "timers-are-back", "no timer is left"},
    {Rule::no_late_access, all, "no-late-access", "no memory is touched after its fence"},
    {Rule::nothing_unwritten_leaves, all, "nothing-unwritten-leaves",
     "no message carries bytes that nothing wrote"},
}};

constexpr bool is_in_order() {
    for (std::size_t i = 0; i < rows.size(); ++i) {
        if (static_cast<std::size_t>(rows[i].rule) != i) return false;
    }
    return true;
}
static_assert(is_in_order());

constexpr std::size_t broken_max = 20;

const Row& row_of(Rule rule) { return rows[static_cast<std::size_t>(rule)]; }

}  // namespace

std::string_view name_of(Rule rule) { return row_of(rule).name; }
std::string_view meaning_of(Rule rule) { return row_of(rule).meaning; }

bool is_judged_in(Rule rule, std::string_view scenario) {
    const Where where = scenario == "rpc"     ? rpc
                        : scenario == "bulk"  ? bulk
                        : scenario == "group" ? group
                                              : bcast;
    return (row_of(rule).where & where) != 0;
}

void Verdict::broke(Rule rule, const std::string& seen) {
    ++tallies_[static_cast<std::size_t>(rule)].broken;
    if (broken_.size() < broken_max) broken_.push_back(std::string(name_of(rule)) + ": " + seen);
    // Taken first: it may judge.
    if (const auto witness = std::exchange(witness_, nullptr)) witness();
}

}  // namespace weft::tool
