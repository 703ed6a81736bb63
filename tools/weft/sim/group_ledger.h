// What really happened to each collective of a simulation, kept outside of it, and judged.
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
#include "sim/rules.h"

namespace weft::tool {

// What becomes of the replies of a collective, and of its bodies.
enum class Kind : std::uint8_t { list, sum, in_order, scatter };
inline constexpr std::uint32_t kinds = 4;

// What one rank's handler does with one collective: the same in every life.
struct Duty {
    bool fails = false;
    bool holds = false;  // Until it is cancelled.
    Duration takes{};
    std::uint64_t value = 0;  // What it replies, but in_order, where that is its rank.
};
Duty duty_of(std::uint64_t number, std::uint32_t rank);

struct Told {
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
    std::uint64_t epoch_known = 0;       // To whoever began it, then.
    std::optional<std::uint32_t> stuck;  // Its handler holds.

    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t>
        executions;                    // By rank and life.
    std::set<std::uint32_t> answered;  // By their handlers, with success.
    bool is_submitting = true;
    bool is_complete = false;
    bool origin_died = false;
    GroupOutcome outcome;
};

// What was known of ranks when a collective ended.
struct GroupScene {
    TimePoint now{};
    TimePoint awake_since{};  // The origin.
    std::uint64_t epoch_last = 0;
    const std::map<std::uint64_t, GroupView>* views = nullptr;  // By epoch.
    // Nothing went wrong with the rank, ever; it was down all the time since then.
    std::function<bool(std::uint32_t)> was_sound;
    std::function<bool(std::uint32_t, TimePoint)> was_down_since;
    // Nothing at all was wrong, nor changed, since then.
    std::function<bool(TimePoint)> was_calm_since;
    bool is_judged = false;  // Whether who lives is reached: links are whole.
};

class GroupLedger {
  public:
    explicit GroupLedger(Verdict& verdict) : verdict_(verdict) {}

    Told& begin(Told told) {
        told.number = all_.size();
        all_.push_back(std::make_unique<Told>(std::move(told)));
        return *all_.back();
    }
    // nullptr: nobody asked for it.
    Told* executes(std::uint64_t number, std::uint32_t rank, std::uint32_t life, ByteView body);
    void completes(Told& told, GroupOutcome outcome, const GroupScene& scene);
    std::uint64_t open() const;
    // Of what has to fit at the end. `scene_of`: of the origin of one.
    void close(const std::function<GroupScene(const std::string& origin)>& scene_of);

    const std::vector<std::unique_ptr<Told>>& all() const { return all_; }
    std::uint64_t hash() const { return trace_.value(); }
    static std::string describe(const Told& told);

  private:
    void judge_ranks(const Told& told, const GroupScene& scene);
    void judge_rank(const Told& told, const RankOutcome& one, const GroupScene& scene);
    void judge_reply(const Told& told, const RankOutcome& one);
    void judge_merged(const Told& told);
    void judge_verdict(const Told& told);
    void judge_rest(const Told& told, const GroupScene& scene);

    Verdict& verdict_;
    std::vector<std::unique_ptr<Told>> all_;
    base::TraceHash trace_;
};

}  // namespace weft::tool
