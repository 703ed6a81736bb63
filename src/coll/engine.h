// Runs collectives over the RPC core: where they begin, and as a member of the groups that this
// runtime has joined.
//
// A collective travels as calls of weft.Collective/Forward (wire.h). What one rank does in one of
// them is its Part (part.h), played over calls by an Operation.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <weft/group.h>

#include "coll/group_impl.h"
#include "coll/known.h"
#include "coll/later_asks.h"
#include "coll/meetings.h"
#include "coll/operation.h"
#include "coll/share.h"
#include "coll/wire.h"
#include "core/reach.h"
#include "rpc/server.h"

namespace weft::coll {

inline constexpr MethodId view_method("weft.Group/View");

class Engine {
  public:
    // `named_by`: nullptr: the program's own addresses; else those that a peer named, of which
    // only what this covers, or what the runtime listens on, is used.
    using Connect = std::function<Result<Channel>(const std::vector<std::string>& uris,
                                                  const core::Reach* named_by)>;

    using RunOnContext = std::function<void(Function<void()>)>;  // Runs it there, and waits.

    Engine(core::Context& context, rpc::Server& server, Connect connect, RunOnContext run,
           std::size_t reply_bytes_max);
    ~Engine();

    // From here on this runtime takes part as `group->own_rank`. Errors: ALREADY_EXISTS.
    Status join(std::shared_ptr<GroupImpl> group);
    // The joined group of this name, whatever its view is; nullptr: none.
    std::shared_ptr<GroupImpl> joined(std::string_view name) const;

    // A body for one rank.
    using RankBytes = std::pair<std::uint32_t, std::vector<std::byte>>;
    // A collective that is to begin.
    struct Beginning {
        CollectiveId id = 0;  // new_id()
        std::shared_ptr<GroupImpl> group;
        std::optional<GroupView> view;  // That it shall run in; else the group's at its start.
        std::uint64_t method = 0;
        GroupCallOptions options;
        std::optional<RankSet> include;  // What the options point to.
        RankSet exclude;
        std::vector<std::byte> body;    // For all; or,
        std::vector<RankBytes> bodies;  // where it scatters, for each who takes part.
        bool scatters = false;
        bool is_owed = true;  // What its policy does not wait for is delivered all the same.
        TimePoint deadline = never;
        GroupCompletion done;
    };
    // Thread: the context's. `done` runs in a later turn, in the scope that this is called in
    // unless it is detached from that.
    void start(Beginning beginning);
    // Of a collective, or of a meeting.
    // False: there is none of that number.
    bool cancel(CollectiveId id);
    // It ends with that, in a later turn and in the scope that this is called in. Requires: in a
    // turn.
    void refuse(const GroupImpl& group, const GroupCallOptions& options, const Status& why,
                GroupCompletion done);
    // Thread: any.
    CollectiveId new_id() { return next_id_.fetch_add(1, std::memory_order_relaxed); }
    // Whoever it tells of changes may hold it: shutdown() ends that.
    void has_listener(std::weak_ptr<GroupImpl> group);
    // Forgets every group (they refer back to the runtime).
    void shutdown();

    // Does it in a turn, and in nobody's scope unless it is in one already: between turns the
    // context's time stands still, and handlers of this rank may be about to run. Thread: the
    // context's.
    template <class Work>
    void in_turn(Work&& work) {
        if (context_.in_turn()) return work();
        context_.refresh_time();
        const core::Context::Entered entered(context_);
        const core::Context::Within nobody(context_, nullptr);
        work();
    }

    // Collectives that have not all their outcomes here.
    std::size_t running() const { return running_; }
    // Begun here and completed by their policy, while others of their ranks may not have them yet.
    std::size_t delivering() const;
    // That are remembered, for those who may ask again.
    std::size_t known() const { return known_.parts(); }
    // The runtime begins to end: what waits for its own program is refused.
    void drain() { meetings_.drain(); }
    // Collectives that a parent is about to ask for again: it was told so far, or was lost. They
    // may be over, or run on at ranks below.
    std::size_t owed();
    void owe(Operation& operation);
    bool sweeps() const { return sweeping_.is_linked(); }

    core::Context& context() { return context_; }
    rpc::Server& server() { return server_; }
    Meetings& meetings() { return meetings_; }
    // What begins now with these options is done for the sake of; nullptr: of nobody. Requires: it
    // is in a turn.
    core::Scope* scope_of(const GroupCallOptions& options) const {
        return options.detached ? nullptr : context_.scope();
    }
    Duration default_timeout = 30s;
    const Connect& connect() const { return connect_; }
    void run_on_context(Function<void()> work) const { run_on_context_(std::move(work)); }
    std::size_t reply_bytes_max() const { return reply_bytes_max_; }

    // ---- for operations ------------------------------------------------------------------------
    // `brought_by`: the client whose collective it is.
    Result<base::SlotId> run_here(std::uint64_t method, ByteView body, TimePoint until,
                                  const Client& brought_by, rpc::LocalCompletion done);
    // The handler may not heed it: `room` is taken until it answers. nullptr: none is.
    void stop_here(base::SlotId id, std::shared_ptr<Shares::Room> room) {
        server_.cancel_local(id, [room = std::move(room)](const Status&, ByteView) {
            if (room) room->has_run();
        });
    }
    // What time it is here, for others.
    Ticks clock_reading() const { return clock_.read(context_.clock().now()); }
    // Learns the later view of the member at a position, and begins anew.
    void refresh(const std::shared_ptr<Operation>& operation, std::uint32_t position);
    // To ask a member that is none of a group's here, but was named by that asker.
    std::optional<Shares::Place> place_for_stranger(const Client& client) {
        return shares_->take(client);
    }
    LaterAsks& later_asks() { return later_asks_; }
    AskerId asker_of(const Call& call) const {
        const rpc::SessionId session = server_.session_of(call);
        return {session.high, session.low};
    }
    // The client that brought a call, or the collective of which it is a part here. Requires: the
    // call's handler has just begun.
    Client client_of(const Call& call) const;
    void tell(Operation& operation);
    void on_origin_done(Operation& operation);
    void on_member_done(Operation& operation);

  private:
    struct Choice;

    void start_in_turn(Beginning beginning);
    Result<Choice> choose_ranks(const Beginning& beginning) const;
    Result<Choice> choose(Beginning& beginning) const;
    static GroupOutcome outcome_without_members(const GroupCallOptions& options,
                                                const Choice& choice);
    // `outcome` is told in a later turn, as of the call in hand.
    void settle(const GroupCallOptions& options, GroupOutcome outcome, GroupCompletion done);
    std::shared_ptr<Operation> make(Beginning& beginning, Choice choice);

    void on_forward(Call call);
    void reply_late(Call& call) const;
    Client client_of(const ForwardHeader& header, const AskerId& asker) const;
    Status why_no_room(const Client& client, std::size_t bytes) const;
    void on_view(Call call) const;
    GroupImpl* find_group(const ForwardHeader& header) const;
    Result<std::shared_ptr<const Plan>> plan_for(const ForwardView& request,
                                                 GroupImpl& group) const;
    void take_part(const ForwardView& request, TimePoint began, std::shared_ptr<GroupImpl> group,
                   Call call);
    // With the room that it takes; it has not begun.
    Result<std::shared_ptr<Operation>> make_part(const ForwardView& request, TimePoint began,
                                                 std::shared_ptr<GroupImpl> group,
                                                 const Call& call);
    void ask_again(const ForwardHeader& header, Call call);
    void begin_anew(const std::shared_ptr<Operation>& operation);
    // Asks a member for its view, and installs it if it is later; `done` follows then, at once or
    // not. Those who ask meanwhile wait for the same answer.
    void learn(const std::shared_ptr<GroupImpl>& group, const Member& from, Function<void()> done);
    // Its number, and how many before it, since the first one of its origin that is not settled.
    std::pair<Identity, std::uint16_t> number_it();
    static void end_with(core::Scope& scope, Operation& operation);

    core::Context& context_;
    rpc::Server& server_;
    const Connect connect_;
    const RunOnContext run_on_context_;
    const std::size_t reply_bytes_max_;
    std::vector<std::shared_ptr<GroupImpl>> groups_;
    std::vector<std::weak_ptr<GroupImpl>> listening_;
    struct Sweeping : base::Timer {
        Engine* engine = nullptr;
    };
    Sweeping sweeping_;  // While anything is known.
    // Of the collectives that begin here, which are numbered. When one of an origin lasts while
    // many follow, those to come are another origin's: members keep what is not settled.
    static constexpr std::uint64_t unsettled_most = 256;
    const OwnClock clock_;
    const std::uint64_t secret_;  // Of the numbers by which clients are told apart below.
    std::uint64_t origin_;
    std::uint64_t origin_first_ = 0;  // Its first number.
    std::uint64_t next_sequence_ = 0;
    std::atomic<CollectiveId> next_id_{1};
    std::map<std::uint64_t, std::shared_ptr<Operation>> begun_;  // Of these, without all outcomes.
    std::size_t running_ = 0;
    std::vector<std::weak_ptr<Operation>> owed_;
    std::size_t owed_next_ = 64;  // Of so many those that are over are looked for.
    const std::shared_ptr<Shares> shares_ = std::make_shared<Shares>();
    Known<Operation> known_;  // Of others, that this rank took part in.
    Client runs_for_;         // The client whose collective's method is being called here.
    LaterAsks later_asks_{context_};
    Meetings meetings_{*this};
};

// A share of the time until a deadline; the rest is kept back for what comes after.
TimePoint share_of(TimePoint now, TimePoint deadline);

// For so many ranks and bytes of body.
Tree tree_of(const Topology& topology, const Costs& costs, std::uint32_t ranks, std::size_t bytes);

// Who is named, and not excluded; where nobody is named, of all that are not draining.
inline bool takes_part(const Member& member, const std::optional<RankSet>& include,
                       const RankSet& exclude) {
    const bool is_named = include ? include->contains(member.rank) : !member.draining;
    return is_named && !exclude.contains(member.rank);
}
// Errors: INVALID_ARGUMENT: more ranks than a group has members.
Status judge(const std::optional<RankSet>& include);

// Whether there can be such a one, among so many ranks and others that are named. Errors:
// INVALID_ARGUMENT.
Status judge_ranges(const GroupCallOptions& options);
Status judge(const GroupCallOptions& options, const Tree& tree, std::uint32_t ranks,
             std::size_t strangers, bool runs_here);

// Of one that did not begin, or of whose ranks nothing is known.
GroupOutcome failed_outcome(const GroupImpl& group, const Status& why);

// By the policy; `ranks` in order. `quorum`: what it is where the policy is that.
Status verdict(Policy policy, std::uint32_t quorum, const std::vector<RankOutcome>& ranks);

}  // namespace weft::coll
