// The changes between two views, and the views that follow a change.
#include <weft/group_view.h>

#include <algorithm>
#include <limits>

#include "base/assert.h"

namespace weft {

std::string_view name_of(MemberChange::Cause cause) {
    switch (cause) {
        case MemberChange::Cause::joined: return "joined";
        case MemberChange::Cause::restarted: return "restarted";
        case MemberChange::Cause::moved: return "moved";
        case MemberChange::Cause::draining: return "draining";
        case MemberChange::Cause::left: return "left";
        case MemberChange::Cause::resumed: return "resumed";
    }
    return "unknown";
}

namespace {

class Changes {
  public:
    explicit Changes(std::uint64_t epoch) : epoch_(epoch) {}

    void left(const Member& member) { add(member, Cause::left); }
    void came(const Member& member, MemberChange::Cause how) {
        add(member, how);
        if (member.draining) add(member, Cause::draining);
    }
    void stayed(const Member& before, const Member& after) {
        WEFT_DCHECK(before.rank == after.rank);
        if (after.incarnation != before.incarnation) return came(after, Cause::restarted);
        if (after.uris != before.uris) add(after, Cause::moved);
        if (after.draining == before.draining) return;
        add(after, after.draining ? Cause::draining : Cause::resumed);
    }
    std::vector<MemberChange> take() { return std::move(all_); }

  private:
    using Cause = MemberChange::Cause;
    void add(const Member& member, Cause cause) {
        WEFT_DCHECK(all_.empty() || all_.back().rank <= member.rank);
        all_.push_back({epoch_, member.rank, member.incarnation, cause});
    }

    const std::uint64_t epoch_;
    std::vector<MemberChange> all_;
};

}  // namespace

std::vector<MemberChange> changes_between(const GroupView& before, const GroupView& after) {
    if (before.name() != after.name()) {
        base::abort_misused("changes_between()",
                            ("views of two groups, '" + before.name() + "' and '" + after.name() +
                             "'; give two views of one")
                                .c_str());
    }
    Changes changes(after.epoch());
    auto old = before.members().begin();
    const auto end = before.members().end();
    for (const Member& member : after.members()) {
        while (old != end && old->rank < member.rank) changes.left(*old++);
        if (old != end && old->rank == member.rank) {
            changes.stayed(*old++, member);
        } else {
            changes.came(member, MemberChange::Cause::joined);
        }
    }
    while (old != end) changes.left(*old++);
    return changes.take();
}

static Result<GroupView> next_view(const GroupView& view, std::vector<Member> members) {
    WEFT_ASSERT(view.epoch() != std::numeric_limits<std::uint64_t>::max());
    return GroupView::make(view.name(), view.epoch() + 1, std::move(members));
}

static Status validate_epoch(const GroupView& view) {
    if (view.epoch() != std::numeric_limits<std::uint64_t>::max()) return {};
    return fail(Code::resource_exhausted,
                "group '" + view.name() + "' has no epoch after " + std::to_string(view.epoch()));
}

// OK if all ranks are in the view and it has a next epoch. Stops at the first rank that is missing.
static Status validate_ranks(const GroupView& view, const RankSet& ranks) {
    if (ranks.empty()) return fail(Code::invalid_argument, "the change names no rank");
    for (const RankSet::Range& range : ranks.ranges()) {
        for (std::uint64_t rank = range.first; rank <= range.last; ++rank) {
            if (view.find(static_cast<std::uint32_t>(rank))) continue;
            return fail(Code::not_found, "group '" + view.name() + "' has no rank " +
                                             std::to_string(rank) + " in epoch " +
                                             std::to_string(view.epoch()));
        }
    }
    return validate_epoch(view);
}

Result<GroupView> evict(const GroupView& view, const RankSet& ranks) {
    if (Status status = validate_ranks(view, ranks); !status.ok()) return status;
    if (ranks.size() == view.size()) {
        return fail(Code::failed_precondition,
                    "group '" + view.name() + "' would have no member left");
    }
    std::vector<Member> members = view.members();
    std::erase_if(members, [&](const Member& member) { return ranks.contains(member.rank); });
    WEFT_DCHECK(members.size() + ranks.size() == view.size());
    return next_view(view, std::move(members));
}

Result<GroupView> evict(const GroupView& view, std::uint32_t rank) {
    return evict(view, RankSet{rank});
}

Result<GroupView> drain(const GroupView& view, const RankSet& ranks) {
    if (Status status = validate_ranks(view, ranks); !status.ok()) return status;
    std::vector<Member> members = view.members();
    for (Member& member : members) member.draining |= ranks.contains(member.rank);
    return next_view(view, std::move(members));
}

Result<GroupView> drain(const GroupView& view, std::uint32_t rank) {
    return drain(view, RankSet{rank});
}

Result<GroupView> admit(const GroupView& view, Member member) {
    if (Status status = validate_epoch(view); !status.ok()) return status;
    const Member* const there = view.find(member.rank);
    if (there && member.incarnation <= there->incarnation) {
        return fail(Code::already_exists,
                    "group '" + view.name() + "' has rank " + std::to_string(member.rank) +
                        " already, in incarnation " + std::to_string(there->incarnation));
    }
    if (member.incarnation == 0) member.incarnation = view.epoch() + 1;
    std::vector<Member> members = view.members();
    std::erase_if(members, [&](const Member& old) { return old.rank == member.rank; });
    members.push_back(std::move(member));
    return next_view(view, std::move(members));
}

}  // namespace weft
