// What really happened to each meeting of a simulated group's members, kept outside of it, and
// judged.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <weft/group.h>
#include <weft/time.h>

#include "base/trace_hash.h"
#include "sim/rules.h"

namespace weft::tool {

// A name that members meet under, again and again.
struct Gathering {
    enum class Brings : std::uint8_t { nothing, list, sum };

    std::uint32_t number = 0;
    std::string name;
    Brings brings = Brings::nothing;
    GroupCallOptions options;  // Without include and exclude, which are:
    std::optional<RankSet> include;
    RankSet exclude;
    std::uint32_t ranks = 0;                       // Of the whole group, as it began.
    std::vector<std::uint32_t> attempts;           // By rank, how many it made.
    std::map<std::string, std::uint32_t> unequal;  // Of results that were OK, by what they are.
    // Each of those, once: who is in it with which attempt, in order.
    std::vector<std::vector<std::pair<std::uint32_t, std::uint32_t>>> results;

    bool takes_all() const { return options.policy == Policy::all; }
};

// One call of meet() by one member.
struct Attempt {
    Gathering* of = nullptr;
    std::uint32_t rank = 0;
    std::uint32_t life = 0;
    std::uint32_t number =
        0;  // Of this rank, in this gathering, from 1 on; it names what it brings.
    std::uint64_t epoch = 0;  // Of its view, when it came.
    TimePoint begun{};
    TimePoint deadline = never;
    bool is_calling = true;
    bool is_done = false;
    bool is_judged_late = false;  // It waited too long for one who is dead.
    std::uint32_t result = 0;     // Which of the gathering's; 0: not OK.
    TimePoint ended{};
    Status status;
};

class MeetingLedger {
  public:
    explicit MeetingLedger(Verdict& verdict) : verdict_(verdict) {}

    Attempt& begins(Gathering& of, std::uint32_t rank, std::uint32_t life);
    // `awake_since`: of the member. `calm`: nothing was wrong, and all came in time.
    void completes(Attempt& attempt, const GroupOutcome& outcome, TimePoint now,
                   TimePoint awake_since, bool calm,
                   const std::map<std::uint64_t, GroupView>& views);
    // Of those that are left, when it is all over.
    void close(const Attempt& attempt, bool is_alive);

    std::uint64_t hash() const { return trace_.value(); }
    static std::string describe(const Attempt& attempt);
    // What it brings.
    static std::vector<std::byte> value_of(const Attempt& attempt);

  private:
    using Values = std::vector<std::pair<std::uint32_t, std::uint32_t>>;  // Rank and attempt.

    Values values_in(const Attempt& attempt, const GroupOutcome& outcome);
    void judge_all_ok(const Attempt& attempt, const GroupOutcome& outcome, const Values& values,
                      const std::map<std::uint64_t, GroupView>& views);
    void judge_alike(Attempt& attempt, const GroupOutcome& outcome, Values values);

    Verdict& verdict_;
    std::deque<Attempt> all_;
    base::TraceHash trace_;
};

}  // namespace weft::tool
