#include "sim/ledger.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/codec.h"
#include "sim/times.h"

namespace weft::tool {

// What the wire's microseconds round off.
static constexpr Duration rounding = 10us;

static constexpr const char* work_names[works] = {"add",   "read",    "later",  "nested",
                                                  "large", "failing", "refused"};

std::string Ledger::describe(std::uint64_t number) const {
    const Deed& deed = deeds_[number];
    const auto ms = [](TimePoint at) { return std::to_string(at.time_since_epoch() / 1ms); };
    std::string text = "call " + std::to_string(number) + " (" +
                       work_names[static_cast<std::size_t>(deed.work)] + ") of " + deed.client +
                       " to " + deed.server + ", submitted at " + ms(deed.submitted) +
                       " ms, deadline " + ms(deed.deadline) + " ms, ran " +
                       std::to_string(deed.executions) + " times";
    if (deed.answered != never) text += ", answered at " + ms(deed.answered) + " ms";
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
    heard_.emplace(deed.client, deed.client_life, server);
    trace_.mix(number << 8 | 1);
    verdict_.hold(deed.executions == 1 || deed.work == Work::read, Rule::executes_once,
                  [&] { return describe(number); });
    verdict_.hold(deed.server == server, Rule::executes_here,
                  [&] { return describe(number) + ", on " + server; });
    verdict_.hold(now < deadline, Rule::starts_in_time, [&] { return describe(number); });
    const TimePoint latest = saturating_add(deed.deadline, now - deed.submitted + rounding);
    verdict_.hold(saturating_add(deadline, rounding) >= deed.deadline && deadline <= latest,
                  Rule::deadline_is_carried, [&] {
                      return describe(number) + ", told " +
                             std::to_string(deadline.time_since_epoch() / 1us) + " us";
                  });
    return true;
}

void Ledger::answers(std::uint64_t number, const Status& answer, TimePoint now) {
    Deed& deed = deeds_[number];
    if (deed.answered != never) return;
    deed.answered = now;
    deed.answer = answer;
}

void Ledger::hears_of_cancel(std::uint64_t number, const Scene& scene) {
    Deed& deed = deeds_[number];
    ++deed.cancel_notices;
    if (deed.answered == never) deed.heard = scene.now;
    verdict_.hold(deed.cancel_notices == 1, Rule::cancel_reaches_handler,
                  [&] { return describe(number); });
    verdict_.hold(is_given_up(deed, scene.now) || !scene.is_whole, Rule::cancel_has_cause,
                  [&] { return describe(number); });
}

// By who began it, or with the call in whose handler it was begun.
TimePoint Ledger::cancelled_at(const Deed& deed) const {
    if (!deed.parent) return deed.cancelled;
    const TimePoint heard = deeds_[*deed.parent].heard;
    return heard == never ? deed.cancelled
                          : std::min(deed.cancelled, std::max(heard, deed.submitted));
}

bool Ledger::is_given_up(const Deed& deed, TimePoint now) const {
    return deed.is_complete || deed.client_died || deed.cancelled != never ||
           now >= deed.deadline || (deed.parent && is_given_up(deeds_[*deed.parent], now));
}

void Ledger::has_given_up(std::uint64_t number, bool is_judged) {
    const Deed& deed = deeds_[number];
    if (!is_judged || deed.executions == 0 || deed.answered != never) return;
    verdict_.hold(deed.cancel_notices == 1, Rule::cancel_arrives,
                  [&] { return describe(number) + ", still in its handler"; });
}

static bool is_untouched(const Status& status) {
    return status.stage() == Stage::none || status.stage() == Stage::queued ||
           status.stage() == Stage::resolving;
}

void Ledger::completes(std::uint64_t number, const Status& status, bool is_own_reply,
                       const Scene& scene) {
    Deed& deed = deeds_[number];
    const auto seen = [&] { return describe(number); };
    verdict_.hold(!deed.is_complete, Rule::completes_once, seen);
    // Without memory for a record nothing is left to wait with.
    const bool has_record = status.code() != Code::resource_exhausted || !status.peer().empty();
    verdict_.hold(!deed.is_submitting || !has_record, Rule::completes_later, seen);
    deed.is_complete = true;
    deed.completed = scene.now;
    deed.status = status;
    trace_.mix(number << 8 | static_cast<std::uint64_t>(status.code()));
    trace_.mix(static_cast<std::uint64_t>(scene.now.time_since_epoch().count()));

    judge_times(verdict_,
                {deed.submitted, deed.deadline, cancelled_at(deed), scene.now, scene.awake_since,
                 scene.apart_since},
                seen);
    if (status.ok()) verdict_.hold(is_own_reply, Rule::reply_is_own, seen);
    judge_effect(deed, number);
    if (!status.ok()) judge_failure(deed, number, scene);
    judge_arrival(deed, number, scene);
}

void Ledger::judge_effect(const Deed& deed, std::uint64_t number) {
    const auto seen = [&] { return describe(number); };
    const Status& status = deed.status;
    if (status.ok())
        verdict_.hold(status.effect() == Effect::applied, Rule::effect_fits_code, seen);
    if (!status.ok() && is_untouched(status)) {
        verdict_.hold(status.effect() == Effect::none, Rule::stage_fits_effect, seen);
    }
    if (status.ok()) verdict_.hold(deed.answered <= deed.completed, Rule::reply_has_cause, seen);
    // A large reply can fail after its handler's answer.
    if (status.ok() || status.stage() != Stage::executing || is_large(deed.work, number)) return;
    verdict_.hold(deed.answered <= deed.completed, Rule::reply_has_cause, seen);
    verdict_.hold(status.code() == deed.answer.code(), Rule::failure_is_answer, seen);
    if (deed.work != Work::failing && deed.work != Work::refused) return;
    verdict_.hold(status.effect() == deed.answer.effect(), Rule::failure_is_answer, seen);
}

// Whether a failure that weft found itself can be what it says. That of a nested call is passed on.
void Ledger::judge_failure(const Deed& deed, std::uint64_t number, const Scene& scene) {
    const auto seen = [&] { return describe(number); };
    const Status& status = deed.status;
    const bool is_passed_on = deed.answered != never && status.code() == deed.answer.code();
    // A server forgets a session 10 s after its client was lost: a call that is told so was sent
    // before, or by a client that had stood still and did not know of it yet.
    constexpr Duration unnoticed_max = 3s;
    const bool is_old = scene.now - deed.submitted >= session_memory ||
                        (scene.awake_since != TimePoint::min() && scene.awake_since != never &&
                         deed.submitted - scene.awake_since < unnoticed_max);
    const bool is_forgotten = status.code() == Code::aborted && status.stage() == Stage::sent &&
                              status.effect() == Effect::unknown && is_old;
    verdict_.hold(is_passed_on || is_forgotten || is_possible(status.code(), scene),
                  Rule::code_is_possible, seen);
    if (!is_passed_on && status.stage() == Stage::sent) judge_forgotten(deed, number);
    switch (status.code()) {
        case Code::deadline_exceeded:
            verdict_.hold(saturating_add(scene.now, rounding) >= deed.deadline,
                          Rule::deadline_is_over, seen);
            break;
        case Code::cancelled:
            verdict_.hold(is_passed_on || deed.cancelled != never ||
                              (deed.parent && is_given_up(deeds_[*deed.parent], scene.now)),
                          Rule::cancel_was_asked, seen);
            break;
        case Code::resource_exhausted:
            // Else the server says so, or a large body can't be fetched.
            if (is_passed_on || !is_untouched(status) || is_large(deed.work, number)) break;
            if (status.stage() != Stage::queued && !status.peer().empty()) break;
            verdict_.hold(scene.now - std::max(deed.submitted, scene.awake_since) <= 1ms &&
                              status.effect() == Effect::none,
                          Rule::full_is_told_at_once, seen);
            break;
        case Code::unavailable:
            verdict_.hold(!status.peer().empty(), Rule::failure_names_peer, seen);
            break;
        default: break;
    }
}

// A session that never came to be was not forgotten: what was sent by it is sent again.
void Ledger::judge_forgotten(const Deed& deed, std::uint64_t number) {
    const bool is_heard = heard_.contains({deed.client, deed.client_life, deed.server});
    verdict_.hold(is_heard || deed.status.code() != Code::aborted, Rule::unheard_is_sent_again,
                  [&] { return describe(number); });
}

void Ledger::is_shown(const std::string& owner, const std::string& reader, ByteView memory) {
    // A packet that was damaged on its way here may have changed one word: two in a row count.
    std::optional<std::uint64_t> foreign, before;
    for (std::size_t at = 0; at + 8 <= memory.size() && !foreign; at += 8) {
        auto number = call_in(base::load<std::uint64_t>(memory.data() + at));
        if (number && *number >= deeds_.size()) number.reset();
        const Deed* const deed = number ? &deeds_[*number] : nullptr;
        const bool is_foreign = deed && deed->client != reader && deed->server != reader;
        if (is_foreign && number == before) foreign = number;
        before = is_foreign ? number : std::nullopt;
    }
    verdict_.hold(!foreign, Rule::nothing_foreign_is_shown,
                  [&] { return owner + " shows " + reader + " bytes of " + describe(*foreign); });
}

// Where nothing broke there are two ways not to be answered: to give up, and to run out of time.
void Ledger::judge_arrival(const Deed& deed, std::uint64_t number, const Scene& scene) {
    if (!scene.is_whole || deed.cancelled != never) return;
    // Its handler's call was given up, and it with that.
    if (deed.parent && is_given_up(deeds_[*deed.parent], scene.now)) return;
    const auto seen = [&] { return describe(number); };
    const Code code = deed.status.code();
    const bool is_answer = deed.answered != never && code == deed.answer.code();
    const bool is_late = saturating_add(scene.now, rounding) >= deed.deadline;
    verdict_.hold(is_answer || is_late, Rule::answer_arrives, seen);
    if (!scene.is_calm) return;
    // Who has not started is late from the beginning, who has not answered owes nothing yet.
    if (deed.executions > 0 && deed.answered == never) return;
    const TimePoint from = deed.answered != never ? deed.answered : deed.submitted;
    const TimePoint limit = is_answer ? scene.now : deed.deadline;
    verdict_.hold(limit <= saturating_add(from, prompt_max), Rule::answer_is_prompt, seen);
}

void Ledger::is_open(std::uint64_t number, const Scene& scene) {
    const Deed& deed = deeds_[number];
    judge_times(verdict_,
                {deed.submitted, deed.deadline, cancelled_at(deed), scene.now, scene.awake_since,
                 scene.apart_since},
                [&] { return describe(number) + ", still open"; });
}

std::uint64_t Ledger::open() const {
    return static_cast<std::uint64_t>(
        std::count_if(deeds_.begin(), deeds_.end(),
                      [](const Deed& deed) { return !deed.is_complete && !deed.client_died; }));
}

void Ledger::close() {
    std::array<std::uint64_t, code_max + 1> outcomes{};
    std::uint64_t died = 0;
    for (std::uint64_t number = 0; number < deeds_.size(); ++number) {
        const Deed& deed = deeds_[number];
        const auto seen = [&] { return describe(number); };
        verdict_.hold(deed.is_complete || deed.client_died, Rule::all_complete, seen);
        if (!deed.is_complete) {
            died += deed.client_died;
            continue;
        }
        ++outcomes[static_cast<std::size_t>(deed.status.code())];
        judge_executions(deed, number);
    }
    const std::uint64_t ended = std::accumulate(outcomes.begin(), outcomes.end(), died);
    verdict_.hold(ended == deeds_.size(), Rule::outcomes_balance, [&] {
        return std::to_string(deeds_.size()) + " were begun, " + std::to_string(ended) + " ended";
    });
}

void Ledger::judge_executions(const Deed& deed, std::uint64_t number) {
    const auto seen = [&] { return describe(number); };
    if (deed.status.ok()) {
        verdict_.hold(deed.executions > 0, Rule::ok_was_executed, seen);
        if (deed.work == Work::later) {
            verdict_.hold(deed.cancel_notices == 0, Rule::ok_was_not_cancelled, seen);
        }
    }
    // A method may say of itself that it did nothing.
    const bool is_judge_of_itself = deed.work == Work::refused;
    switch (deed.status.effect()) {
        case Effect::applied:
            verdict_.hold(deed.executions > 0, Rule::applied_was_executed, seen);
            break;
        case Effect::none:
            if (is_judge_of_itself) break;
            verdict_.hold(deed.executions == 0, Rule::none_was_not_executed, seen);
            break;
        case Effect::unknown: break;
    }
}

}  // namespace weft::tool
