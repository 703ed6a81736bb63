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

// The outcome of one rank in a collective; each rank that takes part has exactly one.
struct RankOutcome {
    std::uint32_t rank = 0;
    Status status;                  // Of the rank alone: ranks below a dead one are still reached.
    std::vector<std::byte> reply;   // Empty where replies are merged.
    std::uint64_t incarnation = 0;  // Of the rank, in the caller's view.
};

// The outcome of a collective.
struct GroupOutcome {
    // By its policy. Not OK: the status of the first failed rank, by rank, which its text names;
    // or, without ranks, why it did not begin, or why no rank's outcome is known. Its effect covers
    // all ranks: none when every rank's is none, unknown when one rank's is unknown.
    Status status;
    std::vector<RankOutcome> ranks;  // In order of rank.
    // With a reduction: merged from the ranks that have OK.
    std::vector<std::byte> merged;
    std::uint64_t epoch = 0;  // Of the view that it ran in.
};

// Runs as a Completion does (weft/channel.h), on context 0 of the runtime, whichever context began
// the collective: a handler of another one posts its reply to its own (ContextRef::executor()). In
// a handler the collective ends with the call; operations that its completion begins on context 0
// for a call of another context have that call's deadline only.
using GroupCompletion = Function<void(GroupOutcome), 64>;

// Names a collective or a member collective, for cancel(). 0: none.
using CollectiveId = std::uint64_t;

// The body for one rank of a scatter.
struct RankBody {
    std::uint32_t rank = 0;
    ByteView body;
};

// A handle on a group, for members and for outside clients. Copies are the same handle. Thread: as
// Channel.
//
// Empty when default-made or moved from: collectives and member collectives complete inside the
// call with FAILED_PRECONDITION and no ranks. install() and channel() return FAILED_PRECONDITION,
// the view is the empty one, cancel() does nothing; on_change() and executor() abort the program
// with a message.
class Group {
  public:
    Group() = default;
    explicit Group(std::shared_ptr<coll::GroupImpl> impl) : impl_(std::move(impl)) {}

    // Runs the method on every rank, through a tree: `done` gets one outcome per rank, once, by the
    // deadline. RuntimeOptions::argument_bytes_max limits the request, and a member's answer for
    // its whole subtree. An empty `done` aborts the program with a message. Errors, in the outcome:
    // INVALID_ARGUMENT for invalid options or a request over the limit; RESOURCE_EXHAUSTED for a
    // full queue; FAILED_PRECONDITION when the members no longer have the view and no later view
    // could be learnt.
    CollectiveId collective(const MethodId& method, const BodyWriter& body,
                            const GroupCallOptions& options, GroupCompletion done) const;
    // The same with a body for each rank. The ranks that `bodies` names take part, in any order,
    // each once; include and exclude must be nullptr. The bodies are copied.
    CollectiveId scatter(const MethodId& method, std::span<const RankBody> bodies,
                         const GroupCallOptions& options, GroupCompletion done) const;
    // The collective completes with CANCELLED in the ranks that have not answered, and their
    // handlers are cancelled. A collective that completed early, by its policy, is not delivered
    // further; on a collective that has ended cancel() has no effect. A member collective ends at
    // this member; when the leader cancels, it ends for all members. If all members have joined and
    // the leader already sends the outcome, the leader completes with that outcome at once, and a
    // member that has not received it finds it within a second or two. Thread: any.
    void cancel(CollectiveId id) const;

    // ---- collectives among members -------------------------------------------------------------
    // For members. Every member calls it once with the same `name` (at most 256 bytes, not used by
    // another member collective at that time) and the same options. Completes when all members have
    // called it. All get the same outcome: the list of their values (allgather), or, with a
    // reduction other than by a method, the merged value (allreduce). A barrier is a member
    // collective with empty values. The leader applies policies other than `all`: without a
    // reduction, missing members then do not delay the outcome.
    //
    // The lowest rank that takes part leads. When the leader dies or leaves, the others complete
    // with UNAVAILABLE, and may call again. Until the leader has requested a member's value, that
    // member follows the views that it learns, and thus the leader of the latest one. Where members
    // have different views, a member collective may end with ABORTED, and may be called again.
    // Errors also: FAILED_PRECONDITION: this runtime is no member, takes no part (it drains, or is
    // excluded), or runs another one of that name; INVALID_ARGUMENT: a longer name, or a reduction
    // by a method; RESOURCE_EXHAUSTED, for all members: the values are too large for a message
    // (RuntimeOptions::argument_bytes_max).
    CollectiveId all_gather(std::string_view name, ByteView value, const GroupCallOptions& options,
                            GroupCompletion done) const;

    // ---- the view ------------------------------------------------------------------------------
    // The latest view that this runtime has.
    GroupView view() const;
    // For a program with a group authority of its own: makes `view` the latest one, for the members
    // that this runtime serves and for this handle. Errors: INVALID_ARGUMENT: another name;
    // ABORTED: not later than the latest one; FAILED_PRECONDITION: in a turn of another context
    // than 0 (so does channel()).
    Status install(const GroupView& view) const;
    // Calls `listener` for each change from now on, in order, in turns of its own, from which it
    // may call anything. Listeners of earlier calls stay registered, as long as the group exists.
    void on_change(Function<void(const MemberChange&)> listener) const;

    // A channel to one member, to its context 0; Channel::on() of it reaches the others. Errors:
    // OUT_OF_RANGE, else as Runtime::connect().
    Result<Channel> channel(std::uint32_t rank) const;
    // The executor on which completions run: context 0.
    Executor& executor() const;
    // True: this thread turns the group's context, or made its runtime, which none has turned yet.
    bool on_thread() const;
    // For awaiters: the deadline of a collective that begins now. `never`: it has no timeout, or
    // the group is empty.
    TimePoint deadline(const GroupCallOptions& options) const;
    explicit operator bool() const { return impl_ != nullptr; }

  private:
    friend class Subgroup;
    // Completes a collective that can't begin with `why`, in a later turn.
    void refuse(const Status& why, const GroupCallOptions& options, GroupCompletion done) const;

    std::shared_ptr<coll::GroupImpl> impl_;
};

}  // namespace weft
