// The plan that a parent's request describes, once it is validated.
#include <algorithm>

#include "coll/collective_member.h"

namespace weft::coll {

static Status refused(std::string why) {
    return rejected(Code::failed_precondition, std::move(why));
}

// Checks that the receiver is the member that the request means.
static Status validate_receiver(const Member& meant, const GroupState& group) {
    const GroupView& view = group.view_here();
    const Member* const own = view.find(*group.own_rank);
    if (!own) {
        return refused("rank " + std::to_string(*group.own_rank) + " has left group '" +
                       view.name() + "', which is in epoch " + std::to_string(view.epoch()));
    }
    if (meant.rank != own->rank) {
        return refused("this is rank " + std::to_string(own->rank) + ", not rank " +
                       std::to_string(meant.rank));
    }
    const bool is_other_incarnation =
        meant.incarnation != 0 && own->incarnation != 0 && meant.incarnation != own->incarnation;
    if (is_other_incarnation) {
        return refused("rank " + std::to_string(own->rank) + " is in incarnation " +
                       std::to_string(own->incarnation) + ", not " +
                       std::to_string(meant.incarnation));
    }
    return {};
}

// Checked before decoding: the cost of a list grows with its length.
static Status validate_member_list(ByteView named, std::uint32_t count, const GroupState& group) {
    const GroupView& view = group.view_here();
    const std::size_t members_max = named_max(view);
    const std::size_t bytes_max = named_bytes_max(std::min<std::size_t>(count, members_max));
    if (count <= members_max && named.size() <= bytes_max) return {};
    return rejected(Code::resource_exhausted, "a collective that names " + std::to_string(count) +
                                                  " members in " + std::to_string(named.size()) +
                                                  " bytes: a member of group '" + view.name() +
                                                  "', which has " + std::to_string(view.size()) +
                                                  ", takes at most " + std::to_string(members_max) +
                                                  " in " + std::to_string(bytes_max) + " bytes");
}

Result<std::shared_ptr<const Plan>> CollectiveMember::plan_for(const ForwardView& request,
                                                               GroupState& group) const {
    const ForwardHeader& header = request.header;
    Merge merge;
    merge.reduction.operation = static_cast<Reduction::Operation>(header.operation);
    merge.reduction.number = static_cast<Reduction::Number>(header.number);
    merge.reduction.ordered = header.has(ForwardHeader::ordered);
    merge.function = host_.server().merge_of(header.method);
    const bool by_host = header.has(ForwardHeader::by_host);
    if (!request.named.empty()) {
        const std::uint32_t count = header.last - header.first;
        if (Status status = validate_member_list(request.named, count, group); !status.ok())
            return status;
        Result<MemberList> members = decode_members(request.named, count);
        if (!members) return rejected(std::move(members).status());
        if (Status status = validate_receiver(members->at(0), group); !status.ok()) return status;
        auto plan = std::make_shared<Plan>();
        plan->rank_order =
            std::make_shared<RankOrder>(header.first, *std::move(members), header.root, by_host);
        plan->view = header.view;
        plan->group = header.group;
        plan->name = group.view_here().name();
        plan->epoch = header.epoch;
        plan->method = header.method;
        plan->tree = header.tree;
        plan->merge = merge;
        plan->flags = header.plan_flags();
        return std::shared_ptr<const Plan>(std::move(plan));
    }
    const GroupView& view = group.view_here();
    // A choice among the members of a view has at most as many ranges as members.
    if (header.ranges > view.size()) {
        return rejected(Code::invalid_argument, "a choice of " + std::to_string(header.ranges) +
                                                    " ranges among " + std::to_string(view.size()) +
                                                    " members");
    }
    Result<std::vector<RankSet::Range>> ranges = decode_ranges(request.ranges);
    if (!ranges) return rejected(std::move(ranges).status());
    const std::uint32_t n = members_among(view, *ranges);
    if (n == view.size()) ranges->clear();  // A choice of all members costs nothing.
    if (header.root >= n || header.last > n) {
        return rejected(Code::invalid_argument, "a collective with an impossible subtree");
    }
    auto rank_order = group.rank_order({view, *std::move(ranges), header.root, by_host});
    if (Status status = validate_receiver(rank_order->at(header.first), group); !status.ok())
        return status;
    return group.plan(std::move(rank_order), header.method, header.tree, merge,
                      header.plan_flags());
}

}  // namespace weft::coll
