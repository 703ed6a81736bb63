#include "sim/ledger.h"

#include <algorithm>

#include "sim/times.h"

namespace weft::tool {

static constexpr const char* names[works] = {"add",   "read",    "later",  "nested",
                                             "large", "failing", "refused"};

std::string Ledger::describe(std::uint64_t number) const {
    const Deed& deed = deeds_[number];
    const auto ms = [](TimePoint at) { return std::to_string(at.time_since_epoch() / 1ms); };
    std::string text = "call " + std::to_string(number) + " (" +
                       names[static_cast<std::size_t>(deed.work)] + ") of " + deed.client + " to " +
                       deed.server + ", submitted at " + ms(deed.submitted) + " ms, deadline " +
                       ms(deed.deadline) + " ms, ran " + std::to_string(deed.executions) + " times";
    if (deed.is_complete)
        text += ", ended at " + ms(deed.completed) + " ms with " +
                (deed.status.ok() ? "OK" : deed.status.to_string());
    return text;
}

bool Ledger::executes(std::uint64_t number, const std::string& server, TimePoint now,
                      TimePoint deadline) {
    verdict_.hold(number < deeds_.size(), Rule::executes_wanted,
                  [&] { return "number " + std::to_string(number) + " ran on " + server; });
    if (number >= deeds_.size()) return false;
    Deed& deed = deeds_[number];
    ++deed.executions;
    trace_.mix(number << 8 | 1);
    verdict_.hold(deed.executions == 1 || deed.work == Work::read, Rule::executes_once,
                  [&] { return describe(number); });
    verdict_.hold(deed.server == server, Rule::executes_here,
                  [&] { return describe(number) + ", on " + server; });
    verdict_.hold(now < deadline, Rule::starts_in_time, [&] { return describe(number); });
    return true;
}

void Ledger::hears_of_cancel(std::uint64_t number) {
    ++deeds_[number].cancel_notices;
    verdict_.hold(deeds_[number].cancel_notices == 1, Rule::cancel_reaches_handler,
                  [&] { return describe(number); });
}

static bool is_untouched(const Status& status) {
    return status.stage() == Stage::none || status.stage() == Stage::queued ||
           status.stage() == Stage::resolving;
}

void Ledger::completes(std::uint64_t number, const Status& status, bool is_own_reply, TimePoint now,
                       TimePoint awake_since, TimePoint apart_since) {
    Deed& deed = deeds_[number];
    const auto seen = [&] { return describe(number); };
    verdict_.hold(!deed.is_complete, Rule::completes_once, seen);
    verdict_.hold(!deed.is_submitting, Rule::completes_later, seen);
    deed.is_complete = true;
    deed.completed = now;
    deed.status = status;
    trace_.mix(number << 8 | static_cast<std::uint64_t>(status.code()));
    trace_.mix(static_cast<std::uint64_t>(now.time_since_epoch().count()));

    judge_times(verdict_,
                {deed.submitted, deed.deadline, deed.cancelled, now, awake_since, apart_since},
                seen);
    verdict_.hold(!status.ok() || is_own_reply, Rule::reply_is_own, seen);
    verdict_.hold(!status.ok() || status.effect() == Effect::applied, Rule::effect_fits_code, seen);
    verdict_.hold(!is_untouched(status) || status.effect() == Effect::none, Rule::stage_fits_effect,
                  seen);
}

void Ledger::is_open(std::uint64_t number, TimePoint now, TimePoint awake_since,
                     TimePoint apart_since) {
    const Deed& deed = deeds_[number];
    judge_times(verdict_,
                {deed.submitted, deed.deadline, deed.cancelled, now, awake_since, apart_since},
                [&] { return describe(number) + ", still open"; });
}

std::uint64_t Ledger::open() const {
    return static_cast<std::uint64_t>(
        std::count_if(deeds_.begin(), deeds_.end(),
                      [](const Deed& deed) { return !deed.is_complete && !deed.client_died; }));
}

void Ledger::close() {
    for (std::uint64_t number = 0; number < deeds_.size(); ++number) {
        const Deed& deed = deeds_[number];
        const auto seen = [&] { return describe(number); };
        verdict_.hold(deed.is_complete || deed.client_died, Rule::all_complete, seen);
        if (!deed.is_complete) continue;
        const Effect effect = deed.status.effect();
        verdict_.hold(!deed.status.ok() || deed.executions > 0, Rule::ok_was_executed, seen);
        verdict_.hold(effect != Effect::applied || deed.executions > 0, Rule::applied_was_executed,
                      seen);
        verdict_.hold(effect != Effect::none || deed.executions == 0 || deed.work == Work::read,
                      Rule::none_was_not_executed, seen);
    }
}

}  // namespace weft::tool
