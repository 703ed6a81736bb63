// Some members of a group, with ranks of their own.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <weft/group.h>

namespace weft {

// Its ranks are 0 to size()-1, in order of the members' ranks in the group. They stay who they are
// when the group changes: who has left it is an outcome of its own (NOT_FOUND). Texts of failures
// name members by their ranks in the group. Lifetime, thread: as Group.
class Subgroup {
  public:
    // Errors: INVALID_ARGUMENT: no rank, or more than GroupView::members_max; FAILED_PRECONDITION:
    // an empty group.
    static Result<Subgroup> make(Group group, RankSet members);
    // Never empty: to move one is to copy it.
    Subgroup(const Subgroup&) = default;
    Subgroup& operator=(const Subgroup&) = default;

    std::uint32_t size() const { return table_->size; }
    const Group& group() const { return group_; }
    const RankSet& members() const { return table_->ranks; }
    // Of one of its ranks in the group. Requires: rank < size(); anything else aborts the
    // program and says so. Cost: a binary search.
    std::uint32_t rank_in_group(std::uint32_t rank) const;
    // Its own of a member; nothing: it is none of its members.
    std::optional<std::uint32_t> own_rank(std::uint32_t rank_in_group) const;

    // As Group's; the ranks of `include` and `exclude`, of bodies, and of what comes of it are its
    // own. A rank that it does not have is INVALID_ARGUMENT.
    CollectiveId collective(const MethodId& method, const BodyWriter& body,
                            const GroupCallOptions& options, GroupCompletion done) const;
    CollectiveId scatter(const MethodId& method, std::span<const RankBody> bodies,
                         const GroupCallOptions& options, GroupCompletion done) const;
    CollectiveId meet(std::string_view name, ByteView value, const GroupCallOptions& options,
                      GroupCompletion done) const;
    void cancel(CollectiveId id) const { group_.cancel(id); }
    // Errors: OUT_OF_RANGE, else as Group::channel().
    Result<Channel> channel(std::uint32_t rank) const;

    // As the group's, so that barrier() and meet() (weft/protobuf_group.h) take it.
    explicit operator bool() const { return static_cast<bool>(group_); }
    Executor& executor() const { return group_.executor(); }
    bool on_thread() const { return group_.on_thread(); }
    TimePoint deadline(const GroupCallOptions& options) const { return group_.deadline(options); }

  private:
    struct Chosen {
        RankSet include;
        RankSet exclude;
    };
    // Never changed once it is made, so that copies share it.
    struct Table {
        explicit Table(RankSet members);
        RankSet ranks;
        std::vector<std::uint32_t> first_own;  // Of each range the first one's own rank.
        std::uint32_t size = 0;
    };
    Subgroup(Group group, RankSet members);
    std::size_t range_of(std::uint32_t rank) const;  // Of one of its own ranks.
    Result<RankSet> in_group(const RankSet& own) const;
    Status no_such_rank(std::uint32_t rank) const;
    Result<Chosen> chosen(const GroupCallOptions& options) const;
    GroupCompletion translated(GroupCompletion done) const;
    // `begin` gets the options as the group takes them, and a completion that translates.
    template <class Begin>
    CollectiveId begin(GroupCallOptions options, GroupCompletion done, Begin&& begin) const;

    Group group_;
    std::shared_ptr<const Table> table_;
};

}  // namespace weft
