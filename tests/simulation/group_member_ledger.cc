#include "simulation/group_member_ledger.h"

#include <algorithm>
#include <unordered_map>

#include "base/codec.h"
#include "simulation/group_stage.h"

namespace weft::scenarios {

static constexpr Duration late_max = 1s;
// An attempt's number is a digit of a sum: in base 256, so that a value that counts twice shows.
static constexpr std::uint32_t digits_a_number = 8;

Attempt& MemberCollectiveLedger::begins(NamedCollective& of, std::uint32_t rank,
                                        std::uint32_t life) {
    Attempt& attempt = all_.emplace_back();
    attempt.of = &of;
    attempt.rank = rank;
    attempt.life = life;
    attempt.number = ++of.attempts[rank];
    return attempt;
}

std::string MemberCollectiveLedger::describe(const Attempt& attempt) {
    static constexpr const char* names[] = {"barrier", "list", "sum"};
    std::string text = "member collective '" + attempt.of->name + "' (" +
                       names[static_cast<std::size_t>(attempt.of->input)] + "), attempt " +
                       std::to_string(attempt.number) + " of rank" + std::to_string(attempt.rank);
    if (attempt.is_done) text += ": " + attempt.status.to_string();
    return text;
}

std::vector<std::byte> MemberCollectiveLedger::value_of(const Attempt& attempt) {
    std::vector<std::byte> value;
    if (attempt.of->input == NamedCollective::Input::list) {
        value.resize(3 * sizeof(std::uint32_t));
        const std::uint32_t words[] = {attempt.of->number, attempt.rank, attempt.number};
        std::copy_n(reinterpret_cast<const std::byte*>(words), value.size(), value.begin());
    } else if (attempt.of->input == NamedCollective::Input::sum) {
        value.resize((attempt.of->ranks + digits_a_number - 1) / digits_a_number * digits_a_number);
        value[attempt.rank] = static_cast<std::byte>(attempt.number);
    }
    return value;
}

// Values by rank; each must be one that its rank contributed.
MemberCollectiveLedger::Values MemberCollectiveLedger::values_in(const Attempt& attempt,
                                                                 const GroupOutcome& outcome) {
    const NamedCollective& of = *attempt.of;
    Values values;
    if (of.input == NamedCollective::Input::nothing) return values;
    const bool is_list = of.input == NamedCollective::Input::list;
    bool is_right = true;
    for (const RankOutcome& one : outcome.ranks) {
        if (!one.status.ok()) continue;
        std::uint32_t number = 0;
        if (!is_list) {
            const bool is_there = one.rank < outcome.merged.size();
            if (is_there) number = static_cast<std::uint32_t>(outcome.merged[one.rank]);
        } else if (one.reply.size() == 3 * sizeof(std::uint32_t) &&
                   base::load<std::uint32_t>(one.reply.data()) == of.number &&
                   base::load<std::uint32_t>(one.reply.data() + 4) == one.rank) {
            number = base::load<std::uint32_t>(one.reply.data() + 8);
        }
        is_right &= one.rank < of.ranks && number >= 1 && number <= of.attempts[one.rank];
        values.emplace_back(one.rank, number);
    }
    if (!is_list) {  // Of no other rank.
        const auto brought = static_cast<std::size_t>(
            std::count_if(outcome.merged.begin(), outcome.merged.end(),
                          [](std::byte digit) { return digit != std::byte{0}; }));
        is_right &= brought == values.size();
    }
    results_.hold(is_right, is_list ? Rule::reply_is_own : Rule::merged_once,
                  [&] { return describe(attempt) + ": the values of other members"; });
    return values;
}

// Each rank of its view once, with this attempt's own value.
void MemberCollectiveLedger::validate_all_ok(const Attempt& attempt, const GroupOutcome& outcome,
                                             const Values& values,
                                             const std::map<std::uint64_t, GroupView>& views) {
    const NamedCollective& of = *attempt.of;
    std::vector<std::uint32_t> got;
    for (const RankOutcome& one : outcome.ranks) {
        if (one.status.ok()) got.push_back(one.rank);
    }
    const auto view = views.find(outcome.epoch);
    const bool is_known = view != views.end();
    const bool is_all = is_known && got.size() == outcome.ranks.size() &&
                        got == participants(view->second, of.include, of.exclude);
    const std::pair<std::uint32_t, std::uint32_t> own{attempt.rank, attempt.number};
    const bool is_in = of.input == NamedCollective::Input::nothing
                           ? std::binary_search(got.begin(), got.end(), attempt.rank)
                           : std::binary_search(values.begin(), values.end(), own);
    results_.hold(is_all && is_in, Rule::gather_has_own_value, [&] {
        return describe(attempt) + ": OK with " + std::to_string(got.size()) + " of " +
               std::to_string(outcome.ranks.size()) + " ranks in epoch " +
               std::to_string(outcome.epoch) + (is_in ? "" : ", not with its own");
    });
}

// Results with OK that have a value in common must be equal.
void MemberCollectiveLedger::validate_agreement(Attempt& attempt, const GroupOutcome& outcome,
                                                Values values) {
    NamedCollective& of = *attempt.of;
    std::string bytes(reinterpret_cast<const char*>(&outcome.epoch), sizeof outcome.epoch);
    for (const RankOutcome& one : outcome.ranks) {
        bytes += std::to_string(one.rank) + (one.status.ok() ? "+" : "-");
        bytes.append(reinterpret_cast<const char*>(one.reply.data()), one.reply.size());
    }
    bytes.append(reinterpret_cast<const char*>(outcome.merged.data()), outcome.merged.size());
    const auto next = static_cast<std::uint32_t>(of.results.size() + 1);
    const auto [at, is_new] = of.unequal.emplace(std::move(bytes), next);
    attempt.result = at->second;
    if (values.empty()) {
        if (is_new) of.results.emplace_back();
        return;
    }
    bool is_alike = true;
    if (is_new) {
        for (const Values& other : of.results) {
            Values common;
            std::set_intersection(values.begin(), values.end(), other.begin(), other.end(),
                                  std::back_inserter(common));
            is_alike &= common.empty();
        }
        of.results.push_back(std::move(values));
    }
    results_.hold(is_alike, Rule::gather_results_agree, [&] {
        return describe(attempt) + ", epoch " + std::to_string(outcome.epoch) +
               ": another result with the same values differs";
    });
}

void MemberCollectiveLedger::completes(Attempt& attempt, const GroupOutcome& outcome, TimePoint now,
                                       TimePoint running_since, bool calm,
                                       const std::map<std::uint64_t, GroupView>& views) {
    const auto seen = [&] { return describe(attempt); };
    const bool is_once = !attempt.is_done && !attempt.is_calling;
    attempt.is_done = true;
    attempt.ended = now;
    attempt.status = outcome.status;
    const TimePoint due = saturating_add(std::max(attempt.deadline, running_since), late_max);
    results_.hold(is_once && now <= due, Rule::gather_ends_in_time, seen);
    trace_.mix(attempt.of->number * 4096 + attempt.rank);
    trace_.mix(static_cast<std::uint64_t>(outcome.status.code()));
    results_.hold(outcome.status.ok() || !calm, Rule::gather_completes, seen);
    if (!outcome.status.ok()) return;
    for (const RankOutcome& one : outcome.ranks) {
        const bool has_come = one.rank < attempt.of->ranks && attempt.of->attempts[one.rank] > 0;
        results_.hold(!one.status.ok() || has_come, Rule::gather_completes,
                      [&] { return seen() + ", with rank " + std::to_string(one.rank); });
    }
    Values values = values_in(attempt, outcome);
    if (attempt.of->takes_all()) validate_all_ok(attempt, outcome, values, views);
    validate_agreement(attempt, outcome, std::move(values));
}

void MemberCollectiveLedger::close(const Attempt& attempt, bool is_alive) {
    if (!is_alive) return;
    results_.hold(attempt.is_done, Rule::gather_ends_in_time,
                  [&] { return describe(attempt) + " never ended"; });
}

}  // namespace weft::scenarios
