// Collectives of other origins at this rank: receives their requests, forwards them and runs their
// methods, and remembers them for requests that are repeated.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "coll/collective_host.h"
#include "coll/collective_table.h"
#include "coll/group_state.h"
#include "coll/member_driver.h"
#include "coll/wire.h"

namespace weft::coll {

class CollectiveMember final : private MemberDriver::Owner {
  public:
    // Registers the methods that parents call.
    explicit CollectiveMember(CollectiveHost& host);

    // From here on this runtime takes part as `group->own_rank`. Errors: ALREADY_EXISTS.
    Status join(std::shared_ptr<GroupState> group);
    // The joined group of this name, whatever its view is; nullptr: none.
    std::shared_ptr<GroupState> joined(std::string_view name) const;
    // Forgets every group, since groups refer back to the runtime.
    void leave_all() { groups_.clear(); }
    void shutdown();

    // Collectives that are remembered for repeated requests.
    std::size_t known() const { return table_.collectives(); }
    bool is_sweeping() const { return sweeping_.is_linked(); }
    // Collectives for which a parent is expected to return: it got a partial reply, or was lost.
    // They may have completed, or still run at ranks below.
    std::size_t parents_expected();

  private:
    struct Sweeping : base::Timer {
        CollectiveMember* member = nullptr;
    };

    void on_view(Call call) const;
    void on_forward(Call call);
    void reply_expired(Call& call) const;
    ClientKey client_of(const ForwardHeader& header, const SessionKey& peer) const;
    Status why_no_room(const ClientKey& client, std::size_t bytes) const;
    std::shared_ptr<GroupState> find_group(const ForwardHeader& header) const;
    Result<std::shared_ptr<const Plan>> plan_for(const ForwardView& request,
                                                 GroupState& group) const;
    void start_member(const ForwardView& request, TimePoint began,
                      std::shared_ptr<GroupState> group, Call call);
    // With its resources reserved, and not begun.
    Result<std::shared_ptr<MemberDriver>> make_member(const ForwardView& request, TimePoint began,
                                                      std::shared_ptr<GroupState> group,
                                                      const Call& call);
    void on_repeated_request(const ForwardHeader& header, Call call);
    void expect_parent(MemberDriver& collective) override;
    void on_done(MemberDriver& collective) override;

    CollectiveHost& host_;
    std::vector<std::shared_ptr<GroupState>> groups_;
    CollectiveTable<MemberDriver> table_;  // Of other origins, with this rank in them.
    Sweeping sweeping_;                    // Armed while the table has entries.
    std::vector<std::weak_ptr<CollectiveDriver>> parents_expected_;  // MemberDrivers.
    std::size_t parents_expected_next_ = 64;  // At this size expired ones are dropped.
};

}  // namespace weft::coll
