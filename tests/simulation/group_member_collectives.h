// Member collectives of a simulated group under faults, and once more after the faults.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "simulation/group_member_ledger.h"
#include "simulation/group_stage.h"

namespace weft::scenarios {

class GroupMemberCollectives {
  public:
    explicit GroupMemberCollectives(GroupStage& stage);
    ~GroupMemberCollectives();

    void plan();
    // No member waits for a dead leader.
    bool is_settled() const;
    // After the faults: rounds for those that a fault interrupted, under their names, and for all
    // under a new one. Lets time pass.
    void run_after_faults();
    // Lets time pass until no member waits; then none may be left.
    void close();
    std::uint64_t hash() const { return ledger_.hash(); }

  private:
    struct Play;

    Play& make(const std::string& name);
    void draw(Play& play);
    void plan_fault_times(const Play& play, Duration at);
    void join(Play& play, std::uint32_t rank);
    void call(Play& play, std::uint32_t rank);
    void on_end(Play& play, Attempt& attempt, const GroupOutcome& outcome);
    void watch();
    void validate_leader(const Play& play, Attempt& attempt);
    std::optional<TimePoint> dead_leader_since(const Play& play, const Attempt& attempt) const;
    bool is_pending(const Attempt* attempt) const;
    bool is_anyone_pending(const Play& play) const;

    // The progress of one name's new rounds.
    enum class Progress : std::uint8_t { running, done, failed };
    bool may_wait_for_departed(const Play& play) const;
    void begin_again(Play& play);
    Progress advance(Play& play);
    void run_under_new_name(const Topology& topology, bool is_checked);

    GroupStage& stage_;
    MemberCollectiveLedger ledger_;
    std::vector<std::unique_ptr<Play>> plays_;
};

}  // namespace weft::scenarios
