// One group as this runtime knows it: its view, channels to its members as needed, and the
// listeners for changes. Thread: the context's.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include <weft/group.h>

#include "coll/collective_state.h"
#include "coll/costs.h"
#include "coll/peer_clock.h"
#include "core/connect_policy.h"

namespace weft::coll {

class CollectiveHost;

class GroupState {
  public:
    // `on_later_view`: called, in a turn, when a later view is installed.
    using OnLaterView = std::function<void(const GroupState&)>;
    // `owner`: keeps the host alive.
    GroupState(CollectiveHost& host, std::shared_ptr<void> owner, GroupView with,
               OnLaterView on_later_view);

    // Thread: any; takes the lock.
    GroupView view() const;
    // The same without the lock, for the context's thread, which alone changes it.
    const GroupView& view_here() const { return view_; }
    // The encoded view: encoded once, however often peers request it.
    const std::string& encoded_view();
    // Whether all members of the view take part in a collective without include and exclude.
    bool all_participate(const GroupView& view);

    // Errors: OUT_OF_RANGE: no such rank.
    Result<Channel> channel(std::uint32_t rank);
    Result<Channel> channel(const Member& member);
    // The known clock of the member; nullptr: it has no channel that is kept.
    PeerClock* clock_of(const Member& member);
    // Errors: INVALID_ARGUMENT, ABORTED (Group::install).
    Status install(const GroupView& later);
    // The same for a view that a member reported: its addresses are used like those that peers
    // name.
    Status install_from_peer(const GroupView& later);
    void on_change(Function<void(const MemberChange&)> listener);
    bool has_listeners() const { return !listeners_.empty(); }
    // Forgets the listeners.
    void clear_listeners() { listeners_.clear(); }

    // Shared with one of the last plans if it matches.
    std::shared_ptr<const RankOrder> rank_order(RankOrder::Params params);
    // The plan of a collective, shared with the last ones that equal it. Requires: `rank_order` is
    // from rank_order().
    std::shared_ptr<const Plan> plan(std::shared_ptr<const RankOrder> rank_order,
                                     std::uint64_t method, const Tree& tree, const Merge& merge,
                                     std::uint8_t flags);

    // Whether it has several hosts, and fewer hosts than members: then two levels pay.
    bool shares_hosts(const GroupView& view);

    // `done` runs when a member's view has been fetched. True: no fetch is under way yet.
    bool wait_for_view(Function<void()> done);
    void on_view_fetched();

    const std::uint64_t name_hash;  // method_hash() of the group's name, which never changes.
    Costs costs;
    std::optional<std::uint32_t> own_rank;  // When this runtime is, or was, a member.

  private:
    static constexpr std::size_t plans_max = 4;
    struct MemberChannel {
        std::vector<std::string> uris;
        Channel channel;
        PeerClock clock;
        bool is_from_peer = false;  // Named by a peer: not all addresses may be used.
    };

    const core::ConnectPolicy& own_reach();
    std::shared_ptr<const HostOrder> host_order(const GroupView& view);

    // ---- constant
    CollectiveHost& host_;
    const std::shared_ptr<void> owner_;
    const OnLaterView on_later_view_;

    // ---- the view
    mutable std::mutex mutex_;  // Guards `view_` against readers on other threads.
    GroupView view_;
    GroupView own_view_;                          // The last one that the program gave.
    std::vector<Function<void()>> view_waiters_;  // For wait_for_view().
    std::vector<std::shared_ptr<Function<void(const MemberChange&)>>> listeners_;

    // ---- derived from a view, once needed; reset with that view
    std::optional<core::ConnectPolicy> own_reach_;  // Of `own_view_`.
    std::shared_ptr<const HostOrder> host_order_;   // Of `view_`, as the following.
    std::optional<bool> all_participate_;
    std::string encoded_view_;
    std::vector<std::shared_ptr<const Plan>> plans_;  // Most recent first.

    // ---- by rank, as long as the rank is in the view
    std::unordered_map<std::uint32_t, MemberChannel> member_channels_;
};

}  // namespace weft::coll
