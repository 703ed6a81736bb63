#include "sim/group_ledger.h"

#include <algorithm>

#include "base/codec.h"
#include "sim/group_stage.h"

namespace weft::tool {

// From that time on there is enough of it for whatever has to be found out on the way.
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

std::string GroupLedger::describe(const Told& told) {
    static constexpr const char* names[] = {"list", "sum", "in order", "scatter"};
    std::string text = "collective " + std::to_string(told.number) + " (" +
                       names[static_cast<std::size_t>(told.kind)] + ") of " + told.origin;
    if (told.is_complete) text += ": " + told.outcome.status.to_string();
    return text;
}

Told* GroupLedger::executes(std::uint64_t number, std::uint32_t rank, std::uint32_t life,
                            ByteView body) {
    const bool is_known = number < all_.size();
    verdict_.hold(is_known, Rule::executes_wanted, [&] { return "one that nobody began"; });
    if (!is_known) return nullptr;
    Told& told = *all_[number];
    const auto seen = [&] {
        return describe(told) + " on rank " + std::to_string(rank) + ", life " +
               std::to_string(life);
    };
    const std::uint32_t times = ++told.executions[{rank, life}];
    verdict_.hold(times == 1, Rule::runs_once_a_life, seen);
    const bool is_out =
        told.exclude.contains(rank) || (told.include && !told.include->contains(rank));
    verdict_.hold(!is_out, Rule::those_take_part, seen);
    if (told.kind == Kind::scatter) {
        const bool is_own = body.size() == 16 && base::load<std::uint64_t>(body.data() + 8) == rank;
        verdict_.hold(is_own, Rule::executes_here, seen);
    }
    return &told;
}

void GroupLedger::completes(Told& told, GroupOutcome outcome, const GroupScene& scene) {
    const auto seen = [&] { return describe(told); };
    verdict_.hold(!told.is_complete, Rule::completes_once, seen);
    verdict_.hold(!told.is_submitting, Rule::completes_later, seen);
    told.is_complete = true;
    told.outcome = std::move(outcome);
    const TimePoint due = std::max(told.deadline, scene.awake_since);
    verdict_.hold(due == never || scene.now <= due + complete_late_max, Rule::completes_in_time,
                  seen);
    if (told.cancelled != never) {
        const TimePoint from = std::max(told.cancelled, scene.awake_since);
        verdict_.hold(scene.now <= from + complete_late_max, Rule::cancel_completes, seen);
    }
    judge_ranks(told, scene);
    judge_merged(told);
    judge_verdict(told);
    trace_.mix(told.number);
    trace_.mix(static_cast<std::uint64_t>(told.outcome.status.code()));
    for (const RankOutcome& one : told.outcome.ranks) {
        trace_.mix(one.rank * 64 + static_cast<std::uint64_t>(one.status.code()));
    }
}

// One outcome for each that takes part, in a view that was valid.
void GroupLedger::judge_ranks(const Told& told, const GroupScene& scene) {
    const auto seen = [&] {
        return describe(told) + ", epoch " + std::to_string(told.outcome.epoch) + ", " +
               std::to_string(told.outcome.ranks.size()) + " ranks";
    };
    const bool is_valid =
        told.outcome.epoch >= told.epoch_known && told.outcome.epoch <= scene.epoch_last;
    verdict_.hold(is_valid, Rule::view_is_known, seen);
    if (!is_valid) return;
    const GroupView& view = scene.views->at(told.outcome.epoch);
    std::vector<std::uint32_t> wanted = participants(view, told.include, told.exclude);
    std::vector<std::uint32_t> got;
    for (const RankOutcome& one : told.outcome.ranks) got.push_back(one.rank);
    if (wanted.empty()) return;
    // Who is named and has left by then is told to be no member.
    for (const RankOutcome& one : told.outcome.ranks) {
        const bool is_named = told.include && told.include->contains(one.rank);
        if (view.find(one.rank) || !is_named || one.status.code() != Code::not_found) continue;
        wanted.insert(std::lower_bound(wanted.begin(), wanted.end(), one.rank), one.rank);
    }
    verdict_.hold(got == wanted, Rule::those_take_part, seen);
    for (const RankOutcome& one : told.outcome.ranks) judge_rank(told, one, scene);
}

static bool has_run(const Told& told, std::uint32_t rank) {
    const auto at = told.executions.lower_bound({rank, 0});
    return at != told.executions.end() && at->first.first == rank;
}

void GroupLedger::judge_rank(const Told& told, const RankOutcome& one, const GroupScene& scene) {
    const auto seen = [&] {
        return describe(told) + ": rank " + std::to_string(one.rank) + ": " +
               one.status.to_string();
    };
    if (one.status.ok()) {
        verdict_.hold(has_run(told, one.rank) && told.answered.count(one.rank),
                      Rule::ok_was_executed, seen);
        judge_reply(told, one);
    }
    if (scene.was_down_since(one.rank, told.submitted)) {
        verdict_.hold(!one.status.ok(), Rule::dead_are_named, seen);
    }
    // By any policy: so few collectives, whatever stands still, leave room for others. Before it is
    // sent the memory of the sender may be exhausted.
    const bool is_refused =
        one.status.code() == Code::resource_exhausted && one.status.stage() >= Stage::sent;
    verdict_.hold(!is_refused, Rule::living_are_reached, seen);
    const bool is_waited_for = told.policy == Policy::all && told.cancelled == never;
    if (!scene.is_judged || !is_waited_for || !scene.was_sound(one.rank)) return;
    const Duty duty = duty_of(told.number, one.rank);
    if (told.stuck == one.rank) {
        verdict_.hold(one.status.code() == Code::deadline_exceeded, Rule::late_is_named, seen);
        return;
    }
    const Duration given = told.deadline - told.submitted;
    const bool has_time = given >= ample || (scene.was_calm_since(told.submitted - 5s) &&
                                             given >= 200ms && duty.takes <= given / 4);
    if (!has_time) return;
    verdict_.hold(one.status.ok() || (duty.fails && one.status.code() == Code::aborted),
                  told.stuck ? Rule::late_is_named : Rule::living_are_reached, seen);
}

void GroupLedger::judge_reply(const Told& told, const RankOutcome& one) {
    const bool is_list = told.kind == Kind::list || told.kind == Kind::scatter;
    const std::uint64_t value = duty_of(told.number, one.rank).value;
    const bool is_own = is_list ? one.reply.size() == sizeof value &&
                                      base::load<std::uint64_t>(one.reply.data()) == value
                                : one.reply.empty();
    verdict_.hold(is_own, Rule::reply_is_own, [&] {
        return describe(told) + ": the reply of rank " + std::to_string(one.rank);
    });
}

// Of those that succeeded, each once.
void GroupLedger::judge_merged(const Told& told) {
    const auto seen = [&] {
        return describe(told) + ": " + std::to_string(told.outcome.merged.size()) + " bytes";
    };
    const std::vector<std::byte>& merged = told.outcome.merged;
    std::uint64_t sum = 0;
    std::vector<std::uint32_t> order;
    for (const RankOutcome& one : told.outcome.ranks) {
        if (!one.status.ok()) continue;
        sum += duty_of(told.number, one.rank).value;
        order.push_back(one.rank);
    }
    bool is_right = merged.empty();
    if (told.kind == Kind::sum && !order.empty()) {
        is_right = merged.size() == sizeof sum && base::load<std::uint64_t>(merged.data()) == sum;
    } else if (told.kind == Kind::in_order) {
        const auto* const raw = reinterpret_cast<const std::byte*>(order.data());
        is_right = std::equal(merged.begin(), merged.end(), raw, raw + order.size() * 4);
    }
    verdict_.hold(is_right, Rule::merged_once, seen);
}

void GroupLedger::judge_verdict(const Told& told) {
    const auto ok = static_cast<std::uint64_t>(
        std::count_if(told.outcome.ranks.begin(), told.outcome.ranks.end(),
                      [](const RankOutcome& one) { return one.status.ok(); }));
    const std::uint64_t all = told.outcome.ranks.size();
    bool is_ok = true;
    if (told.policy == Policy::all) is_ok = ok == all;
    if (told.policy == Policy::quorum) is_ok = ok >= (told.quorum ? told.quorum : all / 2 + 1);
    verdict_.hold(told.outcome.status.ok() == is_ok, Rule::verdict_fits, [&] {
        return describe(told) + " with " + std::to_string(ok) + " of " + std::to_string(all);
    });
}

std::uint64_t GroupLedger::open() const {
    return static_cast<std::uint64_t>(std::count_if(all_.begin(), all_.end(), [](const auto& told) {
        return !told->is_complete && !told->origin_died;
    }));
}

// Of ranks that it was not waited for.
void GroupLedger::judge_rest(const Told& told, const GroupScene& scene) {
    const bool is_delivered =
        scene.is_judged && told.cancelled == never && told.deadline - told.submitted >= ample;
    if (!is_delivered) return;
    for (const RankOutcome& one : told.outcome.ranks) {
        if (one.status.code() != Code::unknown || !scene.was_sound(one.rank)) continue;
        verdict_.hold(has_run(told, one.rank), Rule::rest_is_delivered,
                      [&] { return describe(told) + ": rank " + std::to_string(one.rank); });
    }
}

void GroupLedger::close(const std::function<GroupScene(const std::string& origin)>& scene_of) {
    for (const auto& told : all_) {
        verdict_.hold(told->is_complete || told->origin_died, Rule::all_complete,
                      [&] { return describe(*told); });
        if (told->is_complete && !told->origin_died) judge_rest(*told, scene_of(told->origin));
        for (const RankOutcome& one : told->outcome.ranks) {
            if (one.status.effect() != Effect::none) continue;
            verdict_.hold(!has_run(*told, one.rank), Rule::none_was_not_executed, [&] {
                return describe(*told) + ": rank " + std::to_string(one.rank) + ": " +
                       one.status.to_string();
            });
        }
    }
}

}  // namespace weft::tool
