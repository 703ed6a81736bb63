// The base of collective scenarios: a group on simulated hosts, its views, and faults and changes
// of both.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <weft/group.h>
#include <weft/service.h>

#include "simulation/stage.h"

namespace weft::scenarios {

class GroupStage : protected ScenarioBase {
  public:
    using Methods = std::function<void(MethodRegistrar&, std::uint32_t rank, std::uint32_t life)>;

    GroupStage(std::uint64_t seed, const SimOptions& options);
    // The methods of each member, whenever it starts. Before start_hosts().
    void serve(Methods methods) { methods_.push_back(std::move(methods)); }
    void start_hosts();
    using ScenarioBase::below;
    using ScenarioBase::endurance;
    using ScenarioBase::is_alive;
    using ScenarioBase::note;
    using ScenarioBase::now;
    using ScenarioBase::random_time;
    using ScenarioBase::simulation;

    // ---- processes -----------------------------------------------------------------------------
    struct Process;
    std::uint32_t ranks() const { return ranks_; }
    const std::string& name_of(std::uint32_t rank) const { return names_[rank]; }
    const std::vector<std::string>& names() const { return names_; }
    std::optional<std::uint32_t> rank_of(const std::string& name) const;
    std::string any_origin();
    // Runs, and is not paused.
    bool is_awake(const std::string& name) const {
        return is_acting(name) && processes_.count(name) && !paused_.count(name);
    }
    // Since when it runs without a pause. Requires: is_awake(name).
    TimePoint running_since(const std::string& name) const;
    const Group& group_of(const std::string& name) const;
    // Runs `what` as code of this host, in that life, once it is not paused; never after that life.
    void when_running(const std::string& name, std::uint32_t life, std::function<void()> what);
    Topology any_topology();
    RuleResults& results() { return results_; }

    // ---- faults so far -------------------------------------------------------------------------
    // Seeds of this kind have faults of all sorts, links too: only forbidden behaviour is checked.
    bool is_wild() const { return seed_ % 4 == 3; }
    // No rank dies; one handler never ends.
    bool is_stuck() const { return seed_ % 8 == 1; }
    bool was_struck(std::uint32_t rank) const { return struck_.count(rank) != 0; }
    // Also of members that joined again.
    bool has_left(std::uint32_t rank) const { return left_.count(rank) != 0; }
    // No fault and no change so far.
    bool is_calm() const { return !is_wild() && struck_.empty() && views_.size() == 1; }
    std::optional<TimePoint> down_since(std::uint32_t rank) const;
    // When this member last learnt another view; TimePoint::min(): never.
    TimePoint view_learnt_at(std::uint32_t rank) const;
    const std::map<std::uint64_t, GroupView>& views() const { return views_; }
    const GroupView& truth() const { return views_.rbegin()->second; }

    // ---- faults and changes --------------------------------------------------------------------
    enum class FaultKind : std::uint8_t { any, fatal };
    // One rank dies or is paused; it may start again. Each rank once.
    void strike(std::uint32_t rank, FaultKind kind = FaultKind::any);
    void change();
    // Pauses one process, mostly a member, for endurance().
    void endure();
    // Members learn the view one after the other; clients do not.
    void decide(const Result<GroupView>& view);
    // Starts all members, with one view: a member that is down and has not left joins as another
    // incarnation, and all learn that within 100 ms.
    void make_whole();
    bool is_over() const { return is_over_; }

  protected:
    ~GroupStage() = default;

    std::set<std::uint32_t> struck_;  // Ranks that had a fault.
    std::set<std::string> paused_;
    std::map<std::uint32_t, TimePoint> down_since_;
    // When the last fault or change happened.
    TimePoint last_fault_or_change_ = TimePoint::min();

  private:
    std::shared_ptr<void> start_process(const std::string& name, Runtime& runtime);
    std::vector<std::string> uris_of(std::uint32_t rank, std::uint32_t shared) const;
    void pause_long(const std::string& name, Duration time);
    void come_back(std::uint32_t rank, std::uint32_t life);
    void join(Process& process, std::uint32_t rank, Runtime& runtime);
    void learn(std::uint32_t rank, const GroupView& later);

    const std::uint32_t ranks_;
    std::set<std::uint32_t> left_;
    std::vector<Methods> methods_;
    std::uint64_t greetings_ = 0;                // Under way.
    std::map<std::uint64_t, GroupView> views_;   // By epoch; the last one is the truth.
    std::vector<std::string> names_;             // Of ranks, then of clients.
    std::map<std::string, Process*> processes_;  // Live processes.
    std::map<std::string, TimePoint> resumed_;
    std::map<std::uint32_t, TimePoint> view_learnt_at_;
    bool is_over_ = false;
};

// The ranks that take part, in a view.
std::vector<std::uint32_t> participants(const GroupView& view,
                                        const std::optional<RankSet>& include,
                                        const RankSet& exclude);

}  // namespace weft::scenarios
