// Collectives over a group whose members die, stand still, restart, leave and come, in the middle
// of them: who was told what, once, and who is named.
#include <algorithm>
#include <map>
#include <set>

#include <weft/service.h>

#include "base/assert.h"
#include "base/codec.h"
#include "sim/group_ledger.h"
#include "sim/stage.h"

namespace weft::tool {

namespace {

constexpr MethodId do_method("sim.Group/Do");
constexpr Duration group_calm = 25s;  // The longest deadline, and a second more.
// Whom nobody asks any more gives up in that time; so, one after the other, do those below.
constexpr Duration group_settle = 25s;
constexpr Duration endless = 100s;
constexpr std::uint32_t clients = 2;
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

class GroupScenario : private SimStage {
  public:
    GroupScenario(std::uint64_t seed, const SimOptions& options);
    ~GroupScenario() { stop_all(); }
    SimRun run();

  private:
    struct Process;

    std::shared_ptr<void> start_process(const std::string& name, Runtime& runtime);
    void execute(const std::shared_ptr<Call>& call, std::uint32_t rank, std::uint32_t life);
    void answer(const std::shared_ptr<Call>& call, Told& told, std::uint32_t rank);

    void plan();
    void plan_collectives();
    void plan_faults();
    void plan_changes();
    void plan_meeting();
    void begin_something(const std::string& origin, bool is_stuck);
    Told choose(const std::string& origin, const GroupView& view, bool is_stuck);
    void send(Told& told, const Group& group);
    void cancel_in(Duration time, Told& told, const Group& group, CollectiveId id);
    void complete(Told& told, GroupOutcome outcome);
    GroupScene scene_of(const std::string& origin) const;

    void strike(std::uint32_t rank);
    void come_back(std::uint32_t rank, std::uint32_t life);
    void change();
    void decide(const Result<GroupView>& view);
    void meet();
    void watch();
    void judge_end();

    // Seeds of that kind have faults of all sorts, links too: only what must never happen is
    // judged.
    bool is_wild() const { return seed_ % 4 == 3; }
    // Nothing dies; one handler never ends.
    bool is_stuck() const { return seed_ % 8 == 1; }
    static std::string name_of(std::uint32_t rank) { return "rank" + std::to_string(rank); }
    static std::optional<std::uint32_t> rank_of(const std::string& name) {
        if (name.rfind("rank", 0) != 0) return std::nullopt;
        return static_cast<std::uint32_t>(std::stoul(name.substr(4)));
    }
    std::string any_origin();
    // Runs, and does not stand still.
    bool is_awake(const std::string& name) const {
        return acts(name) && processes_.count(name) && !paused_.count(name);
    }

    const std::uint32_t ranks_;
    GroupLedger ledger_{verdict_};
    std::map<std::uint64_t, GroupView> views_;  // By epoch; the last one is the truth.
    std::vector<std::string> names_;
    std::map<std::string, Process*> processes_;  // Those that are up.
    std::vector<TimePoint> begins_;              // Of collectives.
    std::set<std::uint32_t> struck_;             // Ranks that something was wrong with.
    std::set<std::string> paused_;
    std::map<std::string, TimePoint> resumed_;
    std::map<std::uint32_t, TimePoint> down_since_;
    TimePoint stirred_ = TimePoint::min();  // When something went wrong or changed last.
    std::set<std::uint32_t> came_;          // To the meeting.
    bool is_over_ = false;
};

// ---- processes ---------------------------------------------------------------------------------

struct GroupScenario::Process : Service {
    Process(GroupScenario& of, std::string at, std::uint32_t in)
        : scenario(of), name(std::move(at)), life(in) {}
    ~Process() override {
        const auto at = scenario.processes_.find(name);
        if (at != scenario.processes_.end() && at->second == this) scenario.processes_.erase(at);
    }

    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(do_method,
                      [this](Call call) {
                          scenario.execute(std::make_shared<Call>(std::move(call)), *rank_of(name),
                                           life);
                      },
                      {.collective = true, .merge = &append});
    }

    GroupScenario& scenario;
    const std::string name;
    const std::uint32_t life;
    Group group;
};

GroupScenario::GroupScenario(std::uint64_t seed, const SimOptions& options)
    : SimStage(seed, options), ranks_(std::max(2u, options.nodes)) {
    std::vector<Member> members;
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
        members.push_back({rank, {"sim://" + name_of(rank)}, 1});
    }
    views_.emplace(1, GroupView::make("group", 1, std::move(members)).value());
    const auto program = [this](const std::string& name, Runtime& runtime) {
        return start_process(name, runtime);
    };
    names_ = add_hosts("rank", ranks_, program);
    for (const std::string& client : add_hosts("client", clients, program)) {
        names_.push_back(client);
    }
}

std::shared_ptr<void> GroupScenario::start_process(const std::string& name, Runtime& runtime) {
    auto process = std::make_shared<Process>(*this, name, simulation().lives(name));
    processes_[name] = process.get();
    const GroupView& view = views_.rbegin()->second;
    if (const auto rank = rank_of(name)) {
        Status status = runtime.add(*process);
        if (status.ok()) status = runtime.listen("sim://" + name);
        WEFT_ASSERT(status.ok());
        if (view.find(*rank)) {
            status = runtime.join(view, *rank);
            WEFT_ASSERT(status.ok());
        }
    }
    process->group = runtime.group(view).value();
    return process;
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

std::string GroupScenario::any_origin() {
    if (below(4) == 0) return "client" + std::to_string(below(clients));
    return name_of(static_cast<std::uint32_t>(below(ranks_)));
}

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
    const Group group = processes_.at(origin)->group;
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
    static constexpr Topology::Shape shapes[] = {Topology::Shape::automatic, Topology::Shape::k_ary,
                                                 Topology::Shape::k_nomial,
                                                 Topology::Shape::greedy};
    options.topology.shape = shapes[below(std::size(shapes))];
    options.topology.fanout = static_cast<std::uint8_t>(2 + below(15));
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
    if (chaos_) scene.awake_since = chaos_->awake_since(origin);
    const auto resumed = resumed_.find(origin);
    if (resumed != resumed_.end()) scene.awake_since = std::max(scene.awake_since, resumed->second);
    scene.epoch_last = views_.rbegin()->first;
    scene.views = &views_;
    const GroupView& truth = views_.rbegin()->second;
    scene.was_sound = [this, truth](std::uint32_t rank) {
        return !struck_.count(rank) && truth.find(rank);
    };
    scene.was_down_since = [this](std::uint32_t rank, TimePoint since) {
        const auto at = down_since_.find(rank);
        return at != down_since_.end() && at->second < since;
    };
    scene.was_calm_since = [this](TimePoint since) { return stirred_ < since; };
    const std::optional<std::uint32_t> rank = rank_of(origin);
    scene.is_judged = !is_wild() && (!rank || !struck_.count(*rank));
    return scene;
}

// ---- faults and changes ------------------------------------------------------------------------

// One rank dies, stops or stands still; perhaps it comes back.
void GroupScenario::strike(std::uint32_t rank) {
    const std::string name = name_of(rank);
    if (is_over_ || !simulation().is_up(name) || struck_.count(rank)) return;
    struck_.insert(rank);
    stirred_ = now();
    const std::uint32_t life = simulation().lives(name);
    const Duration time = 50ms + random_time(5s);
    switch (below(5)) {
        case 0:
        case 1:
            note(name + " stands still for " + std::to_string(time / 1ms) + " ms");
            paused_.insert(name);
            simulation().pause(name);
            simulation().in(time, [this, name, life] {
                paused_.erase(name);
                resumed_[name] = now();
                if (simulation().lives(name) == life) simulation().resume(name);
            });
            return;
        case 2: note(name + " is killed"), simulation().kill(name); break;
        default: note(name + " crashes"), simulation().crash(name); break;
    }
    down_since_[rank] = now();
    if (below(2) == 0) {
        simulation().in(time, [this, rank, life] { come_back(rank, life); });
    }
}

// As another incarnation, where it is still a member.
void GroupScenario::come_back(std::uint32_t rank, std::uint32_t life) {
    const std::string name = name_of(rank);
    if (is_over_ || simulation().lives(name) != life) return;
    const GroupView& truth = views_.rbegin()->second;
    if (const Member* const member = truth.find(rank)) {
        Member next = *member;
        next.incarnation = truth.epoch() + 1;
        decide(admit(truth, std::move(next)));
    }
    note(name + " is there again");
    down_since_.erase(rank);
    simulation().start(name);
}

void GroupScenario::change() {
    if (is_over_) return;
    const GroupView& truth = views_.rbegin()->second;
    const Member& member = truth.at(static_cast<std::uint32_t>(below(truth.size())));
    const bool leaves = below(3) != 0;
    note(name_of(member.rank) + (leaves ? " leaves" : " drains"));
    decide(leaves ? evict(truth, member.rank) : drain(truth, member.rank));
}

// Members hear of it one after the other; clients don't.
void GroupScenario::decide(const Result<GroupView>& view) {
    if (!view) return;
    stirred_ = now();
    views_.emplace(view->epoch(), *view);
    for (const std::string& name : names_) {
        if (!rank_of(name)) continue;
        simulation().in(random_time(30ms), [this, name, later = *view] {
            if (!is_awake(name)) return;
            const Status status =
                processes_.at(name)->group.install(later);  // Perhaps it knows a later one.
            verdict_.hold(status.ok() || status.code() == Code::aborted, Rule::view_is_known,
                          [&] { return name + " learns: " + status.to_string(); });
        });
    }
}

// ---- a meeting ---------------------------------------------------------------------------------

void GroupScenario::meet() {
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
        const std::string name = name_of(rank);
        simulation().in(random_time(300ms), [this, name, rank] {
            if (!is_awake(name)) return;
            const Process& process = *processes_.at(name);
            came_.insert(rank);
            process.group.meet(
                "here", {}, {.timeout = 10s},
                [this, name, life = process.life](const GroupOutcome& outcome) {
                    if (!is_alive(name, life)) return;
                    for (const RankOutcome& one : outcome.ranks) {
                        verdict_.hold(
                            !one.status.ok() || came_.count(one.rank), Rule::meets_after_all,
                            [&] { return name + " met rank " + std::to_string(one.rank); });
                    }
                    const bool is_calm = struck_.empty() && views_.size() == 1 && !is_wild();
                    verdict_.hold(outcome.status.ok() || !is_calm, Rule::meets_after_all,
                                  [&] { return name + ": " + outcome.status.to_string(); });
                });
        });
    }
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
    const std::uint32_t least = std::max(1u, ranks_ / 100);
    for (std::uint64_t i = least + below(least + 3); i > 0; --i) {
        const TimePoint begin = begins_[below(begins_.size())];
        const auto rank = static_cast<std::uint32_t>(below(ranks_));
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

void GroupScenario::plan() {
    plan_collectives();
    if (!is_stuck() && !is_wild()) plan_faults();
    if (!is_stuck()) plan_changes();
    if (below(2) == 0) simulation().in(any_moment(), [this] { meet(); });
}

void GroupScenario::watch() {
    judge_bounds();
    simulation().in(watch_every, [this] {
        if (!is_over_) watch();
    });
}

void GroupScenario::judge_end() {
    ledger_.close();
    judge_none_left(Rule::collectives_are_back, [](api::Node& node) {
        return node.collectives.running() + node.collectives.meetings().running();
    });
    judge_none_left(Rule::calls_are_back, [](api::Node& node) { return node.client.in_flight(); });
    judge_none_left(Rule::handlers_are_back,
                    [](api::Node& node) { return node.server.executing(); });
    judge_none_left(Rule::slots_are_back, [](api::Node& node) { return node.client.in_use(); });
    judge_rest();
}

SimRun GroupScenario::run() {
    plan();
    if (is_wild()) begin_trouble();
    watch();
    simulation().run_for(trouble);
    simulation().run_until([this] { return ledger_.open() == 0; }, group_calm);
    is_over_ = true;
    if (chaos_) chaos_->heal();
    simulation().heal();
    for (const std::string& name : names_) {
        if (!simulation().is_up(name)) simulation().start(name);
    }
    simulation().run_for(group_settle);
    let_sessions_go();
    judge_end();
    return report(ledger_.all().size(), ledger_.hash());
}

}  // namespace

SimRun run_group_scenario(std::uint64_t seed, const SimOptions& options) {
    return GroupScenario(seed, options).run();
}

}  // namespace weft::tool
