// What really happened to each member collective of a simulated group, recorded outside of it, and
// checked.
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
#include "simulation/rules.h"

namespace weft::scenarios {

// A name of member collectives, used again and again.
struct NamedCollective {
    enum class Input : std::uint8_t { nothing, list, sum };

    std::uint32_t number = 0;
    std::string name;
    Input input = Input::nothing;
    GroupCallOptions options;  // Without include and exclude, which follow.
    std::optional<RankSet> include;
    RankSet exclude;
    std::uint32_t ranks = 0;                       // Of the whole group, at its start.
    std::vector<std::uint32_t> attempts;           // By rank, how many it made.
    std::map<std::string, std::uint32_t> unequal;  // Distinct results with OK, by their bytes.
    // Each of those, once: its ranks with their attempts, in order.
    std::vector<std::vector<std::pair<std::uint32_t, std::uint32_t>>> results;

    bool takes_all() const { return options.policy == Policy::all; }
};

// One call of all_gather() by one member.
struct Attempt {
    NamedCollective* of = nullptr;
    std::uint32_t rank = 0;
    std::uint32_t life = 0;
    // Of this rank under this name, from 1 on; it identifies the value.
    std::uint32_t number = 0;
    std::uint64_t epoch = 0;  // Of its view, when it joined.
    TimePoint begun{};
    TimePoint deadline = never;
    bool is_calling = true;
    bool is_done = false;
    bool is_judged_late = false;  // It waited too long for a dead leader.
    std::uint32_t result = 0;     // The number of its result; 0: not OK.
    TimePoint ended{};
    Status status;
};

class MemberCollectiveLedger {
  public:
    explicit MemberCollectiveLedger(RuleResults& results) : results_(results) {}

    Attempt& begins(NamedCollective& of, std::uint32_t rank, std::uint32_t life);
    // `running_since`: of the member. `calm`: no fault, and all joined in time.
    void completes(Attempt& attempt, const GroupOutcome& outcome, TimePoint now,
                   TimePoint running_since, bool calm,
                   const std::map<std::uint64_t, GroupView>& views);
    // Checks a remaining attempt at the end.
    void close(const Attempt& attempt, bool is_alive);

    std::uint64_t hash() const { return trace_.value(); }
    static std::string describe(const Attempt& attempt);
    // The value that it contributes.
    static std::vector<std::byte> value_of(const Attempt& attempt);

  private:
    using Values = std::vector<std::pair<std::uint32_t, std::uint32_t>>;  // Rank and attempt.

    Values values_in(const Attempt& attempt, const GroupOutcome& outcome);
    void validate_all_ok(const Attempt& attempt, const GroupOutcome& outcome, const Values& values,
                         const std::map<std::uint64_t, GroupView>& views);
    void validate_agreement(Attempt& attempt, const GroupOutcome& outcome, Values values);

    RuleResults& results_;
    std::deque<Attempt> all_;
    base::TraceHash trace_;
};

}  // namespace weft::scenarios
