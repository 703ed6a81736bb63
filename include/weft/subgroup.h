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

// Subgroup ranks are 0 to size()-1, in order of the members' ranks in the group. Each keeps its
// member when the group changes: a member that has left has an outcome of its own (NOT_FOUND).
// Texts of failures name members by their ranks in the group. Lifetime, thread: as Group.
class Subgroup {
  public:
    // Errors: INVALID_ARGUMENT: no rank, or more than GroupView::members_max; FAILED_PRECONDITION:
    // an empty group.
    static Result<Subgroup> make(Group group, RankSet members);
    // Moving copies, so a Subgroup is never empty.
    Subgroup(const Subgroup&) = default;
    Subgroup& operator=(const Subgroup&) = default;

    std::uint32_t size() const { return table_->size; }
    const Group& group() const { return group_; }
    const RankSet& members() const { return table_->ranks; }
    // Translates a subgroup rank to the group's rank. Requires: rank < size(); anything else aborts
    // the program with a message. Cost: a binary search.
    std::uint32_t rank_in_group(std::uint32_t rank) const;
    // Translates a group's rank to the subgroup rank; nullopt: not a member of the subgroup.
    std::optional<std::uint32_t> own_rank(std::uint32_t rank_in_group) const;

    // As those of Group; the ranks of `include` and `exclude`, of bodies, and of outcomes are
    // subgroup ranks. An unknown rank is INVALID_ARGUMENT.
    CollectiveId collective(const MethodId& method, const BodyWriter& body,
                            const GroupCallOptions& options, GroupCompletion done) const;
    CollectiveId scatter(const MethodId& method, std::span<const RankBody> bodies,
                         const GroupCallOptions& options, GroupCompletion done) const;
    CollectiveId all_gather(std::string_view name, ByteView value, const GroupCallOptions& options,
                            GroupCompletion done) const;
    void cancel(CollectiveId id) const { group_.cancel(id); }
    // Errors: OUT_OF_RANGE, else as Group::channel().
    Result<Channel> channel(std::uint32_t rank) const;

    // As those of Group, so that barrier() and all_gather() (weft/protobuf_group.h) take a
    // Subgroup.
    explicit operator bool() const { return static_cast<bool>(group_); }
    Executor& executor() const { return group_.executor(); }
    bool on_thread() const { return group_.on_thread(); }
    TimePoint deadline(const GroupCallOptions& options) const { return group_.deadline(options); }

  private:
    struct Chosen {
        RankSet include;
        RankSet exclude;
    };
    // Immutable, so that copies share it.
    struct Table {
        explicit Table(RankSet members);
        RankSet ranks;
        // For each range: the subgroup rank of its first member.
        std::vector<std::uint32_t> first_own;
        std::uint32_t size = 0;
    };
    Subgroup(Group group, RankSet members);
    std::size_t range_of(std::uint32_t rank) const;  // Of a subgroup rank.
    Result<RankSet> to_group_ranks(const RankSet& own) const;
    Status no_such_rank(std::uint32_t rank) const;
    Result<Chosen> chosen(const GroupCallOptions& options) const;
    GroupCompletion translate_ranks(GroupCompletion done) const;
    // `begin` gets the options with ranks of the group, and a completion that translates the ranks
    // of the outcome.
    template <class Begin>
    CollectiveId begin(GroupCallOptions options, GroupCompletion done, Begin&& begin) const;

    Group group_;
    std::shared_ptr<const Table> table_;
};

}  // namespace weft
