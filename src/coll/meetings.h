// Members that meet: each brings a value under a name, and gets what all of them brought.
//
// Two collectives make a meeting. The leader, the lowest rank that takes part, gathers (each rank's
// handler answers once its own program has come), and then tells all what it came to. Who waits
// looks now and then whether the leader lives, and gets from him what it was not told.
//
// A meeting is of one leader, by one view. Until his leader has asked him a member follows the
// views that he learns: the leader is another one then, perhaps himself. Once he has given his
// value he stays with that leader to the end, or until that one has left.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <weft/call.h>
#include <weft/group.h>

#include "base/timer_wheel.h"
#include "coll/gathering.h"
#include "coll/group_impl.h"
#include "coll/pending.h"
#include "core/scope.h"

namespace weft::coll {

class Engine;

class Meetings {
  public:
    explicit Meetings(Engine& engine) : engine_(engine) {}
    // Registers what members send each other.
    void serve();

    struct Coming {
        CollectiveId id = 0;
        std::shared_ptr<GroupImpl> group;
        std::string name;
        std::vector<std::byte> value;
        GroupCallOptions options;  // Without include and exclude, which are:
        std::optional<RankSet> include;
        RankSet exclude;
        TimePoint deadline = never;
        GroupCompletion done;
    };
    // `done` runs in a later turn, in the scope that this is called in unless it is detached.
    void come(Coming coming);
    // The leader's ends for all; another's for himself only. False: there is none.
    bool cancel(CollectiveId id);
    // The group has a later view here.
    void on_view(const GroupImpl& group);
    std::size_t running() const { return meetings_.size(); }
    // Outcomes that members which missed them are about to look for.
    std::size_t owed(TimePoint now) const;
    // Gatherings that wait for this rank's own program are refused.
    void drain();
    void shutdown();

  private:
    static constexpr Duration look_every = 1s;
    static constexpr Duration look_timeout = 5s;
    static constexpr Duration owed_for = 3s;  // By a clock that may be slow.
    // What somebody may not have been told: so many of the last ones, of so many bytes together.
    static constexpr std::size_t untold_most = 64;
    static constexpr std::size_t untold_bytes_most = 16 << 20;

    using Key = std::pair<std::uint64_t, std::string>;  // Of the group, and the name.
    struct Meeting : base::Timer {
        struct MadeIn : core::InScope {
            Meeting* of = nullptr;
        };
        Meetings* meetings = nullptr;
        Coming coming;
        std::optional<GroupView> view;  // That it is led by, as far as is known here.
        std::uint64_t epoch = 0;        // Of the leader's.
        std::uint32_t leader = 0;
        std::uint64_t round = 0;  // Of the leader's, once he has asked; random.
        MadeIn made_in;
        bool leads = false;
        bool cancelled = false;
        CollectiveId under_way = 0;  // Where it leads: what a cancel ends.
        std::uint64_t looking = 0;   // Names the look that is under way; 0: none is.
    };
    struct Early {
        Gathering of;
        std::shared_ptr<Call> call;
        Pending<Key>::Place place;
    };
    struct Untold {
        Key key;
        std::uint64_t round = 0;
        std::vector<std::byte> outcome;
        TimePoint owed_until{};
    };

    static std::string who_leads(std::uint32_t leader);  // For people.
    static Key key_of(const Meeting& meeting);
    static Gathering gathering_of(const Meeting& meeting);
    void come_in_turn(Coming coming);
    void follow(Meeting& meeting, std::uint32_t leader);
    void lead(Meeting& meeting);
    void release(const Key& key, std::uint64_t round, GroupOutcome outcome);
    void keep_untold(const Key& key, std::uint64_t round, const GroupOutcome& told,
                     std::vector<std::byte> outcome);
    void on_gather(Call call);
    void hold(Key key, const Gathering& gathering, Call call);
    void drop_early(const Key& key, const Status& why);
    void drop_all_early(std::uint64_t group);
    void on_release(Call call);
    void on_look(Call call);
    static void give(Meeting& meeting, const Gathering& to, Call& call);
    void on_time(Meeting& meeting, TimePoint now);
    void look(Meeting& meeting);
    void on_looked(Meeting& meeting, const Status& status, ByteView reply, std::uint64_t round);
    void wait(Meeting& meeting, TimePoint now);
    void take_end(const Key& key, GroupOutcome outcome);
    void end(const Key& key, GroupOutcome outcome);
    void end(const Key& key, const Status& why);
    Meeting* find(const Key& key);
    Meeting* find(const Key& key, std::uint64_t round);

    Engine& engine_;
    std::uint64_t next_look_ = 1;
    std::map<Key, std::unique_ptr<Meeting>> meetings_;
    Pending<Key> pending_;
    std::map<Key, Early> early_;  // Gatherings that came before their member.
    std::deque<Untold> untold_;   // The last one at the end.
    std::size_t untold_bytes_ = 0;
};

}  // namespace weft::coll
