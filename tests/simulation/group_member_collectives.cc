#include "simulation/group_member_collectives.h"

#include <algorithm>

namespace weft::scenarios {

namespace {

constexpr Duration watch_interval = 500ms;
constexpr Duration leader_notice_max = 10s;
constexpr std::uint32_t attempts_max = 3;  // While there are faults.
// After them: a failure may reveal a restarted member, one connection at a time.
constexpr std::uint32_t calls_max = 6;
constexpr Duration long_wait = 60s;
constexpr Duration longest_wait = 100s;
constexpr Duration again_after = 2s;
constexpr Duration ample_wait = 12s;
constexpr std::uint32_t many_ranks = 200;

std::optional<std::uint32_t> leader_of(const GroupView& view, const NamedCollective& of) {
    for (const Member& member : view.members()) {
        const bool is_named = of.include ? of.include->contains(member.rank) : !member.draining;
        if (is_named && !of.exclude.contains(member.rank)) return member.rank;
    }
    return std::nullopt;
}

bool is_in(const GroupView& view, const NamedCollective& of, std::uint32_t rank) {
    const Member* const member = view.find(rank);
    if (!member || of.exclude.contains(rank)) return false;
    return of.include ? of.include->contains(rank) : !member->draining;
}

}  // namespace

struct GroupMemberCollectives::Play : NamedCollective {
    Duration timeout{};
    bool repeats = false;              // Failed members call again.
    bool is_prompt = true;             // All members join at once.
    std::vector<Attempt*> last;        // By rank.
    std::vector<bool> missed;          // Down when it was to join.
    std::vector<std::uint32_t> calls;  // After the faults.
    TimePoint again{};                 // When all last called.
    bool is_over = false;
};

GroupMemberCollectives::GroupMemberCollectives(GroupStage& stage)
    : stage_(stage), ledger_(stage.results()) {}
GroupMemberCollectives::~GroupMemberCollectives() = default;

GroupMemberCollectives::Play& GroupMemberCollectives::make(const std::string& name) {
    Play& play = *plays_.emplace_back(std::make_unique<Play>());
    play.number = static_cast<std::uint32_t>(plays_.size());
    play.name = name;
    play.ranks = stage_.ranks();
    play.attempts.assign(play.ranks, 0);
    play.last.assign(play.ranks, nullptr);
    play.missed.assign(play.ranks, false);
    play.calls.assign(play.ranks, 0);
    play.input = static_cast<NamedCollective::Input>(stage_.below(3));
    if (play.input == NamedCollective::Input::sum) {
        play.options.reduction.operation = Reduction::Operation::sum;
    }
    play.options.policy = Policy::all;
    play.options.topology = stage_.any_topology();
    return play;
}

// ---- under faults ------------------------------------------------------------------------------

void GroupMemberCollectives::draw(Play& play) {
    if (stage_.below(4) == 0) {
        play.options.policy = stage_.below(2) == 0 ? Policy::quorum : Policy::best_effort;
    }
    const auto any_rank = [&] { return static_cast<std::uint32_t>(stage_.below(play.ranks)); };
    if (stage_.below(6) == 0) {
        const std::uint32_t first = any_rank();
        play.include.emplace().add(std::min(first, play.ranks - 2), play.ranks - 1);
    }
    if (stage_.below(6) == 0) play.exclude.add(any_rank());
    // A quorum's gather continues for missing members until its deadline.
    switch (stage_.below(play.takes_all() ? 3 : 2)) {
        case 2: play.timeout = long_wait + stage_.random_time(30s); break;
        case 0: play.timeout = 10s; break;
        default: play.timeout = 3s + stage_.random_time(5s); break;
    }
    play.repeats = stage_.below(3) != 0;
}

void GroupMemberCollectives::plan() {
    const std::uint64_t count = stage_.ranks() > many_ranks ? 1 : 1 + stage_.below(3);
    for (std::uint64_t i = 0; i < count; ++i) {
        Play& play = make("here" + std::to_string(i));
        draw(play);
        const Duration at = stage_.random_time(1s);
        const std::uint64_t odd = stage_.below(play.ranks);  // Joins late, or never.
        const std::uint64_t how = stage_.below(6);
        for (std::uint32_t rank = 0; rank < play.ranks; ++rank) {
            Duration late = stage_.random_time(300ms);
            if (rank == odd && how < 2) {
                play.is_prompt = false;
                if (how == 0) continue;
                late += stage_.random_time(4s);
            }
            stage_.simulation().in(at + late, [this, &play, rank] { join(play, rank); });
        }
        plan_fault_times(play, at);
    }
    watch();
}

// Mostly of the leader.
void GroupMemberCollectives::plan_fault_times(const Play& play, Duration at) {
    if (stage_.is_wild() || stage_.is_stuck()) return;
    const auto soon = [&](auto what) {
        stage_.simulation().in(at + stage_.random_time(1s), [this, &play, what] {
            const std::optional<std::uint32_t> leader = leader_of(stage_.truth(), play);
            if (leader && !stage_.is_over()) what(*leader);
        });
    };
    if (stage_.below(2) == 0) {
        const bool is_fatal = stage_.below(2) == 0;
        soon([this, is_fatal](std::uint32_t leader) {
            stage_.strike(leader,
                          is_fatal ? GroupStage::FaultKind::fatal : GroupStage::FaultKind::any);
        });
    }
    if (stage_.below(4) == 0) {
        const bool leaves = stage_.below(2) == 0;
        soon([this, leaves](std::uint32_t leader) {
            stage_.note(stage_.name_of(leader) + (leaves ? " leaves" : " drains") + ", the leader");
            stage_.decide(leaves ? evict(stage_.truth(), leader) : drain(stage_.truth(), leader));
        });
    }
    if (stage_.below(4) == 0) soon([this](std::uint32_t) { stage_.change(); });
}

void GroupMemberCollectives::join(Play& play, std::uint32_t rank) {
    if (stage_.is_over()) return;
    const std::string& name = stage_.name_of(rank);
    if (!stage_.simulation().is_up(name)) {
        play.missed[rank] = true;
        return;
    }
    stage_.when_running(name, stage_.simulation().starts(name), [this, &play, rank] {
        if (!stage_.is_over() && !is_pending(play.last[rank])) call(play, rank);
    });
}

void GroupMemberCollectives::call(Play& play, std::uint32_t rank) {
    const std::string& name = stage_.name_of(rank);
    const Group& group = stage_.group_of(name);
    const GroupView view = group.view();
    if (!is_in(view, play, rank)) return;
    Attempt& attempt = ledger_.begins(play, rank, stage_.simulation().starts(name));
    attempt.epoch = view.epoch();
    attempt.begun = stage_.now();
    attempt.deadline = attempt.begun + play.timeout;
    play.last[rank] = &attempt;
    play.missed[rank] = false;
    GroupCallOptions options = play.options;
    options.timeout = play.timeout;
    if (play.include) options.include = &*play.include;
    options.exclude = &play.exclude;
    group.all_gather(
        play.name, MemberCollectiveLedger::value_of(attempt), options,
        [this, &play, &attempt](const GroupOutcome& outcome) { on_end(play, attempt, outcome); });
    attempt.is_calling = false;
}

void GroupMemberCollectives::on_end(Play& play, Attempt& attempt, const GroupOutcome& outcome) {
    const std::string& name = stage_.name_of(attempt.rank);
    if (!stage_.is_alive(name, attempt.life)) return;
    validate_leader(play, attempt);
    const bool is_calm =
        stage_.is_calm() && play.is_prompt && play.takes_all() && attempt.number == 1;
    ledger_.completes(attempt, outcome, stage_.now(), stage_.running_since(name), is_calm,
                      stage_.views());
    if (outcome.status.ok()) return;
    stage_.note(MemberCollectiveLedger::describe(attempt));
    if (stage_.is_over() || !play.repeats || attempt.number >= attempts_max) return;
    stage_.simulation().in(stage_.random_time(500ms),
                           [this, &play, rank = attempt.rank] { join(play, rank); });
}

bool GroupMemberCollectives::is_pending(const Attempt* attempt) const {
    return attempt && !attempt->is_done &&
           stage_.is_alive(stage_.name_of(attempt->rank), attempt->life);
}

bool GroupMemberCollectives::is_anyone_pending(const Play& play) const {
    return std::any_of(play.last.begin(), play.last.end(),
                       [this](const Attempt* attempt) { return is_pending(attempt); });
}

// Since when this member could have detected that the leader by its view is dead.
std::optional<TimePoint> GroupMemberCollectives::dead_leader_since(const Play& play,
                                                                   const Attempt& attempt) const {
    const std::string& name = stage_.name_of(attempt.rank);
    if (stage_.is_wild() || !stage_.is_awake(name)) return std::nullopt;
    const auto leader = leader_of(stage_.group_of(name).view(), play);
    if (!leader || *leader == attempt.rank) return std::nullopt;
    const auto since = stage_.down_since(*leader);
    if (!since) return std::nullopt;
    // A member that another leader may have gathered before stays with that leader.
    for (auto at = stage_.views().find(attempt.epoch); at != stage_.views().end(); ++at) {
        const auto before = leader_of(at->second, play);
        if (before && before != leader && play.attempts[*before] > 0) return std::nullopt;
    }
    return std::max(
        {*since, attempt.begun, stage_.running_since(name), stage_.view_learnt_at(attempt.rank)});
}

void GroupMemberCollectives::validate_leader(const Play& play, Attempt& attempt) {
    if (attempt.is_judged_late) return;
    const std::optional<TimePoint> since = dead_leader_since(play, attempt);
    if (!since) return;
    stage_.results().hold(
        stage_.now() <= *since + leader_notice_max, Rule::dead_leader_is_noticed,
        [&] { return MemberCollectiveLedger::describe(attempt) + " still waits"; });
}

void GroupMemberCollectives::watch() {
    stage_.simulation().in(watch_interval, [this] {
        if (stage_.is_over()) return;
        for (const auto& play : plays_) {
            for (std::uint32_t rank = 0; rank < play->ranks; ++rank) {
                Attempt* const last = play->last[rank];
                if (is_pending(last)) {
                    const auto since = dead_leader_since(*play, *last);
                    if (!since || stage_.now() <= *since + leader_notice_max) continue;
                    validate_leader(*play, *last);
                    last->is_judged_late = true;
                } else if (play->missed[rank] || (last && !last->is_done)) {
                    // A later life of the rank.
                    if (play->attempts[rank] < attempts_max) join(*play, rank);
                }
            }
        }
        watch();
    });
}

bool GroupMemberCollectives::is_settled() const {
    for (const auto& play : plays_) {
        for (const Attempt* const last : play->last) {
            if (is_pending(last) && !last->is_judged_late && dead_leader_since(*play, *last)) {
                return false;
            }
        }
    }
    return true;
}

// ---- after the faults --------------------------------------------------------------------------

// A gather may include members that have left or drain meanwhile, and so need not join: it waits
// for them until its deadline.
bool GroupMemberCollectives::may_wait_for_departed(const Play& play) const {
    return std::any_of(play.last.begin(), play.last.end(), [&](const Attempt* last) {
        if (!is_pending(last)) return false;
        const GroupView& view = stage_.views().at(last->epoch);
        const auto then = participants(view, play.include, play.exclude);
        return !std::all_of(then.begin(), then.end(),
                            [&](std::uint32_t rank) { return is_in(stage_.truth(), play, rank); });
    });
}

void GroupMemberCollectives::begin_again(Play& play) {
    const bool is_broken = std::any_of(play.last.begin(), play.last.end(), [](const Attempt* last) {
        return !last || last->result == 0;
    });
    // An included member that has left makes it fail.
    bool is_possible = play.takes_all();
    for (std::uint32_t rank = 0; play.include && rank < play.ranks; ++rank) {
        is_possible &= !play.include->contains(rank) || play.exclude.contains(rank) ||
                       stage_.truth().find(rank);
    }
    play.is_over = !is_possible || !is_broken;
    play.timeout = may_wait_for_departed(play) ? longest_wait : ample_wait;
    play.again = stage_.now();
    // The members join with other timeouts: this round is no test of a calm completion.
    play.is_prompt = false;
    if (play.is_over) return;
    for (const std::uint32_t rank : participants(stage_.truth(), play.include, play.exclude)) {
        if (is_pending(play.last[rank])) continue;
        ++play.calls[rank];
        call(play, rank);
    }
}

// A failed member calls again after a while. All call again when no member waits and the results
// differ.
GroupMemberCollectives::Progress GroupMemberCollectives::advance(Play& play) {
    const auto ranks = participants(stage_.truth(), play.include, play.exclude);
    const auto can_call = [&](std::uint32_t rank) { return play.calls[rank] < calls_max; };
    const auto has_failed = [&](std::uint32_t rank) {
        return !play.last[rank] || play.last[rank]->result == 0;
    };
    const bool is_waited = std::any_of(ranks.begin(), ranks.end(), [&](std::uint32_t rank) {
        return is_pending(play.last[rank]);
    });
    if (!is_waited) {
        const std::uint32_t result =
            ranks.empty() || !play.last[ranks[0]] ? 0 : play.last[ranks[0]]->result;
        const bool are_same = std::all_of(ranks.begin(), ranks.end(), [&](std::uint32_t rank) {
            return !has_failed(rank) && play.last[rank]->result == result;
        });
        if (are_same) return Progress::done;
        if (!std::all_of(ranks.begin(), ranks.end(), can_call)) return Progress::failed;
        play.again = stage_.now();
    }
    // A round has completed: a member that joins alone now would wait in vain.
    const bool is_met = std::any_of(ranks.begin(), ranks.end(), [&](std::uint32_t rank) {
        return !has_failed(rank) && play.last[rank]->ended >= play.again;
    });
    for (const std::uint32_t rank : ranks) {
        const Attempt* const last = play.last[rank];
        if (is_pending(last) || !can_call(rank)) continue;
        if (last && stage_.now() < last->ended + again_after) continue;
        if (is_waited && (is_met || !has_failed(rank))) continue;
        ++play.calls[rank];
        call(play, rank);
    }
    return Progress::running;
}

void GroupMemberCollectives::run_after_faults() {
    const TimePoint begun = stage_.now();
    for (const auto& play : plays_) begin_again(*play);
    const auto goes_on = [](const auto& play) { return !play->is_over; };
    while (std::any_of(plays_.begin(), plays_.end(), goes_on)) {
        stage_.simulation().run_for(watch_interval);
        for (const auto& play : plays_) {
            if (play->is_over) continue;
            const bool is_too_long = stage_.now() > begun + calls_max * longest_wait;
            const Progress progress = is_too_long ? Progress::failed : advance(*play);
            if (progress == Progress::running) continue;
            play->is_over = true;
            stage_.results().hold(progress == Progress::done, Rule::gather_recovers, [&] {
                std::string text = "member collective '" + play->name + "' after the faults";
                for (const Attempt* const last : play->last) {
                    const bool is_there = last && stage_.truth().find(last->rank);
                    if (is_there && last->result == 0) return text + "; " + ledger_.describe(*last);
                }
                return text + " has different results";
            });
        }
    }
    // The first round reveals connections to earlier lives of members.
    Topology topology = stage_.any_topology();
    if (topology.shape == Topology::Shape::automatic) topology.shape = Topology::Shape::greedy;
    for (const bool is_checked : {false, true}) run_under_new_name(topology, is_checked);
}

void GroupMemberCollectives::run_under_new_name(const Topology& topology, bool is_checked) {
    Play& play = make(is_checked ? "anew" : "before");
    play.timeout = ample_wait;
    play.options.topology = topology;
    const auto ranks = participants(stage_.truth(), play.include, play.exclude);
    for (const std::uint32_t rank : ranks) {
        stage_.simulation().in(stage_.random_time(300ms),
                               [this, &play, rank] { call(play, rank); });
    }
    const TimePoint end = stage_.now() + 2 * ample_wait;
    do stage_.simulation().run_for(watch_interval);
    while (stage_.now() < end && is_anyone_pending(play));
    if (!is_checked) return;
    for (const std::uint32_t rank : ranks) {
        const Attempt* const last = play.last[rank];
        stage_.results().hold(last && last->result == 1, Rule::gather_recovers, [&] {
            return last ? MemberCollectiveLedger::describe(*last)
                        : "rank " + std::to_string(rank) + " did not join";
        });
    }
}

void GroupMemberCollectives::close() {
    const TimePoint end = stage_.now() + longest_wait;
    const auto waits = [this] {
        return std::any_of(plays_.begin(), plays_.end(),
                           [this](const auto& play) { return is_anyone_pending(*play); });
    };
    while (stage_.now() < end && waits()) stage_.simulation().run_for(watch_interval);
    for (const auto& play : plays_) {
        for (const Attempt* const last : play->last) {
            if (last) ledger_.close(*last, stage_.is_alive(stage_.name_of(last->rank), last->life));
        }
    }
}

}  // namespace weft::scenarios
