// Members that meet: each brings a value under a name, and gets what all of them brought.
//
// Two collectives make a meeting. The leader, the lowest rank that takes part, gathers (each rank's
// handler answers once its own program has come), and then tells all what it came to. Who waits
// asks the leader now and then whether it is still on, so that its death is found.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <weft/call.h>
#include <weft/group.h>

#include "base/timer_wheel.h"
#include "coll/group_impl.h"
#include "coll/wire.h"

namespace weft::coll {

class Engine;

class Meetings {
  public:
    explicit Meetings(Engine& engine) : engine_(engine) {}
    // Registers what members send each other.
    void serve();

    struct Coming {
        std::shared_ptr<GroupImpl> group;
        std::string name;
        std::vector<std::byte> value;
        GroupCallOptions options;  // Without include and exclude, which are:
        std::optional<RankSet> include;
        RankSet exclude;
        TimePoint deadline = never;
        GroupCompletion done;
    };
    // `done` runs in a later turn.
    void come(Coming coming);
    std::size_t running() const { return meetings_.size(); }
    void shutdown();

  private:
    static constexpr std::size_t name_bytes_max = 256;
    static constexpr std::size_t early_most = 4096;  // Gatherings that came before their member.
    static constexpr Duration look_every = 1s;

    using Key = std::pair<std::uint64_t, std::string>;  // Of the group, and the name.
    struct Meeting : base::Timer {
        Meetings* meetings = nullptr;
        Coming coming;
        std::uint32_t leader = 0;
        std::uint64_t round = 0;  // Of the leader's, once he has asked.
        bool leads = false;
        bool looks = false;  // Asks the leader, now.
    };
    struct Early {
        std::uint64_t round = 0;
        std::shared_ptr<Call> call;
    };

    void lead(const Key& key, Meeting& meeting);
    void release(const Key& key, std::uint64_t round, GroupOutcome outcome);
    void on_gather(Call call);
    void on_release(Call call);
    void on_look(Call call);
    static void give(Meeting& meeting, std::uint64_t round, Call& call);
    void on_time(Meeting& meeting, TimePoint now);
    void look(const Key& key, Meeting& meeting);
    void wait(Meeting& meeting, TimePoint now);
    void end(const Key& key, GroupOutcome outcome);
    void end(const Key& key, const Status& why);
    Meeting* find(const Key& key, std::uint64_t round);

    Engine& engine_;
    std::uint64_t next_round_ = 1;
    std::map<Key, std::unique_ptr<Meeting>> meetings_;
    std::map<Key, Early> early_;
};

}  // namespace weft::coll
