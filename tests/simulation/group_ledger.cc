#include "simulation/group_ledger.h"

#include <algorithm>

#include "base/codec.h"
#include "simulation/group_stage.h"

namespace weft::scenarios {

// From that timeout on there is time for all detections on the way.
static constexpr Duration ample = 10s;
static constexpr Duration complete_late_max = 10ms;

Duty duty_of(std::uint64_t number, std::uint32_t rank) {
    base::TraceHash chance;
    chance.mix(number + 1);
    chance.mix(rank + 1);
    chance.mix(0x6772'6f75'70);
    const std::uint64_t drawn = chance.value();
    Duty duty;
    duty.fails = drawn % 61 == 0;
    duty.value = drawn % 1'000'003;
    const std::uint64_t share = drawn >> 32;
    if (drawn % 16 == 1) duty.takes = Duration(static_cast<std::int64_t>(share % 100'000'000));
    if (drawn % 97 == 2) duty.takes = Duration(static_cast<std::int64_t>(share % 3'000'000'000));
    return duty;
}

std::string GroupLedger::describe(const CollectiveRecord& record) {
    static constexpr const char* names[] = {"list", "sum", "in order", "scatter"};
    std::string text = "collective " + std::to_string(record.number) + " (" +
                       names[static_cast<std::size_t>(record.kind)] + ") of " + record.origin;
    if (record.is_complete) text += ": " + record.outcome.status.to_string();
    return text;
}

CollectiveRecord* GroupLedger::executes(std::uint64_t number, std::uint32_t rank,
                                        std::uint32_t life, ByteView body) {
    const bool is_known = number < all_.size();
    results_.hold(is_known, Rule::executes_requested,
                  [&] { return "a collective that no origin began"; });
    if (!is_known) return nullptr;
    CollectiveRecord& record = *all_[number];
    const auto seen = [&] {
        return describe(record) + " on rank " + std::to_string(rank) + ", life " +
               std::to_string(life);
    };
    const std::uint32_t times = ++record.executions[{rank, life}];
    results_.hold(times == 1, Rule::runs_at_most_once, seen);
    const bool is_out =
        record.exclude.contains(rank) || (record.include && !record.include->contains(rank));
    results_.hold(!is_out, Rule::participants_match, seen);
    if (record.kind == Kind::scatter) {
        const bool is_own = body.size() == 16 && base::load<std::uint64_t>(body.data() + 8) == rank;
        results_.hold(is_own, Rule::executes_at_target, seen);
    }
    return &record;
}

void GroupLedger::completes(CollectiveRecord& record, GroupOutcome outcome,
                            const GroupScene& conditions) {
    const auto seen = [&] { return describe(record); };
    results_.hold(!record.is_complete, Rule::completes_once, seen);
    results_.hold(!record.is_submitting, Rule::completes_later, seen);
    record.is_complete = true;
    record.outcome = std::move(outcome);
    const TimePoint due = std::max(record.deadline, conditions.running_since);
    results_.hold(due == never || conditions.now <= due + complete_late_max,
                  Rule::completes_in_time, seen);
    if (record.cancelled != never) {
        const TimePoint from = std::max(record.cancelled, conditions.running_since);
        results_.hold(conditions.now <= from + complete_late_max, Rule::cancel_completes, seen);
    }
    validate_ranks(record, conditions);
    validate_merged(record);
    validate_status(record);
    trace_.mix(record.number);
    trace_.mix(static_cast<std::uint64_t>(record.outcome.status.code()));
    for (const RankOutcome& one : record.outcome.ranks) {
        trace_.mix(one.rank * 64 + static_cast<std::uint64_t>(one.status.code()));
    }
}

// One outcome for each rank that takes part, in a view that was valid.
void GroupLedger::validate_ranks(const CollectiveRecord& record, const GroupScene& conditions) {
    const auto seen = [&] {
        return describe(record) + ", epoch " + std::to_string(record.outcome.epoch) + ", " +
               std::to_string(record.outcome.ranks.size()) + " ranks";
    };
    const bool is_valid =
        record.outcome.epoch >= record.epoch_known && record.outcome.epoch <= conditions.epoch_last;
    results_.hold(is_valid, Rule::view_is_known, seen);
    if (!is_valid) return;
    const GroupView& view = conditions.views->at(record.outcome.epoch);
    std::vector<std::uint32_t> wanted = participants(view, record.include, record.exclude);
    std::vector<std::uint32_t> got;
    for (const RankOutcome& one : record.outcome.ranks) got.push_back(one.rank);
    if (wanted.empty()) return;
    // An included rank that has left by then has NOT_FOUND.
    for (const RankOutcome& one : record.outcome.ranks) {
        const bool is_named = record.include && record.include->contains(one.rank);
        if (view.find(one.rank) || !is_named || one.status.code() != Code::not_found) continue;
        wanted.insert(std::lower_bound(wanted.begin(), wanted.end(), one.rank), one.rank);
    }
    results_.hold(got == wanted, Rule::participants_match, seen);
    for (const RankOutcome& one : record.outcome.ranks) validate_rank(record, one, conditions);
}

static bool has_run(const CollectiveRecord& record, std::uint32_t rank) {
    const auto at = record.executions.lower_bound({rank, 0});
    return at != record.executions.end() && at->first.first == rank;
}

void GroupLedger::validate_rank(const CollectiveRecord& record, const RankOutcome& one,
                                const GroupScene& conditions) {
    const auto seen = [&] {
        return describe(record) + ": rank " + std::to_string(one.rank) + ": " +
               one.status.to_string();
    };
    if (one.status.ok()) {
        results_.hold(has_run(record, one.rank) && record.answered.count(one.rank),
                      Rule::ok_was_executed, seen);
        validate_reply(record, one);
    }
    if (conditions.was_down_since(one.rank, record.submitted)) {
        results_.hold(!one.status.ok(), Rule::dead_ranks_fail, seen);
    }
    // Under any policy: so few collectives leave room for others, whichever ranks are paused.
    // Before the request is sent, its sender may lack memory.
    const bool is_refused =
        one.status.code() == Code::resource_exhausted && one.status.stage() >= Stage::sent;
    results_.hold(!is_refused, Rule::live_ranks_are_reached, seen);
    const bool is_waited_for = record.policy == Policy::all && record.cancelled == never;
    if (!conditions.is_checked || !is_waited_for || !conditions.was_sound(one.rank)) return;
    const Duty duty = duty_of(record.number, one.rank);
    if (record.stuck == one.rank) {
        results_.hold(one.status.code() == Code::deadline_exceeded, Rule::hung_rank_is_named, seen);
        return;
    }
    const Duration given = record.deadline - record.submitted;
    const bool has_time = given >= ample || (conditions.was_calm_since(record.submitted - 5s) &&
                                             given >= 200ms && duty.takes <= given / 4);
    if (!has_time) return;
    results_.hold(one.status.ok() || (duty.fails && one.status.code() == Code::aborted),
                  record.stuck ? Rule::hung_rank_is_named : Rule::live_ranks_are_reached, seen);
}

void GroupLedger::validate_reply(const CollectiveRecord& record, const RankOutcome& one) {
    const bool is_list = record.kind == Kind::list || record.kind == Kind::scatter;
    const std::uint64_t value = duty_of(record.number, one.rank).value;
    const bool is_own = is_list ? one.reply.size() == sizeof value &&
                                      base::load<std::uint64_t>(one.reply.data()) == value
                                : one.reply.empty();
    results_.hold(is_own, Rule::reply_is_own, [&] {
        return describe(record) + ": the reply of rank " + std::to_string(one.rank);
    });
}

// The value of the successful ranks, each once.
void GroupLedger::validate_merged(const CollectiveRecord& record) {
    const auto seen = [&] {
        return describe(record) + ": " + std::to_string(record.outcome.merged.size()) + " bytes";
    };
    const std::vector<std::byte>& merged = record.outcome.merged;
    std::uint64_t sum = 0;
    std::vector<std::uint32_t> order;
    for (const RankOutcome& one : record.outcome.ranks) {
        if (!one.status.ok()) continue;
        sum += duty_of(record.number, one.rank).value;
        order.push_back(one.rank);
    }
    bool is_right = merged.empty();
    if (record.kind == Kind::sum && !order.empty()) {
        is_right = merged.size() == sizeof sum && base::load<std::uint64_t>(merged.data()) == sum;
    } else if (record.kind == Kind::in_order) {
        const auto* const raw = reinterpret_cast<const std::byte*>(order.data());
        is_right = std::equal(merged.begin(), merged.end(), raw, raw + order.size() * 4);
    }
    results_.hold(is_right, Rule::merged_once, seen);
}

void GroupLedger::validate_status(const CollectiveRecord& record) {
    const auto ok = static_cast<std::uint64_t>(
        std::count_if(record.outcome.ranks.begin(), record.outcome.ranks.end(),
                      [](const RankOutcome& one) { return one.status.ok(); }));
    const std::uint64_t all = record.outcome.ranks.size();
    bool is_ok = true;
    if (record.policy == Policy::all) is_ok = ok == all;
    if (record.policy == Policy::quorum)
        is_ok = ok >= (record.quorum ? record.quorum : all / 2 + 1);
    results_.hold(record.outcome.status.ok() == is_ok, Rule::status_matches_policy, [&] {
        return describe(record) + " with " + std::to_string(ok) + " of " + std::to_string(all);
    });
}

std::uint64_t GroupLedger::open() const {
    return static_cast<std::uint64_t>(std::count_if(
        all_.begin(), all_.end(),
        [](const auto& record) { return !record->is_complete && !record->origin_died; }));
}

// Of ranks that it did not wait for.
void GroupLedger::validate_rest(const CollectiveRecord& record, const GroupScene& conditions) {
    const bool is_delivered = conditions.is_checked && record.cancelled == never &&
                              record.deadline - record.submitted >= ample;
    if (!is_delivered) return;
    for (const RankOutcome& one : record.outcome.ranks) {
        if (one.status.code() != Code::unknown || !conditions.was_sound(one.rank)) continue;
        results_.hold(has_run(record, one.rank), Rule::rest_is_delivered,
                      [&] { return describe(record) + ": rank " + std::to_string(one.rank); });
    }
}

void GroupLedger::close(const std::function<GroupScene(const std::string& origin)>& conditions_of) {
    for (const auto& record : all_) {
        results_.hold(record->is_complete || record->origin_died, Rule::all_complete,
                      [&] { return describe(*record); });
        if (record->is_complete && !record->origin_died)
            validate_rest(*record, conditions_of(record->origin));
        for (const RankOutcome& one : record->outcome.ranks) {
            if (one.status.effect() != Effect::none) continue;
            results_.hold(!has_run(*record, one.rank), Rule::none_was_not_executed, [&] {
                return describe(*record) + ": rank " + std::to_string(one.rank) + ": " +
                       one.status.to_string();
            });
        }
    }
}

}  // namespace weft::scenarios
