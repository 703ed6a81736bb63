// Calling a server group as one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <weft/channel.h>
#include <weft/executor.h>
#include <weft/group_options.h>
#include <weft/group_view.h>
#include <weft/result.h>

namespace weft {

namespace coll {
class GroupImpl;
}
namespace detail {
Status empty_group();
}

// What one rank answered to a collective; for each that takes part there is exactly one.
struct RankOutcome {
    std::uint32_t rank = 0;
    Status status;  // Of the rank itself: those below one that died are asked by others.
    std::vector<std::byte> reply;   // Empty where replies are merged.
    std::uint64_t incarnation = 0;  // Of the rank, in the caller's view.
};

// What a collective came to.
struct GroupOutcome {
    // By its policy. Not OK: that of the first rank that failed, by rank, which its text names; or,
    // without ranks, why it did not begin, or why nothing is known of any. Its effect is that of
    // all together: none when every rank's is, unknown when one's is.
    Status status;
    std::vector<RankOutcome> ranks;  // In order of rank.
    // With a reduction: of the ranks that have OK.
    std::vector<std::byte> merged;
    std::uint64_t epoch = 0;  // Of the view that it ran in.
};

using GroupCompletion = Function<void(GroupOutcome), 64>;

// Names a collective or a meeting, for cancel(). 0: none.
using CollectiveId = std::uint64_t;

// What one rank of a scatter gets.
struct RankBody {
    std::uint32_t rank = 0;
    ByteView body;
};

// A handle on a group, for members and for outside clients: copies are the same one. Thread: as
// Channel.
//
// Empty when default-made or moved from: collectives and meetings end inside the call with
// FAILED_PRECONDITION and no ranks, install() and channel() return that, the view is the empty one,
// cancel() does nothing; on_change() and executor() abort the program and say so.
class Group {
  public:
    Group() = default;
    explicit Group(std::shared_ptr<coll::GroupImpl> impl) : impl_(std::move(impl)) {}

    // Runs the method on every rank, through a tree: `done` gets one outcome per rank, once, by the
    // deadline. RuntimeOptions::argument_bytes_max limits the request, and what a member answers
    // for its whole subtree. Errors, in the outcome: RESOURCE_EXHAUSTED for a full queue;
    // FAILED_PRECONDITION for a view that the members have no more and none could be learnt of;
    // INVALID_ARGUMENT for options that can't be.
    CollectiveId collective(const MethodId& method, const BodyWriter& body,
                            const GroupCallOptions& options, GroupCompletion done) const;
    // The same where each rank gets a body of its own: those who are named by them take part, in
    // any order, each once; include and exclude have to be open. They are copied.
    CollectiveId scatter(const MethodId& method, std::span<const RankBody> bodies,
                         const GroupCallOptions& options, GroupCompletion done) const;
    // It completes with CANCELLED in the ranks that have not answered, and their handlers are told.
    // A meeting ends here; its leader's ends for all. When all have come and he tells them what
    // came of it, he has that at once, and who was not told yet finds it within a second or two.
    // One that completed early, by its policy, does not go on; of one that has ended it does
    // nothing. Thread: any.
    void cancel(CollectiveId id) const;

    // ---- members that meet ---------------------------------------------------------------------
    // For members, each of which calls it once under the same `name` (at most 256 bytes, not in use
    // by another meeting meanwhile) and with the same options. Completes once all have, with what
    // they brought: a list (allgather), or with a reduction (but by a method) their merged value
    // (allreduce); all get the same. A barrier is a meeting where nothing is brought. Policies
    // other than `all` are of the leader's: without a reduction others' missing does not hold up.
    // The lowest rank that takes part leads; when it dies or leaves, the others' end with
    // UNAVAILABLE, and may be called again. Until he has asked a member it follows the views that
    // it learns, and so the leader of the latest; where members know of different views, a meeting
    // may end with ABORTED, and may be called again. Errors also: FAILED_PRECONDITION: no member,
    // or another of that name here; RESOURCE_EXHAUSTED, for all: what they brought is too large for
    // a message (RuntimeOptions::argument_bytes_max).
    CollectiveId meet(std::string_view name, ByteView value, const GroupCallOptions& options,
                      GroupCompletion done) const;

    // ---- the view ------------------------------------------------------------------------------
    // The latest that is known here.
    GroupView view() const;
    // For whoever decides on the group: from here on it is this one, for the members that this
    // runtime is, and for this handle. Errors: INVALID_ARGUMENT: another name; ABORTED: not later
    // than the one that is known.
    Status install(const GroupView& view) const;
    // `told` hears of each change from now on, in order, in turns of its own, from which anything
    // may be called. So do those of earlier calls, as long as the group is there.
    void on_change(Function<void(const MemberChange&)> told) const;

    // To one member. Errors: OUT_OF_RANGE, else as Runtime::connect().
    Result<Channel> channel(std::uint32_t rank) const;
    // Where completions run.
    Executor& executor() const;
    // True: this thread turns the group's context, or made its runtime, which none has turned yet.
    bool on_thread() const;
    // For awaiters: when a collective ends that is begun now. `never`: it has no timeout, or the
    // group is empty.
    TimePoint deadline(const GroupCallOptions& options) const;
    explicit operator bool() const { return impl_ != nullptr; }

  private:
    friend class Subgroup;
    // What can't begin ends with that, in a later turn.
    void refuse(const Status& why, const GroupCallOptions& options, GroupCompletion done) const;

    std::shared_ptr<coll::GroupImpl> impl_;
};

}  // namespace weft
