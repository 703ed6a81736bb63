#include "simulation/group_stage.h"

#include <algorithm>
#include <iterator>

#include "base/assert.h"

namespace weft::scenarios {

static constexpr std::uint32_t group_clients = 2;
static constexpr std::uint32_t flat_max = 1024;  // Children of a flat tree.

// ---- processes ---------------------------------------------------------------------------------

struct GroupStage::Process : Service {
    Process(GroupStage& of, std::string at, std::uint32_t in)
        : stage(of), name(std::move(at)), life(in) {}
    ~Process() override {
        const auto at = stage.processes_.find(name);
        if (at != stage.processes_.end() && at->second == this) stage.processes_.erase(at);
    }

    void register_methods(MethodRegistrar& registrar) override {
        for (const Methods& methods : stage.methods_)
            methods(registrar, *stage.rank_of(name), life);
    }

    GroupStage& stage;
    const std::string name;
    const std::uint32_t life;
    Group group;
    bool is_member = false;
};

GroupStage::GroupStage(std::uint64_t seed, const SimOptions& options)
    : ScenarioBase(seed, options), ranks_(std::max(2u, options.nodes)) {
    // Every second seed: each member on a host of its own; else some on each, few or many.
    const std::uint64_t hosts = below(2) == 0 ? 0 : 1 + below(below(2) == 0 ? 4 : ranks_);
    std::vector<Member> members;
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
        const auto host = hosts == 0 ? ranks_ + rank : static_cast<std::uint32_t>(below(hosts));
        members.push_back({rank, uris_of(rank, host), 1});
    }
    views_.emplace(1, GroupView::make("group", 1, std::move(members)).value());
}

// Hosts differ by the first network address of their members, and a simulated process is a host of
// its own. So a member of a shared host has an address in front that no simulated transport
// supports, and its second address is used.
std::vector<std::string> GroupStage::uris_of(std::uint32_t rank, std::uint32_t shared) const {
    std::string own = "sim://rank" + std::to_string(rank);
    if (shared >= ranks_) return {std::move(own)};
    return {"verbs://host" + std::to_string(shared) + ":" + std::to_string(1 + rank % 60000),
            std::move(own)};
}

void GroupStage::start_hosts() {
    const auto program = [this](const std::string& name, Runtime& runtime) {
        return start_process(name, runtime);
    };
    // Names first: processes use them.
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
        names_.push_back("rank" + std::to_string(rank));
    }
    add_hosts("rank", ranks_, program, Contexts::some);
    for (const std::string& client : add_hosts("client", group_clients, program, Contexts::some)) {
        names_.push_back(client);
    }
}

std::optional<std::uint32_t> GroupStage::rank_of(const std::string& name) const {
    if (name.rfind("rank", 0) != 0) return std::nullopt;
    return static_cast<std::uint32_t>(std::stoul(name.substr(4)));
}

std::shared_ptr<void> GroupStage::start_process(const std::string& name, Runtime& runtime) {
    auto process = std::make_shared<Process>(*this, name, simulation().starts(name));
    processes_[name] = process.get();
    if (const auto rank = rank_of(name)) {
        Status status = runtime.add(shared(*process));
        if (status.ok()) status = runtime.listen("sim://" + name);
        WEFT_ASSERT(status.ok());
        join(*process, *rank, runtime);
    }
    if (!process->group) process->group = runtime.group(truth()).value();
    return process;
}

// A member that starts after it has left joins when it is admitted again.
void GroupStage::join(Process& process, std::uint32_t rank, Runtime& runtime) {
    if (process.is_member || !truth().find(rank)) return;
    const Status status = runtime.join(truth(), rank);
    // While it drains it serves nothing new; its next life joins.
    if (is_wild() && status.code() == Code::failed_precondition) return;
    WEFT_ASSERT(status.ok());
    process.is_member = true;
    process.group = runtime.group(truth()).value();
}

const Group& GroupStage::group_of(const std::string& name) const {
    return processes_.at(name)->group;
}

std::string GroupStage::any_origin() {
    if (below(4) == 0) return "client" + std::to_string(below(group_clients));
    return name_of(static_cast<std::uint32_t>(below(ranks_)));
}

TimePoint GroupStage::running_since(const std::string& name) const {
    TimePoint since = chaos_ ? chaos_->running_since(name) : TimePoint{};
    const auto resumed = resumed_.find(name);
    return resumed == resumed_.end() ? since : std::max(since, resumed->second);
}

void GroupStage::when_running(const std::string& name, std::uint32_t life,
                              std::function<void()> what) {
    if (!is_alive(name, life)) return;
    if (is_awake(name)) return simulation().act_as(name, what);
    simulation().in(watch_every, [this, name, life, what = std::move(what)]() mutable {
        when_running(name, life, std::move(what));
    });
}

Topology GroupStage::any_topology() {
    static constexpr Topology::Shape shapes[] = {Topology::Shape::automatic, Topology::Shape::k_ary,
                                                 Topology::Shape::k_nomial, Topology::Shape::greedy,
                                                 Topology::Shape::flat};
    Topology topology;
    topology.shape = shapes[below(std::size(shapes) - (ranks_ > flat_max ? 1 : 0))];
    topology.fanout = static_cast<std::uint8_t>(2 + below(15));
    topology.by_host = below(3) == 0;
    return topology;
}

// ---- faults and changes ------------------------------------------------------------------------

std::optional<TimePoint> GroupStage::down_since(std::uint32_t rank) const {
    const auto at = down_since_.find(rank);
    if (at == down_since_.end()) return std::nullopt;
    return at->second;
}

TimePoint GroupStage::view_learnt_at(std::uint32_t rank) const {
    const auto at = view_learnt_at_.find(rank);
    return at == view_learnt_at_.end() ? TimePoint::min() : at->second;
}

void GroupStage::strike(std::uint32_t rank, FaultKind kind) {
    const std::string& name = name_of(rank);
    if (is_over_ || !simulation().is_up(name) || struck_.count(rank)) return;
    struck_.insert(rank);
    last_fault_or_change_ = now();
    const std::uint32_t life = simulation().starts(name);
    const Duration time = 50ms + random_time(5s);
    switch (kind == FaultKind::fatal ? 2 + below(3) : below(5)) {
        case 0:
        case 1: return pause_long(name, time);
        case 2: note(name + " is killed"), simulation().kill(name); break;
        default: note(name + " crashes"), simulation().crash(name); break;
    }
    down_since_[rank] = now();
    if (below(2) == 0) {
        simulation().in(time, [this, rank, life] { come_back(rank, life); });
    }
}

void GroupStage::endure() {
    if (is_over_) return;
    const auto rank = static_cast<std::uint32_t>(below(ranks_));
    const std::string& name = below(8) == 0 ? names_[ranks_ + below(group_clients)] : name_of(rank);
    if (!is_awake(name) || (rank_of(name) && was_struck(*rank_of(name)))) return;
    if (const auto own = rank_of(name)) struck_.insert(*own);
    last_fault_or_change_ = now();
    pause_long(name, endurance());
}

void GroupStage::pause_long(const std::string& name, Duration time) {
    const std::uint32_t life = simulation().starts(name);
    note(name + " is paused for " + std::to_string(time / 1ms) + " ms");
    paused_.insert(name);
    simulation().pause(name);
    simulation().in(time, [this, name, life] {
        paused_.erase(name);
        resumed_[name] = now();
        if (simulation().starts(name) == life) simulation().resume(name);
        const auto rank = rank_of(name);
        if (rank && truth().epoch() > 1)
            simulation().in(random_time(30ms), [this, rank] { learn(*rank, truth()); });
    });
}

// As another incarnation, if it is still a member.
void GroupStage::come_back(std::uint32_t rank, std::uint32_t life) {
    const std::string& name = name_of(rank);
    if (is_over_ || simulation().starts(name) != life) return;
    if (const Member* const member = truth().find(rank)) {
        Member next = *member;
        next.incarnation = truth().epoch() + 1;
        decide(admit(truth(), std::move(next)));
    }
    note(name + " is up again");
    down_since_.erase(rank);
    simulation().start(name);
}

void GroupStage::change() {
    if (is_over_) return;
    const Member& member = truth().at(static_cast<std::uint32_t>(below(truth().size())));
    const std::uint64_t what = below(6);
    std::vector<Member> left;
    for (const Member& first : views_.begin()->second.members()) {
        if (!truth().find(first.rank)) left.push_back(first);
    }
    if (what == 5 && !left.empty()) {
        Member next = left[below(left.size())];
        next.incarnation = truth().epoch() + 1;
        note(name_of(next.rank) + " is admitted again");
        return decide(admit(truth(), std::move(next)));
    }
    note(name_of(member.rank) + (what < 4 ? " leaves" : " drains"));
    decide(what < 4 ? evict(truth(), member.rank) : drain(truth(), member.rank));
}

void GroupStage::decide(const Result<GroupView>& view) {
    if (!view) return;
    last_fault_or_change_ = now();
    views_.emplace(view->epoch(), *view);
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
        if (!view->find(rank)) left_.insert(rank);
        simulation().in(random_time(30ms), [this, rank, later = *view] { learn(rank, later); });
    }
}

void GroupStage::learn(std::uint32_t rank, const GroupView& later) {
    const std::string& name = name_of(rank);
    if (!is_awake(name)) return;
    Process& process = *processes_.at(name);
    if (!process.is_member) return join(process, rank, *simulation().runtime(name));
    const Status status = process.group.install(later);  // It may know a later view.
    if (status.ok()) view_learnt_at_[rank] = now();
    results_.hold(status.ok() || status.code() == Code::aborted, Rule::view_is_known,
                  [&] { return name + " learns: " + status.to_string(); });
}

void GroupStage::make_whole() {
    is_over_ = true;
    if (chaos_) chaos_->heal();
    simulation().heal();
    paused_.clear();
    GroupView whole = truth();
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
        const Member* const member = whole.find(rank);
        if (simulation().is_up(name_of(rank)) || !member) continue;
        Member next = *member;
        next.incarnation = whole.epoch() + 1;
        Result<GroupView> later = admit(whole, std::move(next));
        WEFT_ASSERT(later.ok());
        whole = *std::move(later);
    }
    if (whole.epoch() > truth().epoch()) views_.emplace(whole.epoch(), whole);
    for (const std::string& name : names_) {
        if (!simulation().is_up(name)) simulation().start(name);
        const std::optional<std::uint32_t> rank = rank_of(name);
        if (!rank || truth().epoch() == 1) continue;
        simulation().in(random_time(30ms), [this, rank] { learn(*rank, truth()); });
    }
    down_since_.clear();
    simulation().run_for(100ms);
}

std::vector<std::uint32_t> participants(const GroupView& view,
                                        const std::optional<RankSet>& include,
                                        const RankSet& exclude) {
    std::vector<std::uint32_t> ranks;
    for (const Member& member : view.members()) {
        const bool is_named = include ? include->contains(member.rank) : !member.draining;
        if (is_named && !exclude.contains(member.rank)) ranks.push_back(member.rank);
    }
    return ranks;
}

}  // namespace weft::scenarios
