// One group as this runtime knows it: its view, channels to its members as they are needed, and who
// wants to hear of changes. Thread: the context's.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include <weft/group.h>

#include "coll/costs.h"
#include "coll/part.h"
#include "coll/peer_clock.h"
#include "core/reach.h"

namespace weft::coll {

class Engine;

class GroupImpl : public std::enable_shared_from_this<GroupImpl> {
  public:
    GroupImpl(Engine& of, std::shared_ptr<void> owner, GroupView with);

    // Any thread, under the lock of its own.
    GroupView view() const;
    // The same for the context's thread, which alone changes it.
    const GroupView& view_here() const { return view_; }
    // That one encoded: once, however often peers ask for it.
    const std::string& encoded_view();
    // Whether all members of it take part in what begins, unless it says otherwise.
    bool takes_all(const GroupView& view);

    // Errors: OUT_OF_RANGE: no such rank.
    Result<Channel> channel(std::uint32_t rank);
    Result<Channel> channel(const Member& member);
    // What is known of its clock; nullptr of a member that has no channel here that is kept.
    PeerClock* clock_of(const Member& member);
    // Errors: INVALID_ARGUMENT, ABORTED (Group::install).
    Status install(const GroupView& later);
    // The same of one that a member told: what it names is reached as what peers name is.
    Status learn(const GroupView& later);
    void on_change(Function<void(const MemberChange&)> told);
    // Forgets who wants to hear of changes.
    void stop_telling() { told_.clear(); }

    // Shared with one of the last plans, where that is like it.
    std::shared_ptr<const Roster> roster(Roster::Parts parts);
    // The plan of a collective, shared with the last ones like it. Requires: of roster().
    std::shared_ptr<const Plan> plan(std::shared_ptr<const Roster> roster, std::uint64_t method,
                                     const Tree& tree, const Merge& merge, std::uint8_t flags);

    // Whether it has several hosts, and fewer than members: two levels are worth it.
    bool shares_hosts(const GroupView& view);

    // `done` follows when a member's view has been asked for. True: nobody has asked yet.
    bool wait_to_learn(Function<void()> done);
    void has_learnt();

    Engine& engine;
    const std::uint64_t name_hash;  // method_hash() of the group's name, which stays.
    Costs costs;
    std::optional<std::uint32_t> own_rank;  // When this runtime is, or was, a member.

  private:
    static constexpr std::size_t plans_most = 4;
    struct Link {
        std::vector<std::string> uris;
        Channel channel;
        PeerClock clock;
        bool is_by_word = false;  // Of a peer: not all of the addresses may be used.
    };

    const core::Reach& own_reach();
    std::shared_ptr<const HostOrder> host_order(const GroupView& view);

    std::shared_ptr<void> owner_;  // Keeps the engine.
    mutable std::mutex mutex_;     // Guards the view.
    GroupView view_;
    GroupView own_view_;                             // The last one that the program gave.
    std::optional<core::Reach> own_reach_;           // Of that, once it was needed.
    std::unordered_map<std::uint32_t, Link> links_;  // By rank.
    std::vector<std::shared_ptr<Function<void(const MemberChange&)>>> told_;
    std::vector<std::shared_ptr<const Plan>> plans_;  // The last first.
    std::shared_ptr<const HostOrder> host_order_;     // Of the view, once it was needed.
    std::optional<bool> takes_all_;
    std::string encoded_view_;                // Likewise.
    std::vector<Function<void()>> learning_;  // Who waits for a member's view.
};

}  // namespace weft::coll
