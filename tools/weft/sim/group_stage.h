// What collectives are judged on: a group on simulated hosts, its views, and what happens to both.
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

#include "sim/stage.h"

namespace weft::tool {

class GroupStage : protected SimStage {
  public:
    using Methods = std::function<void(MethodRegistrar&, std::uint32_t rank, std::uint32_t life)>;

    GroupStage(std::uint64_t seed, const SimOptions& options);
    // Of each member, whenever it starts. Before start_hosts().
    void serve(Methods methods) { methods_.push_back(std::move(methods)); }
    void start_hosts();
    using SimStage::below;
    using SimStage::endurance;
    using SimStage::is_alive;
    using SimStage::note;
    using SimStage::now;
    using SimStage::random_time;
    using SimStage::simulation;

    // ---- who is there --------------------------------------------------------------------------
    struct Process;
    std::uint32_t ranks() const { return ranks_; }
    const std::string& name_of(std::uint32_t rank) const { return names_[rank]; }
    const std::vector<std::string>& names() const { return names_; }
    std::optional<std::uint32_t> rank_of(const std::string& name) const;
    std::string any_origin();
    // Runs, and does not stand still.
    bool is_awake(const std::string& name) const {
        return acts(name) && processes_.count(name) && !paused_.count(name);
    }
    // Since when; of who is awake.
    TimePoint awake_since(const std::string& name) const;
    const Group& group_of(const std::string& name) const;
    // As code of this host, in that life, once it does not stand still; never when it is gone.
    void when_awake(const std::string& name, std::uint32_t life, std::function<void()> what);
    Topology any_topology();
    Verdict& verdict() { return verdict_; }

    // ---- what was wrong ------------------------------------------------------------------------
    // Seeds of that kind have faults of all sorts, links too: only what must never happen is
    // judged.
    bool is_wild() const { return seed_ % 4 == 3; }
    // Nothing dies; one handler never ends.
    bool is_stuck() const { return seed_ % 8 == 1; }
    bool was_struck(std::uint32_t rank) const { return struck_.count(rank) != 0; }
    // Also of who came again.
    bool has_left(std::uint32_t rank) const { return left_.count(rank) != 0; }
    // Nothing was struck, nor changed, ever.
    bool is_calm() const { return !is_wild() && struck_.empty() && views_.size() == 1; }
    std::optional<TimePoint> down_since(std::uint32_t rank) const;
    // When this member learnt of another view last; TimePoint::min(): never.
    TimePoint viewed(std::uint32_t rank) const;
    const std::map<std::uint64_t, GroupView>& views() const { return views_; }
    const GroupView& truth() const { return views_.rbegin()->second; }

    // ---- faults and changes --------------------------------------------------------------------
    enum class Blow : std::uint8_t { any, fatal };
    // One rank dies, stops or stands still; perhaps it comes back. Each rank once.
    void strike(std::uint32_t rank, Blow blow = Blow::any);
    void change();
    // One process, mostly a member, stands still for endurance().
    void endure();
    // Members hear of it one after the other; clients don't.
    void decide(const Result<GroupView>& view);
    // All live on, with one view: whoever is down and has not left comes back as another
    // incarnation, and all hear of that within 100 ms.
    void make_whole();
    bool is_over() const { return is_over_; }

  protected:
    ~GroupStage() = default;

    std::set<std::uint32_t> struck_;  // Ranks that something was wrong with.
    std::set<std::string> paused_;
    std::map<std::uint32_t, TimePoint> down_since_;
    TimePoint stirred_ = TimePoint::min();  // When something went wrong or changed last.

  private:
    std::shared_ptr<void> start_process(const std::string& name, Runtime& runtime);
    std::vector<std::string> uris_of(std::uint32_t rank, std::uint32_t shared) const;
    void stand_still(const std::string& name, Duration time);
    void come_back(std::uint32_t rank, std::uint32_t life);
    void join(Process& process, std::uint32_t rank, Runtime& runtime);
    void learn(std::uint32_t rank, const GroupView& later);

    const std::uint32_t ranks_;
    std::set<std::uint32_t> left_;
    std::vector<Methods> methods_;
    std::uint64_t greetings_ = 0;                // Under way.
    std::map<std::uint64_t, GroupView> views_;   // By epoch; the last one is the truth.
    std::vector<std::string> names_;             // Of ranks, then of clients.
    std::map<std::string, Process*> processes_;  // Those that are up.
    std::map<std::string, TimePoint> resumed_;
    std::map<std::uint32_t, TimePoint> viewed_;
    bool is_over_ = false;
};

// Who takes part, in a view.
std::vector<std::uint32_t> participants(const GroupView& view,
                                        const std::optional<RankSet>& include,
                                        const RankSet& exclude);

}  // namespace weft::tool
