// Members of a simulated group meet, whatever happens to them meanwhile; and once more when all is
// well again.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sim/group_meeting_ledger.h"
#include "sim/group_stage.h"

namespace weft::tool {

class GroupMeetings {
  public:
    explicit GroupMeetings(GroupStage& stage);
    ~GroupMeetings();

    void plan();
    // Nobody waits for one who is down.
    bool is_settled() const;
    // When nothing is wrong any more: those that something came between, under their names, and all
    // under a new one. Lets time pass.
    void meet_again();
    // Lets time pass until nobody waits any more; then nothing may be left.
    void close();
    std::uint64_t hash() const { return ledger_.hash(); }

  private:
    struct Play;

    Play& make(const std::string& name);
    void draw(Play& play);
    void plan_trouble(const Play& play, Duration at);
    void come(Play& play, std::uint32_t rank);
    void call(Play& play, std::uint32_t rank);
    void on_end(Play& play, Attempt& attempt, const GroupOutcome& outcome);
    void watch();
    void judge_leader(const Play& play, Attempt& attempt);
    std::optional<TimePoint> dead_leader_since(const Play& play, const Attempt& attempt) const;
    bool is_pending(const Attempt* attempt) const;
    bool is_anyone_pending(const Play& play) const;

    // How one name's new rounds stand.
    enum class Stand : std::uint8_t { goes_on, done, failed };
    bool may_wait_for_gone(const Play& play) const;
    void begin_again(Play& play);
    Stand go_on(Play& play);
    void meet_anew(const Topology& topology, bool is_judged);

    GroupStage& stage_;
    MeetingLedger ledger_;
    std::vector<std::unique_ptr<Play>> plays_;
};

}  // namespace weft::tool
