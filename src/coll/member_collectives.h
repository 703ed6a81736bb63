// Collectives among members: each member contributes a value under a name, and gets the values of
// all.
//
// A member collective consists of two collectives. The leader, the lowest rank that takes part,
// gathers: each rank's handler replies once the local program has joined. Then the leader releases
// all members with the result. A waiting member probes the leader now and then: so it detects a
// dead leader, and gets a result that it missed.
//
// A member collective is of one leader, by one view. Until the gather arrives, a member follows the
// views that it learns, and may become the leader itself. After it has contributed, it stays with
// its leader to the end, or until that leader has left.
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
#include "coll/collective_origin.h"
#include "coll/group_state.h"
#include "coll/member_collective_wire.h"
#include "coll/pending.h"
#include "core/inherited_scope.h"

namespace weft::coll {

class MemberCollectives {
  public:
    // Registers the methods that members call. `origin`: begins the two collectives at the leader.
    MemberCollectives(CollectiveHost& host, CollectiveOrigin& origin);

    struct Contribution {
        CollectiveId id = 0;
        std::shared_ptr<GroupState> group;
        std::string name;
        std::vector<std::byte> value;
        GroupCallOptions options;  // Without include and exclude, which follow.
        std::optional<RankSet> include;
        RankSet exclude;
        TimePoint deadline = never;
        GroupCompletion done;
    };
    // `done` runs in a later turn, in the scope of this call unless the options detach it.
    void join(Contribution contribution);
    // At the leader it ends for all, at another member for that one only. False: there is none.
    bool cancel(CollectiveId id);
    // The group has a later view here.
    void on_view(const GroupState& group);
    std::size_t running() const { return collectives_.size(); }
    // Outcomes for which members that missed them are expected to probe.
    std::size_t undelivered(TimePoint now) const;
    // Gathers that wait for the local program are refused.
    void drain();
    void shutdown();

  private:
    static constexpr Duration probe_interval = 1s;
    static constexpr Duration probe_timeout = 5s;
    static constexpr Duration probe_expected_for = 3s;  // By a clock that may be slow.
    // Outcomes that a member may have missed: this many of the last ones, of that many bytes
    // together.
    static constexpr std::size_t undelivered_max = 64;
    static constexpr std::size_t undelivered_bytes_max = 16 << 20;

    using Key = std::pair<std::uint64_t, std::string>;  // The group, and the name.
    struct MemberCollective : base::Timer {
        struct ScopeHook : core::ScopedOperation {
            MemberCollective* of = nullptr;
        };
        MemberCollectives* owner = nullptr;
        Contribution contribution;
        std::optional<GroupView> view;  // The view that its leader was chosen by.
        std::uint64_t epoch = 0;        // Of the leader's view.
        std::uint32_t leader = 0;
        std::uint64_t round = 0;  // The leader's, once it has gathered; random.
        ScopeHook scope_hook;
        bool is_leader = false;
        bool cancelled = false;
        CollectiveId current = 0;    // At the leader: the collective that a cancel ends.
        std::uint64_t probe_id = 0;  // The probe under way; 0: none.
    };
    struct PendingGather {
        MemberCollectiveHeader of;
        std::shared_ptr<Call> call;
        Pending<Key>::Slot slot;
    };
    struct UndeliveredResult {
        Key key;
        std::uint64_t round = 0;
        std::vector<std::byte> outcome;
        TimePoint expires_at{};
    };

    static std::string leader_of(std::uint32_t leader);  // For error texts.
    static Key key_of(const MemberCollective& collective);
    static MemberCollectiveHeader header_of(const MemberCollective& collective);
    void join_in_turn(Contribution contribution);
    void follow_leader(MemberCollective& collective, std::uint32_t leader);
    void lead(MemberCollective& collective);
    void release(const Key& key, std::uint64_t round, GroupOutcome outcome);
    void keep_undelivered(const Key& key, std::uint64_t round, const GroupOutcome& released,
                          std::vector<std::byte> outcome);
    void on_gather(Call call);
    void hold_gather(Key key, const MemberCollectiveHeader& header, Call call);
    void fail_gather(const Key& key, const Status& why);
    void fail_gathers_of(std::uint64_t group);
    void on_release(Call call);
    void on_probe(Call call);
    static void contribute(MemberCollective& collective, const MemberCollectiveHeader& to,
                           Call& call);
    void on_timer(MemberCollective& collective, TimePoint now);
    void probe(MemberCollective& collective);
    void on_probe_reply(MemberCollective& collective, const Status& status, ByteView reply,
                        std::uint64_t round);
    void arm_timer(MemberCollective& collective, TimePoint now);
    void on_result(const Key& key, GroupOutcome outcome);
    void end(const Key& key, GroupOutcome outcome);
    void end(const Key& key, const Status& why);
    MemberCollective* find(const Key& key);
    MemberCollective* find(const Key& key, std::uint64_t round);

    CollectiveHost& host_;
    CollectiveOrigin& origin_;
    std::uint64_t next_probe_ = 1;
    std::map<Key, std::unique_ptr<MemberCollective>> collectives_;
    Pending<Key> gather_slots_;
    // Gathers that arrived before the local program joined.
    std::map<Key, PendingGather> pending_gathers_;
    std::deque<UndeliveredResult> undelivered_;  // The oldest first.
    std::size_t undelivered_bytes_ = 0;
};

}  // namespace weft::coll
