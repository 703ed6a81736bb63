// The collectives of one runtime: as their origin, as a member of the groups that the runtime has
// joined, and among members. Composes the parts; docs/collectives-protocol.md describes the
// protocol.
//
// A collective is sent as calls of weft.Collective/Forward (wire.h). The state of one rank is its
// CollectiveState (collective_state.h), driven over calls by a CollectiveDriver. Thread: the
// context's, unless noted.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <weft/options.h>

#include "coll/collective_host.h"
#include "coll/collective_member.h"
#include "coll/collective_origin.h"
#include "coll/member_collectives.h"

namespace weft::coll {

class Engine {
  public:
    Engine(core::Context& context, rpc::Server& server, CollectiveHost::Connect connect,
           CollectiveHost::RunOnContext run, std::size_t reply_bytes_max)
        : host_(context, server, std::move(connect), std::move(run), reply_bytes_max) {}

    // A group that this runtime knows; `owner` keeps the runtime alive.
    std::shared_ptr<GroupState> make_group(std::shared_ptr<void> owner, GroupView view);
    Status join(std::shared_ptr<GroupState> group);
    std::shared_ptr<GroupState> joined(std::string_view name) const { return member_.joined(name); }
    void on_change(const std::shared_ptr<GroupState>& group,
                   Function<void(const MemberChange&)> listener);

    void start(CollectiveRequest request) { origin_.start(std::move(request)); }
    // Cancels a collective or a member collective. False: there is none of that number.
    bool cancel(CollectiveId id) { return origin_.cancel(id) || member_collectives_.cancel(id); }
    // The runtime begins to shut down: gathers that wait for the local program are refused.
    void drain() { member_collectives_.drain(); }
    void shutdown();
    template <class Work>
    void in_turn(Work&& work) const {
        host_.in_turn(std::forward<Work>(work));
    }

    CollectiveHost& host() { return host_; }
    MemberCollectives& member_collectives() { return member_collectives_; }
    std::size_t running() const { return host_.running(); }
    std::size_t delivering() const { return origin_.delivering(); }
    std::size_t known() const { return member_.known(); }
    bool is_sweeping() const { return member_.is_sweeping(); }
    // As CollectiveMember::parents_expected(), and outcomes that members are expected to fetch.
    std::size_t parents_expected();
    Ticks clock_reading() const { return host_.clock_reading(); }

    Duration default_timeout = RuntimeOptions().default_timeout;

  private:
    CollectiveHost host_;
    CollectiveOrigin origin_{host_};
    CollectiveMember member_{host_};
    MemberCollectives member_collectives_{host_, origin_};
    // Their listeners may own them: shutdown() clears them.
    std::vector<std::weak_ptr<GroupState>> listened_groups_;
};

}  // namespace weft::coll
