// The invariants that scenarios judge by, and what broke of them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft::tool {

enum class Rule : std::uint8_t {
    // Calls, at each completion.
    completes_once,
    completes_later,
    completes_in_time,
    completes_after_death,
    cancel_completes,
    reply_is_own,
    effect_fits_code,
    stage_fits_effect,
    // Handlers, whenever one starts or ends.
    executes_once,
    executes_wanted,
    executes_here,
    starts_in_time,
    cancel_reaches_handler,
    // Transfers and regions.
    moves_all_or_fails,
    moves_nothing_else,
    nothing_after_fence,
    fence_comes,
    // At the end, of each call.
    ok_was_executed,
    none_was_not_executed,
    applied_was_executed,
    // After healing.
    all_complete,
    all_answer_again,
    calls_are_back,
    handlers_are_back,
    queues_are_empty,
    transfers_are_back,
    no_late_access,
};
std::string_view name_of(Rule rule);
std::string_view meaning_of(Rule rule);
inline constexpr std::size_t rules_count = static_cast<std::size_t>(Rule::no_late_access) + 1;

// What broke in one run; the first few of it.
class Verdict {
  public:
    // `seen()` is asked only when it broke.
    template <class Seen>
    void hold(bool good, Rule rule, Seen&& seen) {
        if (!good) [[unlikely]]
            broke(rule, seen());
    }
    const std::vector<std::string>& broken() const { return broken_; }

  private:
    void broke(Rule rule, const std::string& seen);

    std::vector<std::string> broken_;
};

}  // namespace weft::tool
