#include "sim/rules.h"

#include <array>

namespace weft::tool {

namespace {

struct Row {
    Rule rule;
    std::string_view name;
    std::string_view meaning;
};

constexpr std::array<Row, rules_count> rows{{
    {Rule::completes_once, "completes-once", "a call completes once and never again"},
    {Rule::completes_later, "completes-later", "no completion runs inside the call that began it"},
    {Rule::completes_in_time, "completes-in-time",
     "a call completes at most 10 ms after its deadline"},
    {Rule::completes_after_death, "completes-after-death",
     "a call to who can't be reached completes within 3 s"},
    {Rule::cancel_completes, "cancel-completes", "a cancelled call completes within 10 ms"},
    {Rule::reply_is_own, "reply-is-own", "a reply is that of its request"},
    {Rule::effect_fits_code, "effect-fits-code", "OK means applied"},
    {Rule::stage_fits_effect, "stage-fits-effect", "what was never sent has no effect"},
    {Rule::executes_once, "executes-once", "a method that is not idempotent runs at most once"},
    {Rule::executes_wanted, "executes-wanted", "nothing runs that nobody asked for"},
    {Rule::executes_here, "executes-here", "a request runs on the server it was for"},
    {Rule::starts_in_time, "starts-in-time", "no handler starts after its deadline"},
    {Rule::cancel_reaches_handler, "cancel-reaches-handler",
     "a handler hears that its call was cancelled, once"},
    {Rule::moves_all_or_fails, "moves-all-or-fails", "a transfer that says OK moved every byte"},
    {Rule::moves_nothing_else, "moves-nothing-else", "a put writes inside of its range only"},
    {Rule::nothing_after_fence, "nothing-after-fence",
     "memory is its owner's alone after its fence, and no transfer begins there"},
    {Rule::fence_comes, "fence-comes", "a closed region is fenced within 14 s"},
    {Rule::ok_was_executed, "ok-was-executed", "what said OK has run"},
    {Rule::none_was_not_executed, "none-was-not-executed", "what said effect none never ran"},
    {Rule::applied_was_executed, "applied-was-executed", "what said effect applied has run"},
    {Rule::all_complete, "all-complete", "after healing every call comes to its end"},
    {Rule::all_answer_again, "all-answer-again", "after healing every server answers everyone"},
    {Rule::calls_are_back, "calls-are-back", "no call is left in flight"},
    {Rule::handlers_are_back, "handlers-are-back", "no call is left in a handler"},
    {Rule::queues_are_empty, "queues-are-empty", "no frame waits"},
    {Rule::transfers_are_back, "transfers-are-back", "no transfer is left"},
    {Rule::no_late_access, "no-late-access", "no memory is touched after its fence"},
}};

constexpr bool is_in_order() {
    for (std::size_t i = 0; i < rows.size(); ++i) {
        if (static_cast<std::size_t>(rows[i].rule) != i) return false;
    }
    return true;
}
static_assert(is_in_order());

constexpr std::size_t broken_max = 20;

}  // namespace

std::string_view name_of(Rule rule) { return rows[static_cast<std::size_t>(rule)].name; }
std::string_view meaning_of(Rule rule) { return rows[static_cast<std::size_t>(rule)].meaning; }

void Verdict::broke(Rule rule, const std::string& seen) {
    if (broken_.size() < broken_max) broken_.push_back(std::string(name_of(rule)) + ": " + seen);
}

}  // namespace weft::tool
