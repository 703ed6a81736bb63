// Collectives over a group whose members die, stand still, restart, leave and come, in the middle
// of them: who was told what, once, and who is named.
#include <algorithm>

#include "base/codec.h"
#include "sim/group_ledger.h"
#include "sim/group_meetings.h"
#include "sim/group_nested.h"
#include "sim/group_stage.h"

namespace weft::tool {

namespace {

constexpr MethodId do_method("sim.Group/Do");
constexpr Duration group_calm = 25s;  // The longest deadline, and a second more.
// Whom nobody asks any more gives up in that time; so, one after the other, do those below.
constexpr Duration group_settle = 25s;
constexpr Duration meetings_settle = 5s;  // After those without faults.
constexpr Duration stale_settle = 5s;
constexpr std::uint64_t enduring_most = 4;
constexpr Duration endless = 100s;
constexpr std::uint32_t collectives_a_seed = 12;

// Says what came of it: the rank, or what it was told to.
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
    void answer(const std::shared_ptr<Call>& call, Told& told, std::uint32_t rank);

    void plan();
    void plan_collectives();
    void plan_faults();
    void plan_changes();
    void plan_endurance();
    void begin_something(const std::string& origin, bool is_stuck);
    Told choose(const std::string& origin, const GroupView& view, bool is_stuck);
    void send(Told& told, const Group& group);
    void cancel_in(Duration time, Told& told, const Group& group, CollectiveId id);
    void complete(Told& told, GroupOutcome outcome);
    GroupScene scene_of(const std::string& origin) const;

    void watch();
    void let_end();
    void judge_end();

    GroupLedger ledger_{verdict_};
    GroupMeetings meetings_{*this};
    GroupNested nested_{*this};
    std::vector<TimePoint> begins_;  // Of collectives.
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
    Told* const told = ledger_.executes(number, rank, life, body);
    if (!told) return call->reply({});
    if (told->stuck == rank) {
        call->on_cancel([call] { call->fail(fail(Code::aborted, "was held")); });
        return;
    }
    const Duration takes = duty_of(number, rank).takes;
    if (takes == Duration::zero()) return answer(call, *told, rank);
    simulation().in(takes, [this, call, told, rank, life] {
        const std::string name = name_of(rank);
        if (!is_alive(name, life)) return;
        simulation().act_as(name, [&] { answer(call, *told, rank); });
    });
}

void GroupScenario::answer(const std::shared_ptr<Call>& call, Told& told, std::uint32_t rank) {
    const Duty duty = duty_of(told.number, rank);
    if (duty.fails) return call->fail(fail(Code::aborted, "as it was told"));
    told.answered.insert(rank);
    call->reply(told.kind == Kind::in_order ? bytes_of(rank, sizeof(std::uint32_t))
                                            : bytes_of(duty.value, sizeof duty.value));
}

// ---- collectives -------------------------------------------------------------------------------

Told GroupScenario::choose(const std::string& origin, const GroupView& view, bool stuck) {
    Told told;
    told.kind = static_cast<Kind>(below(kinds));
    told.origin = origin;
    told.origin_life = simulation().lives(origin);
    told.submitted = now();
    const Duration timeout = stuck           ? 500ms + random_time(2s)
                             : below(4) == 0 ? 200ms + random_time(2s)
                                             : 12s;
    told.deadline = told.submitted + timeout;
    told.epoch_known = view.epoch();
    if (!stuck && below(4) == 0) {
        told.policy = below(2) == 0 ? Policy::quorum : Policy::best_effort;
        if (told.policy == Policy::quorum && below(2) == 0) told.quorum = 1;
    }
    const auto some = [&](std::uint32_t most) {
        RankSet ranks;
        for (std::uint64_t i = 1 + below(most); i > 0; --i) {
            const Member& member = view.at(static_cast<std::uint32_t>(below(view.size())));
            ranks.add(member.rank);
        }
        return ranks;
    };
    if (below(4) == 0) told.include = some(view.size());
    if (below(4) == 0) told.exclude = some(view.size() / 4 + 1);
    const std::vector<std::uint32_t> in = participants(view, told.include, told.exclude);
    if (!in.empty() && (stuck || below(10) == 0)) told.stuck = in[below(in.size())];
    // It is cancelled, or, when whoever began it dies, forsaken.
    if (told.stuck && !stuck) {
        told.deadline = told.submitted + endless;
        told.policy = Policy::all;
    }
    return told;
}

void GroupScenario::begin_something(const std::string& origin, bool stuck) {
    if (!is_awake(origin)) return;
    const Group group = group_of(origin);
    Told chosen = choose(origin, group.view(), stuck);
    if (participants(group.view(), chosen.include, chosen.exclude).empty()) return;
    send(ledger_.begin(std::move(chosen)), group);
}

// A scatter names those who take part one by one.
static void name_all(Told& told, const GroupView& view) {
    RankSet named;
    for (const std::uint32_t rank : participants(view, told.include, told.exclude)) {
        named.add(rank);
    }
    told.include = std::move(named);
    told.exclude = {};
}

void GroupScenario::send(Told& told, const Group& group) {
    note(GroupLedger::describe(told) + " begins, for " +
         std::to_string((told.deadline - now()) / 1ms) + " ms");
    if (told.kind == Kind::scatter) name_all(told, group.view());
    GroupCallOptions options;
    options.timeout = told.deadline - now();
    options.policy = told.policy;
    options.quorum = told.quorum;
    if (told.include) options.include = &*told.include;
    options.exclude = &told.exclude;
    options.topology = any_topology();
    if (told.kind == Kind::sum) options.reduction.operation = Reduction::Operation::sum;
    if (told.kind == Kind::in_order) {
        options.reduction = {.operation = Reduction::Operation::method, .ordered = true};
        options.merge = &append;
    }
    const auto done = [this, &told](GroupOutcome outcome) { complete(told, std::move(outcome)); };
    CollectiveId id = 0;
    if (told.kind == Kind::scatter) {
        options.include = options.exclude = nullptr;
        std::vector<std::vector<std::byte>> bodies;
        std::vector<std::uint32_t> ranks;
        for (const RankSet::Range& range : told.include->ranges()) {
            for (std::uint32_t rank = range.first; rank <= range.last; ++rank) {
                ranks.push_back(rank);
                bodies.push_back(bytes_of(told.number, 8));
                const std::vector<std::byte> own = bytes_of(rank, 8);
                bodies.back().insert(bodies.back().end(), own.begin(), own.end());
            }
        }
        std::vector<RankBody> views;
        for (std::size_t i = 0; i < ranks.size(); ++i) views.push_back({ranks[i], bodies[i]});
        id = group.scatter(do_method, views, options, done);
    } else {
        id = group.collective(do_method, BodyWriter::of(bytes_of(told.number, 8)), options, done);
    }
    told.is_submitting = false;
    const bool is_endless = told.deadline - told.submitted == endless;
    if (is_endless || (!told.stuck && below(12) == 0)) {
        cancel_in(random_time(is_endless ? 3s : 100ms), told, group, id);
    }
}

void GroupScenario::cancel_in(Duration time, Told& told, const Group& group, CollectiveId id) {
    simulation().in(time, [this, &told, group, id] {
        if (told.is_complete || !is_alive(told.origin, told.origin_life)) return;
        if (!is_awake(told.origin)) return cancel_in(watch_every, told, group, id);
        told.cancelled = now();
        group.cancel(id);
    });
}

void GroupScenario::complete(Told& told, GroupOutcome outcome) {
    if (!is_alive(told.origin, told.origin_life)) {
        told.origin_died = true;
        return;
    }
    ledger_.completes(told, std::move(outcome), scene_of(told.origin));
    if (!told.outcome.status.ok()) note(GroupLedger::describe(told));
}

GroupScene GroupScenario::scene_of(const std::string& origin) const {
    GroupScene scene;
    scene.now = now();
    scene.awake_since = awake_since(origin);
    scene.epoch_last = truth().epoch();
    scene.views = &views();
    scene.was_sound = [this](std::uint32_t rank) { return !was_struck(rank) && !has_left(rank); };
    scene.was_down_since = [this](std::uint32_t rank, TimePoint since) {
        const auto at = down_since(rank);
        return at && *at < since;
    };
    scene.was_calm_since = [this](TimePoint since) { return stirred_ < since; };
    const std::optional<std::uint32_t> rank = rank_of(origin);
    scene.is_judged = !is_wild() && (rank ? !was_struck(*rank) : scene.awake_since == TimePoint{});
    return scene;
}

// ---- a run -------------------------------------------------------------------------------------

void GroupScenario::plan_collectives() {
    for (std::uint32_t i = 0; i < collectives_a_seed; ++i) {
        const Duration at = any_moment();
        begins_.push_back(now() + at);
        simulation().in(at, [this] {
            const std::string origin = any_origin();
            if (!simulation().is_up(origin)) return;
            simulation().act_as(origin, [&] { begin_something(origin, is_stuck()); });
        });
    }
}

// While something is under way, mostly within the first moments of it.
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
    for (std::uint64_t i = 1 + below(enduring_most); i > 0; --i) {
        const TimePoint begin = begins_[below(begins_.size())];
        simulation().in(begin - now() + random_time(1ms), [this] { endure(); });
    }
}

void GroupScenario::plan() {
    plan_collectives();
    if (!is_stuck() && !is_wild()) plan_faults();
    if (!is_stuck()) plan_changes();
    if (endurance() > 0s) plan_endurance();
    meetings_.plan();
    nested_.plan();
}

void GroupScenario::watch() {
    judge_bounds();
    simulation().in(watch_every, [this] {
        if (!is_over()) watch();
    });
}

void GroupScenario::judge_end() {
    ledger_.close([this](const std::string& origin) { return scene_of(origin); });
    nested_.close();
    judge_none_left(Rule::collectives_are_back, [](api::Node& node) {
        return node.collectives.running() + node.collectives.meetings().running();
    });
    judge_none_left(Rule::calls_are_back, [](api::Node& node) { return node.client.in_flight(); });
    judge_none_left(Rule::handlers_are_back,
                    [](api::Node& node) { return node.server.executing(); });
    judge_none_left(Rule::slots_are_back, [](api::Node& node) { return node.client.in_use(); });
    judge_rest();
}

void GroupScenario::let_end() {
    const TimePoint end = now() + group_calm + endurance();
    const auto is_settled = [this] {
        return ledger_.open() == 0 && paused_.empty() && nested_.is_settled() &&
               meetings_.is_settled();
    };
    while (now() < end && !is_settled()) simulation().run_for(watch_every);
    if (endurance() > 0s) simulation().run_for(stale_settle);  // What lay in its queues is read.
    make_whole();
    const TimePoint whole = now();
    // Where links were at fault, nobody knows which connections are left.
    if (is_wild()) simulation().run_for(group_settle);
    meetings_.meet_again();
    meetings_.close();
    simulation().run_for(std::max(whole + group_settle - now(), meetings_settle));
    let_sessions_go();
}

SimRun GroupScenario::run() {
    plan();
    if (is_wild()) begin_trouble();
    watch();
    simulation().run_for(trouble);
    let_end();
    judge_end();
    return report(ledger_.all().size(), ledger_.hash() ^ meetings_.hash() ^ nested_.hash());
}

}  // namespace

SimRun run_group_scenario(std::uint64_t seed, const SimOptions& options) {
    return GroupScenario(seed, options).run();
}

}  // namespace weft::tool
