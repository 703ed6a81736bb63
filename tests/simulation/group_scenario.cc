// Collectives over a group with members that die, pause, restart, leave and join in the middle of
// them: which outcomes their origins get, once, and which ranks these name.
#include <algorithm>

#include "base/codec.h"
#include "simulation/group_ledger.h"
#include "simulation/group_member_collectives.h"
#include "simulation/group_nested.h"
#include "simulation/group_stage.h"

namespace weft::scenarios {

namespace {

constexpr MethodId do_method("sim.Group/Do");
constexpr Duration group_calm = 25s;  // Longer than the usual deadlines.
// A rank without a parent cancels its subtree within that time, one level after the other.
constexpr Duration group_drain = 25s;
constexpr Duration member_collectives_drain = 5s;  // After the rounds without faults.
constexpr Duration stale_drain = 5s;
constexpr std::uint64_t enduring_max = 4;
constexpr Duration endless = 100s;
constexpr std::uint32_t collectives_a_seed = 12;

// The first bytes of a value.
std::vector<std::byte> bytes_of(std::uint64_t value, std::size_t size) {
    std::vector<std::byte> bytes(size);
    std::copy_n(reinterpret_cast<const std::byte*>(&value), size, bytes.begin());
    return bytes;
}

Status append(std::vector<std::byte>& into, ByteView from) {
    into.insert(into.end(), from.begin(), from.end());
    return {};
}

class GroupScenario : private GroupStage {
  public:
    GroupScenario(std::uint64_t seed, const SimOptions& options);
    ~GroupScenario() { stop_all(); }
    SimRun run();

  private:
    void execute(const std::shared_ptr<Call>& call, std::uint32_t rank, std::uint32_t life);
    void answer(const std::shared_ptr<Call>& call, CollectiveRecord& record, std::uint32_t rank);

    void plan();
    void plan_collectives();
    void plan_faults();
    void plan_changes();
    void plan_endurance();
    void begin_collective(const std::string& origin, bool is_stuck);
    CollectiveRecord choose(const std::string& origin, const GroupView& view, bool is_stuck);
    void send(CollectiveRecord& record, const Group& group);
    void cancel_in(Duration time, CollectiveRecord& record, const Group& group, CollectiveId id);
    void complete(CollectiveRecord& record, GroupOutcome outcome);
    GroupScene conditions_of(const std::string& origin) const;

    void watch();
    void let_end();
    void validate_end();

    GroupLedger ledger_{results_};
    GroupMemberCollectives member_collectives_{*this};
    GroupNested nested_{*this};
    std::vector<TimePoint> begins_;  // When collectives begin.
};

GroupScenario::GroupScenario(std::uint64_t seed, const SimOptions& options)
    : GroupStage(seed, options) {
    serve([this](MethodRegistrar& registrar, std::uint32_t rank, std::uint32_t life) {
        registrar.add(do_method,
                      [this, rank, life](Call call) {
                          execute(std::make_shared<Call>(std::move(call)), rank, life);
                      },
                      {.collective = true, .merge = &append});
    });
    start_hosts();
}

void GroupScenario::execute(const std::shared_ptr<Call>& call, std::uint32_t rank,
                            std::uint32_t life) {
    const ByteView body = call->request();
    const auto number = body.size() >= 8 ? base::load<std::uint64_t>(body.data()) : ~0ull;
    CollectiveRecord* const record = ledger_.executes(number, rank, life, body);
    if (!record) return call->reply({});
    if (record->stuck == rank) {
        call->on_cancel([call] { call->fail(fail(Code::aborted, "was held")); });
        return;
    }
    const Duration takes = duty_of(number, rank).takes;
    if (takes == Duration::zero()) return answer(call, *record, rank);
    simulation().in(takes, [this, call, record, rank, life] {
        const std::string name = name_of(rank);
        if (!is_alive(name, life)) return;
        simulation().act_as(name, [&] { answer(call, *record, rank); });
    });
}

void GroupScenario::answer(const std::shared_ptr<Call>& call, CollectiveRecord& record,
                           std::uint32_t rank) {
    const Duty duty = duty_of(record.number, rank);
    if (duty.fails) return call->fail(fail(Code::aborted, "a planned failure"));
    record.answered.insert(rank);
    call->reply(record.kind == Kind::in_order ? bytes_of(rank, sizeof(std::uint32_t))
                                              : bytes_of(duty.value, sizeof duty.value));
}

// ---- collectives -------------------------------------------------------------------------------

CollectiveRecord GroupScenario::choose(const std::string& origin, const GroupView& view,
                                       bool stuck) {
    CollectiveRecord record;
    record.kind = static_cast<Kind>(below(kinds));
    record.origin = origin;
    record.origin_life = simulation().starts(origin);
    record.submitted = now();
    const Duration timeout = stuck           ? 500ms + random_time(2s)
                             : below(4) == 0 ? 200ms + random_time(2s)
                                             : 12s;
    record.deadline = record.submitted + timeout;
    record.epoch_known = view.epoch();
    if (!stuck && below(4) == 0) {
        record.policy = below(2) == 0 ? Policy::quorum : Policy::best_effort;
        if (record.policy == Policy::quorum && below(2) == 0) record.quorum = 1;
    }
    const auto some = [&](std::uint32_t most) {
        RankSet ranks;
        for (std::uint64_t i = 1 + below(most); i > 0; --i) {
            const Member& member = view.at(static_cast<std::uint32_t>(below(view.size())));
            ranks.add(member.rank);
        }
        return ranks;
    };
    if (below(4) == 0) record.include = some(view.size());
    if (below(4) == 0) record.exclude = some(view.size() / 4 + 1);
    const std::vector<std::uint32_t> in = participants(view, record.include, record.exclude);
    if (!in.empty() && (stuck || below(10) == 0)) record.stuck = in[below(in.size())];
    // Its origin cancels it, or dies and leaves it orphaned.
    if (record.stuck && !stuck) {
        record.deadline = record.submitted + endless;
        record.policy = Policy::all;
    }
    return record;
}

void GroupScenario::begin_collective(const std::string& origin, bool stuck) {
    if (!is_awake(origin)) return;
    const Group group = group_of(origin);
    CollectiveRecord chosen = choose(origin, group.view(), stuck);
    if (participants(group.view(), chosen.include, chosen.exclude).empty()) return;
    send(ledger_.begin(std::move(chosen)), group);
}

// A scatter names its ranks one by one.
static void name_all(CollectiveRecord& record, const GroupView& view) {
    RankSet named;
    for (const std::uint32_t rank : participants(view, record.include, record.exclude)) {
        named.add(rank);
    }
    record.include = std::move(named);
    record.exclude = {};
}

void GroupScenario::send(CollectiveRecord& record, const Group& group) {
    note(GroupLedger::describe(record) + " begins, for " +
         std::to_string((record.deadline - now()) / 1ms) + " ms");
    if (record.kind == Kind::scatter) name_all(record, group.view());
    GroupCallOptions options;
    options.timeout = record.deadline - now();
    options.policy = record.policy;
    options.quorum = record.quorum;
    if (record.include) options.include = &*record.include;
    options.exclude = &record.exclude;
    options.topology = any_topology();
    if (record.kind == Kind::sum) options.reduction.operation = Reduction::Operation::sum;
    if (record.kind == Kind::in_order) {
        options.reduction = {.operation = Reduction::Operation::method, .ordered = true};
        options.merge = &append;
    }
    const auto done = [this, &record](GroupOutcome outcome) {
        complete(record, std::move(outcome));
    };
    CollectiveId id = 0;
    if (record.kind == Kind::scatter) {
        options.include = options.exclude = nullptr;
        std::vector<std::vector<std::byte>> bodies;
        std::vector<std::uint32_t> ranks;
        for (const RankSet::Range& range : record.include->ranges()) {
            for (std::uint32_t rank = range.first; rank <= range.last; ++rank) {
                ranks.push_back(rank);
                bodies.push_back(bytes_of(record.number, 8));
                const std::vector<std::byte> own = bytes_of(rank, 8);
                bodies.back().insert(bodies.back().end(), own.begin(), own.end());
            }
        }
        std::vector<RankBody> views;
        for (std::size_t i = 0; i < ranks.size(); ++i) views.push_back({ranks[i], bodies[i]});
        id = group.scatter(do_method, views, options, done);
    } else {
        id = group.collective(do_method, BodyWriter::of(bytes_of(record.number, 8)), options, done);
    }
    record.is_submitting = false;
    const bool is_endless = record.deadline - record.submitted == endless;
    if (is_endless || (!record.stuck && below(12) == 0)) {
        cancel_in(random_time(is_endless ? 3s : 100ms), record, group, id);
    }
}

void GroupScenario::cancel_in(Duration time, CollectiveRecord& record, const Group& group,
                              CollectiveId id) {
    simulation().in(time, [this, &record, group, id] {
        if (record.is_complete || !is_alive(record.origin, record.origin_life)) return;
        if (!is_awake(record.origin)) return cancel_in(watch_every, record, group, id);
        record.cancelled = now();
        group.cancel(id);
    });
}

void GroupScenario::complete(CollectiveRecord& record, GroupOutcome outcome) {
    if (!is_alive(record.origin, record.origin_life)) {
        record.origin_died = true;
        return;
    }
    ledger_.completes(record, std::move(outcome), conditions_of(record.origin));
    if (!record.outcome.status.ok()) note(GroupLedger::describe(record));
}

GroupScene GroupScenario::conditions_of(const std::string& origin) const {
    GroupScene conditions;
    conditions.now = now();
    conditions.running_since = running_since(origin);
    conditions.epoch_last = truth().epoch();
    conditions.views = &views();
    conditions.was_sound = [this](std::uint32_t rank) {
        return !was_struck(rank) && !has_left(rank);
    };
    conditions.was_down_since = [this](std::uint32_t rank, TimePoint since) {
        const auto at = down_since(rank);
        return at && *at < since;
    };
    conditions.was_calm_since = [this](TimePoint since) { return last_fault_or_change_ < since; };
    const std::optional<std::uint32_t> rank = rank_of(origin);
    conditions.is_checked =
        !is_wild() && (rank ? !was_struck(*rank) : conditions.running_since == TimePoint{});
    return conditions;
}

// ---- a run -------------------------------------------------------------------------------------

void GroupScenario::plan_collectives() {
    for (std::uint32_t i = 0; i < collectives_a_seed; ++i) {
        const Duration at = any_moment();
        begins_.push_back(now() + at);
        simulation().in(at, [this] {
            const std::string origin = any_origin();
            if (!simulation().is_up(origin)) return;
            simulation().act_as(origin, [&] { begin_collective(origin, is_stuck()); });
        });
    }
}

// While a collective is under way, mostly within its first moments.
void GroupScenario::plan_faults() {
    const std::uint32_t least = std::max(1u, ranks() / 100);
    for (std::uint64_t i = least + below(least + 3); i > 0; --i) {
        const TimePoint begin = begins_[below(begins_.size())];
        const auto rank = static_cast<std::uint32_t>(below(ranks()));
        simulation().in(begin - now() + random_time(below(2) == 0 ? 100us : 500ms),
                        [this, rank] { strike(rank); });
    }
}

void GroupScenario::plan_changes() {
    for (std::uint64_t i = below(4); i > 0; --i) {
        const TimePoint begin = begins_[below(begins_.size())];
        simulation().in(begin - now() + random_time(50ms), [this] { change(); });
    }
}

void GroupScenario::plan_endurance() {
    for (std::uint64_t i = 1 + below(enduring_max); i > 0; --i) {
        const TimePoint begin = begins_[below(begins_.size())];
        simulation().in(begin - now() + random_time(1ms), [this] { endure(); });
    }
}

void GroupScenario::plan() {
    plan_collectives();
    if (!is_stuck() && !is_wild()) plan_faults();
    if (!is_stuck()) plan_changes();
    if (endurance() > 0s) plan_endurance();
    member_collectives_.plan();
    nested_.plan();
}

void GroupScenario::watch() {
    validate_bounds();
    simulation().in(watch_every, [this] {
        if (!is_over()) watch();
    });
}

void GroupScenario::validate_end() {
    ledger_.close([this](const std::string& origin) { return conditions_of(origin); });
    nested_.close();
    validate_none_left(Rule::collectives_are_back, [](api::RuntimeImpl& impl) {
        return impl.collectives.running() + impl.collectives.member_collectives().running();
    });
    validate_calls();
    validate_rest();
}

void GroupScenario::let_end() {
    const TimePoint end = now() + group_calm + endurance();
    const auto is_settled = [this] {
        return ledger_.open() == 0 && paused_.empty() && nested_.is_settled() &&
               member_collectives_.is_settled();
    };
    while (now() < end && !is_settled()) simulation().run_for(watch_every);
    if (endurance() > 0s) simulation().run_for(stale_drain);  // Messages in its queues are read.
    make_whole();
    const TimePoint whole = now();
    // After faults of links it is unknown which connections are left.
    if (is_wild()) simulation().run_for(group_drain);
    member_collectives_.run_after_faults();
    member_collectives_.close();
    simulation().run_for(std::max(whole + group_drain - now(), member_collectives_drain));
    expire_sessions();
}

SimRun GroupScenario::run() {
    plan();
    if (is_wild()) begin_faults();
    watch();
    simulation().run_for(fault_period);
    let_end();
    validate_end();
    return report(ledger_.all().size(),
                  ledger_.hash() ^ member_collectives_.hash() ^ nested_.hash());
}

}  // namespace

SimRun run_group_scenario(std::uint64_t seed, const SimOptions& options) {
    return GroupScenario(seed, options).run();
}

}  // namespace weft::scenarios
