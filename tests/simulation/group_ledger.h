// What really happened to each collective of a simulation, recorded outside of it, and checked.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <weft/group.h>
#include <weft/time.h>

#include "base/trace_hash.h"
#include "simulation/rules.h"

namespace weft::scenarios {

// The form of a collective's replies and bodies.
enum class Kind : std::uint8_t { list, sum, in_order, scatter };
inline constexpr std::uint32_t kinds = 4;

// The behaviour of one rank's handler in one collective: the same in every life.
struct Duty {
    bool fails = false;
    bool holds = false;  // Until it is cancelled.
    Duration takes{};
    std::uint64_t value = 0;  // Its reply; for in_order that is its rank.
};
Duty duty_of(std::uint64_t number, std::uint32_t rank);

struct CollectiveRecord {
    std::uint64_t number = 0;
    Kind kind = Kind::list;
    std::string origin;
    std::uint32_t origin_life = 0;
    TimePoint submitted{};
    TimePoint deadline = never;
    TimePoint cancelled = never;
    Policy policy = Policy::all;
    std::uint32_t quorum = 0;
    std::optional<RankSet> include;
    RankSet exclude;
    std::uint64_t epoch_known = 0;       // At the origin, at the start.
    std::optional<std::uint32_t> stuck;  // The rank with a handler that holds.

    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t>
        executions;                    // By rank and life.
    std::set<std::uint32_t> answered;  // Ranks with a successful reply.
    bool is_submitting = true;
    bool is_complete = false;
    bool origin_died = false;
    GroupOutcome outcome;
};

// The state of ranks when a collective ended.
struct GroupScene {
    TimePoint now{};
    TimePoint running_since{};  // Of the origin.
    std::uint64_t epoch_last = 0;
    const std::map<std::uint64_t, GroupView>* views = nullptr;  // By epoch.
    // No fault ever hit the rank; the rank was down all the time since then.
    std::function<bool(std::uint32_t)> was_sound;
    std::function<bool(std::uint32_t, TimePoint)> was_down_since;
    // No fault and no change since then.
    std::function<bool(TimePoint)> was_calm_since;
    bool is_checked = false;  // Whether live ranks must be reached: links are whole.
};

class GroupLedger {
  public:
    explicit GroupLedger(RuleResults& results) : results_(results) {}

    CollectiveRecord& begin(CollectiveRecord record) {
        record.number = all_.size();
        all_.push_back(std::make_unique<CollectiveRecord>(std::move(record)));
        return *all_.back();
    }
    // nullptr: no origin requested it.
    CollectiveRecord* executes(std::uint64_t number, std::uint32_t rank, std::uint32_t life,
                               ByteView body);
    void completes(CollectiveRecord& record, GroupOutcome outcome, const GroupScene& conditions);
    std::uint64_t open() const;
    // Checks at the end. `conditions_of`: by the origin of a collective.
    void close(const std::function<GroupScene(const std::string& origin)>& conditions_of);

    const std::vector<std::unique_ptr<CollectiveRecord>>& all() const { return all_; }
    std::uint64_t hash() const { return trace_.value(); }
    static std::string describe(const CollectiveRecord& record);

  private:
    void validate_ranks(const CollectiveRecord& record, const GroupScene& conditions);
    void validate_rank(const CollectiveRecord& record, const RankOutcome& one,
                       const GroupScene& conditions);
    void validate_reply(const CollectiveRecord& record, const RankOutcome& one);
    void validate_merged(const CollectiveRecord& record);
    void validate_status(const CollectiveRecord& record);
    void validate_rest(const CollectiveRecord& record, const GroupScene& conditions);

    RuleResults& results_;
    std::vector<std::unique_ptr<CollectiveRecord>> all_;
    base::TraceHash trace_;
};

}  // namespace weft::scenarios
