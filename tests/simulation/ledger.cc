#include "simulation/ledger.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/codec.h"
#include "simulation/times.h"

namespace weft::scenarios {

// The rounding to microseconds on the wire.
static constexpr Duration rounding = 10us;

static constexpr const char* work_names[works] = {"add",   "read",    "later",   "nested",
                                                  "large", "failing", "refused", "elsewhere"};

std::string Ledger::describe(std::uint64_t number) const {
    const CallRecord& record = records_[number];
    const auto ms = [](TimePoint at) { return std::to_string(at.time_since_epoch() / 1ms); };
    std::string text = "call " + std::to_string(number) + " (" +
                       work_names[static_cast<std::size_t>(record.work)] + ") of " + record.client +
                       " to " + record.server + ", submitted at " + ms(record.submitted) +
                       " ms, deadline " + ms(record.deadline) + " ms, ran " +
                       std::to_string(record.executions) + " times";
    if (record.answered != never) text += ", answered at " + ms(record.answered) + " ms";
    if (record.is_complete)
        text += ", ended at " + ms(record.completed) + " ms with " +
                (record.status.ok() ? "OK" : record.status.to_string());
    return text;
}

bool Ledger::on_execute(std::uint64_t number, const std::string& server, unsigned context,
                        TimePoint now, TimePoint deadline) {
    results_.hold(number < records_.size(), Rule::executes_requested,
                  [&] { return "number " + std::to_string(number) + " ran on " + server; });
    if (number >= records_.size()) return false;
    CallRecord& record = records_[number];
    ++record.executions;
    heard_.emplace(record.client, record.client_life, server);
    trace_.mix(number << 8 | 1);
    results_.hold(record.executions == 1 || record.work == Work::read, Rule::executes_once,
                  [&] { return describe(number); });
    results_.hold(record.server == server, Rule::executes_at_target,
                  [&] { return describe(number) + ", on " + server; });
    if (record.pinned) {
        results_.hold(context == *record.pinned, Rule::pinned_runs_there,
                      [&] { return describe(number) + ", on context " + std::to_string(context); });
    }
    results_.hold(now < deadline, Rule::starts_in_time, [&] { return describe(number); });
    const TimePoint latest = saturating_add(record.deadline, now - record.submitted + rounding);
    results_.hold(saturating_add(deadline, rounding) >= record.deadline && deadline <= latest,
                  Rule::deadline_is_carried, [&] {
                      return describe(number) + ", received deadline " +
                             std::to_string(deadline.time_since_epoch() / 1us) + " us";
                  });
    return true;
}

void Ledger::on_reply(std::uint64_t number, const Status& answer, TimePoint now) {
    CallRecord& record = records_[number];
    if (record.answered != never) return;
    record.answered = now;
    record.answer = answer;
}

void Ledger::on_cancel_notice(std::uint64_t number, const Conditions& conditions) {
    CallRecord& record = records_[number];
    ++record.cancel_notices;
    if (record.answered == never) record.heard = conditions.now;
    results_.hold(record.cancel_notices == 1, Rule::cancel_reaches_handler,
                  [&] { return describe(number); });
    results_.hold(was_given_up(record, conditions.now) || !conditions.is_whole,
                  Rule::cancel_has_cause, [&] { return describe(number); });
}

// By its caller, or with the call of the handler that began it.
TimePoint Ledger::cancelled_at(const CallRecord& record) const {
    if (!record.parent) return record.cancelled;
    const TimePoint heard = records_[*record.parent].heard;
    return heard == never ? record.cancelled
                          : std::min(record.cancelled, std::max(heard, record.submitted));
}

bool Ledger::was_given_up(const CallRecord& record, TimePoint now) const {
    return record.is_complete || record.client_died || record.cancelled != never ||
           now >= record.deadline || (record.parent && was_given_up(records_[*record.parent], now));
}

void Ledger::on_caller_gave_up(std::uint64_t number, bool is_checked) {
    const CallRecord& record = records_[number];
    if (!is_checked || record.executions == 0 || record.answered != never) return;
    results_.hold(record.cancel_notices == 1, Rule::cancel_arrives,
                  [&] { return describe(number) + ", still in its handler"; });
}

static bool is_untouched(const Status& status) {
    return status.stage() == Stage::none || status.stage() == Stage::queued ||
           status.stage() == Stage::resolving;
}

void Ledger::on_complete(std::uint64_t number, const Status& status, bool is_own_reply,
                         const Conditions& conditions) {
    CallRecord& record = records_[number];
    const auto seen = [&] { return describe(number); };
    results_.hold(!record.is_complete, Rule::completes_once, seen);
    // Without memory for a record the call fails inside its submission.
    const bool has_record = status.code() != Code::resource_exhausted || !status.peer().empty();
    results_.hold(!record.is_submitting || !has_record, Rule::completes_later, seen);
    record.is_complete = true;
    record.completed = conditions.now;
    record.status = status;
    trace_.mix(number << 8 | static_cast<std::uint64_t>(status.code()));
    trace_.mix(static_cast<std::uint64_t>(conditions.now.time_since_epoch().count()));

    validate_times(results_,
                   {record.submitted, record.deadline, cancelled_at(record), conditions.now,
                    conditions.running_since, conditions.unreachable_since},
                   seen);
    if (status.ok()) results_.hold(is_own_reply, Rule::reply_is_own, seen);
    validate_effect(record, number);
    if (!status.ok()) validate_failure(record, number, conditions);
    validate_arrival(record, number, conditions);
}

void Ledger::validate_effect(const CallRecord& record, std::uint64_t number) {
    const auto seen = [&] { return describe(number); };
    const Status& status = record.status;
    if (status.ok())
        results_.hold(status.effect() == Effect::applied, Rule::effect_fits_code, seen);
    if (!status.ok() && is_untouched(status)) {
        results_.hold(status.effect() == Effect::none, Rule::stage_fits_effect, seen);
    }
    if (status.ok())
        results_.hold(record.answered <= record.completed, Rule::reply_has_cause, seen);
    // A large reply can fail after its handler has replied.
    if (status.ok() || status.stage() != Stage::executing || is_large(record.work, number)) return;
    results_.hold(record.answered <= record.completed, Rule::reply_has_cause, seen);
    results_.hold(status.code() == record.answer.code(), Rule::handler_failure_arrives, seen);
    if (record.work != Work::failing && record.work != Work::refused) return;
    results_.hold(status.effect() == record.answer.effect(), Rule::handler_failure_arrives, seen);
}

// Refused, because the server does not have the wanted context.
static bool is_elsewhere(const CallRecord& record) {
    return record.pinned && record.status.code() == Code::out_of_range;
}

// Whether the server did not have the wanted context: in a life during the call, or before, as a
// welcome of that life may arrive late.
bool Ledger::was_without(const CallRecord& record) const {
    constexpr Duration welcome_late_max = 3s;
    const auto found = lives_.find(record.server);
    if (found == lives_.end()) return false;
    const std::vector<Life>& lives = found->second;
    for (std::size_t i = 0; i < lives.size(); ++i) {
        const bool is_over =
            i + 1 < lives.size() &&
            saturating_add(lives[i + 1].since, welcome_late_max) < record.submitted;
        if (!is_over && lives[i].contexts <= *record.pinned) return true;
    }
    return false;
}

// Whether a failure that weft detected is possible. That of a nested call is passed on.
void Ledger::validate_failure(const CallRecord& record, std::uint64_t number,
                              const Conditions& conditions) {
    const auto seen = [&] { return describe(number); };
    const Status& status = record.status;
    const bool is_passed_on = record.answered != never && status.code() == record.answer.code();
    // A server forgets a session 10 s after its client was lost. A call that fails for that was
    // sent before, or by a client that had been paused and did not know of the loss yet.
    constexpr Duration unnoticed_max = 3s;
    const bool is_old =
        conditions.now - record.submitted >= session_memory ||
        (conditions.running_since != TimePoint::min() && conditions.running_since != never &&
         record.submitted - conditions.running_since < unnoticed_max);
    const bool is_forgotten = status.code() == Code::aborted && status.stage() == Stage::sent &&
                              status.effect() == Effect::unknown && is_old;
    results_.hold(is_passed_on || is_forgotten || is_elsewhere(record) ||
                      is_possible(status.code(), conditions),
                  Rule::code_is_possible, seen);
    if (!is_passed_on && status.stage() == Stage::sent) validate_forgotten(record, number);
    switch (status.code()) {
        case Code::deadline_exceeded:
            results_.hold(saturating_add(conditions.now, rounding) >= record.deadline,
                          Rule::deadline_is_over, seen);
            break;
        case Code::cancelled:
            results_.hold(
                is_passed_on || record.cancelled != never ||
                    (record.parent && was_given_up(records_[*record.parent], conditions.now)),
                Rule::cancel_was_requested, seen);
            break;
        case Code::resource_exhausted:
            // Otherwise the server returned it, or a large body can't be fetched.
            if (is_passed_on || !is_untouched(status) || is_large(record.work, number)) break;
            if (status.stage() != Stage::queued && !status.peer().empty()) break;
            results_.hold(
                conditions.now - std::max(record.submitted, conditions.running_since) <= 1ms &&
                    status.effect() == Effect::none,
                Rule::overload_fails_at_once, seen);
            break;
        case Code::out_of_range: {
            // Sent to a former life of the server, it may have run there.
            const bool is_effect_known =
                status.effect() == Effect::none || status.stage() == Stage::sent;
            results_.hold(is_passed_on || (is_effect_known && was_without(record)),
                          Rule::pinned_runs_there, seen);
            break;
        }
        case Code::unavailable:
            results_.hold(!status.peer().empty(), Rule::failure_names_peer, seen);
            break;
        default: break;
    }
}

// A session that was never set up was not forgotten: its calls are sent again.
void Ledger::validate_forgotten(const CallRecord& record, std::uint64_t number) {
    const bool is_heard = heard_.contains({record.client, record.client_life, record.server});
    results_.hold(is_heard || record.status.code() != Code::aborted, Rule::unreceived_is_resent,
                  [&] { return describe(number); });
}

void Ledger::on_memory_shown(const std::string& owner, const std::string& reader, ByteView memory) {
    // A packet that was damaged on its way may have changed one word: two in a row count.
    std::optional<std::uint64_t> foreign, before;
    for (std::size_t at = 0; at + 8 <= memory.size() && !foreign; at += 8) {
        auto number = call_in(base::load<std::uint64_t>(memory.data() + at));
        if (number && *number >= records_.size()) number.reset();
        const CallRecord* const record = number ? &records_[*number] : nullptr;
        const bool is_foreign = record && record->client != reader && record->server != reader;
        if (is_foreign && number == before) foreign = number;
        before = is_foreign ? number : std::nullopt;
    }
    results_.hold(!foreign, Rule::no_foreign_bytes_readable,
                  [&] { return owner + " shows " + reader + " bytes of " + describe(*foreign); });
}

// Without a fault there are two ways to get no reply: a cancel, and the deadline.
void Ledger::validate_arrival(const CallRecord& record, std::uint64_t number,
                              const Conditions& conditions) {
    if (!conditions.is_whole || record.cancelled != never) return;
    // Its handler's call was cancelled, and this call with that.
    if (record.parent && was_given_up(records_[*record.parent], conditions.now)) return;
    const auto seen = [&] { return describe(number); };
    const Code code = record.status.code();
    const bool is_answer =
        is_elsewhere(record) || (record.answered != never && code == record.answer.code());
    const bool is_late = saturating_add(conditions.now, rounding) >= record.deadline;
    results_.hold(is_answer || is_late, Rule::reply_arrives, seen);
    if (!conditions.is_calm) return;
    // A call that has not started is late from its submission; a running handler owes no reply yet.
    if (record.executions > 0 && record.answered == never) return;
    const TimePoint from = record.answered != never ? record.answered : record.submitted;
    const TimePoint limit = is_answer ? conditions.now : record.deadline;
    results_.hold(limit <= saturating_add(from, prompt_max), Rule::reply_is_prompt, seen);
}

void Ledger::is_open(std::uint64_t number, const Conditions& conditions) {
    const CallRecord& record = records_[number];
    validate_times(results_,
                   {record.submitted, record.deadline, cancelled_at(record), conditions.now,
                    conditions.running_since, conditions.unreachable_since},
                   [&] { return describe(number) + ", still open"; });
}

std::uint64_t Ledger::open() const {
    return static_cast<std::uint64_t>(std::count_if(
        records_.begin(), records_.end(),
        [](const CallRecord& record) { return !record.is_complete && !record.client_died; }));
}

void Ledger::close() {
    std::array<std::uint64_t, code_max + 1> outcomes{};
    std::uint64_t died = 0;
    for (std::uint64_t number = 0; number < records_.size(); ++number) {
        const CallRecord& record = records_[number];
        const auto seen = [&] { return describe(number); };
        results_.hold(record.is_complete || record.client_died, Rule::all_complete, seen);
        if (!record.is_complete) {
            died += record.client_died;
            continue;
        }
        ++outcomes[static_cast<std::size_t>(record.status.code())];
        validate_executions(record, number);
    }
    const std::uint64_t ended = std::accumulate(outcomes.begin(), outcomes.end(), died);
    results_.hold(ended == records_.size(), Rule::outcomes_balance, [&] {
        return std::to_string(records_.size()) + " were begun, " + std::to_string(ended) + " ended";
    });
}

void Ledger::validate_executions(const CallRecord& record, std::uint64_t number) {
    const auto seen = [&] { return describe(number); };
    if (record.status.ok()) {
        results_.hold(record.executions > 0, Rule::ok_was_executed, seen);
        if (is_notified(record.work)) {
            results_.hold(record.cancel_notices == 0, Rule::ok_was_not_cancelled, seen);
        }
    }
    // A method may report that it did nothing.
    const bool is_judge_of_itself = record.work == Work::refused;
    switch (record.status.effect()) {
        case Effect::applied:
            results_.hold(record.executions > 0, Rule::applied_was_executed, seen);
            break;
        case Effect::none:
            if (is_judge_of_itself) break;
            results_.hold(record.executions == 0, Rule::none_was_not_executed, seen);
            break;
        case Effect::unknown: break;
    }
}

}  // namespace weft::scenarios
