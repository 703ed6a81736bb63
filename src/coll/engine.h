// Runs collectives over the RPC core: as their origin, and as a member of the groups that this
// runtime has joined.
//
// A collective is sent as calls of weft.Collective/Forward (wire.h). The state of one rank is its
// CollectiveState (collective_state.h), driven over calls by a CollectiveDriver.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <weft/group.h>
#include <weft/options.h>

#include "coll/collective_driver.h"
#include "coll/collective_table.h"
#include "coll/deferred_requests.h"
#include "coll/group_impl.h"
#include "coll/member_collectives.h"
#include "coll/resource_quota.h"
#include "coll/wire.h"
#include "core/connect_policy.h"
#include "rpc/server.h"

namespace weft::coll {

inline constexpr MethodId view_method("weft.Group/View");

class Engine {
  public:
    // `named_by`: nullptr: addresses of the local program; else addresses that a peer named, of
    // which only those that this policy covers, or that the runtime listens on, are used.
    using Connect = std::function<Result<Channel>(const std::vector<std::string>& uris,
                                                  const core::ConnectPolicy* named_by)>;

    // Runs it on the context, and waits.
    using RunOnContext = std::function<void(Function<void()>)>;

    Engine(core::Context& context, rpc::Server& server, Connect connect, RunOnContext run,
           std::size_t reply_bytes_max);
    ~Engine();

    // From here on this runtime takes part as `group->own_rank`. Errors: ALREADY_EXISTS.
    Status join(std::shared_ptr<GroupImpl> group);
    // The joined group of this name, whatever its view is; nullptr: none.
    std::shared_ptr<GroupImpl> joined(std::string_view name) const;

    // The body for one rank.
    using RankBytes = std::pair<std::uint32_t, std::vector<std::byte>>;
    // A collective to begin.
    struct CollectiveRequest {
        CollectiveId id = 0;  // new_id()
        std::shared_ptr<GroupImpl> group;
        std::optional<GroupView> view;  // The view to run in; else the group's at the start.
        std::uint64_t method = 0;
        GroupCallOptions options;
        std::optional<RankSet> include;  // The set of the options.
        RankSet exclude;
        std::vector<std::byte> body;    // For all ranks; or,
        std::vector<RankBytes> bodies;  // for a scatter, one for each rank.
        bool scatters = false;
        bool delivers_rest = true;  // Also delivers to ranks that the policy does not wait for.
        TimePoint deadline = never;
        GroupCompletion done;
    };
    // Thread: the context's. `done` runs in a later turn, in the scope of this call unless the
    // options detach it.
    void start(CollectiveRequest request);
    // Cancels a collective or a member collective. False: there is none of that number.
    bool cancel(CollectiveId id);
    // Completes with `why`, in a later turn and in the scope of this call. Requires: in a turn.
    void refuse(const GroupImpl& group, const GroupCallOptions& options, const Status& why,
                GroupCompletion done);
    // Thread: any.
    CollectiveId new_id() { return next_id_.fetch_add(1, std::memory_order_relaxed); }
    // Listeners of the group may own it: shutdown() clears them.
    void add_listener(std::weak_ptr<GroupImpl> group);
    // Forgets every group, since groups refer back to the runtime.
    void shutdown();

    // Runs `work` in a turn, and without a scope unless it is in a turn already: between turns the
    // context's time stands still, and handlers of this rank may be about to run. Thread: the
    // context's.
    template <class Work>
    void in_turn(Work&& work) {
        if (context_.in_turn()) return work();
        context_.refresh_time();
        const core::Context::EnterGuard entered(context_);
        const core::Context::ScopeGuard no_scope(context_, nullptr);
        work();
    }

    // Collectives that lack outcomes at this rank.
    std::size_t running() const { return running_; }
    // Begun here and completed by their policy, while other ranks may not have them yet.
    std::size_t delivering() const;
    // Collectives that are remembered for repeated requests.
    std::size_t known() const { return table_.collectives(); }
    // The runtime begins to shut down: gathers that wait for the local program are refused.
    void drain() { member_collectives_.drain(); }
    // Collectives for which a parent is expected to return: it got a partial reply, or was lost.
    // They may have completed, or still run at ranks below.
    std::size_t parents_expected();
    void expect_parent(CollectiveDriver& collective);
    bool is_sweeping() const { return sweeping_.is_linked(); }

    core::Context& context() { return context_; }
    rpc::Server& server() { return server_; }
    MemberCollectives& member_collectives() { return member_collectives_; }
    // The scope in which a collective with these options begins; nullptr: none. Requires: in a
    // turn.
    core::CallScope* scope_of(const GroupCallOptions& options) const {
        return options.detached ? nullptr : context_.scope();
    }
    Duration default_timeout = RuntimeOptions().default_timeout;
    const Connect& connect() const { return connect_; }
    void run_on_context(Function<void()> work) const { run_on_context_(std::move(work)); }
    std::size_t reply_bytes_max() const { return reply_bytes_max_; }

    // ---- for CollectiveDriver ------------------------------------------------------------------
    // `client`: the client that the collective comes from.
    Result<base::SlotId> run_here(std::uint64_t method, ByteView body, TimePoint until,
                                  const ClientKey& client, rpc::LocalCompletion done);
    // The handler may ignore the cancel: `reservation` is held until it replies. nullptr: none.
    void cancel_here(base::SlotId id, std::shared_ptr<ResourceQuota::Reservation> reservation) {
        server_.cancel_local(id, [reservation = std::move(reservation)](const Status&, ByteView) {
            if (reservation) reservation->release_method();
        });
    }
    // The local clock, for other ranks.
    Ticks clock_reading() const { return clock_.read(context_.clock().now()); }
    // Fetches the later view of the member at a position, and restarts.
    void refresh(const std::shared_ptr<CollectiveDriver>& collective, std::uint32_t position);
    // For a request to a member of no local view, which a request of this client named.
    std::optional<ResourceQuota::NonmemberSlot> take_nonmember_slot(const ClientKey& client) {
        return quota_->take(client);
    }
    DeferredRequests& deferred_requests() { return deferred_requests_; }
    SessionKey session_key_of(const Call& call) const {
        const rpc::SessionId session = server_.session_of(call);
        return {session.high, session.low};
    }
    // The client that brought a call, or the collective that the call is part of here. Requires:
    // the call's handler has just begun.
    ClientKey client_of(const Call& call) const;
    void report(CollectiveDriver& collective);
    void on_origin_done(CollectiveDriver& collective);
    void on_member_done(CollectiveDriver& collective);

  private:
    struct Choice;

    void start_in_turn(CollectiveRequest request);
    Result<Choice> choose_ranks(const CollectiveRequest& request) const;
    Result<Choice> choose(CollectiveRequest& request) const;
    static GroupOutcome outcome_without_members(const GroupCallOptions& options,
                                                const Choice& choice);
    // Reports `outcome` in a later turn, in the scope of the present call.
    void complete_later(const GroupCallOptions& options, GroupOutcome outcome,
                        GroupCompletion done);
    std::shared_ptr<CollectiveDriver> make(CollectiveRequest& request, Choice choice);

    void on_forward(Call call);
    void reply_expired(Call& call) const;
    ClientKey client_of(const ForwardHeader& header, const SessionKey& peer) const;
    Status why_no_room(const ClientKey& client, std::size_t bytes) const;
    void on_view(Call call) const;
    GroupImpl* find_group(const ForwardHeader& header) const;
    Result<std::shared_ptr<const Plan>> plan_for(const ForwardView& request,
                                                 GroupImpl& group) const;
    void start_member(const ForwardView& request, TimePoint began, std::shared_ptr<GroupImpl> group,
                      Call call);
    // With its resources reserved, and not begun.
    Result<std::shared_ptr<CollectiveDriver>> make_member(const ForwardView& request,
                                                          TimePoint began,
                                                          std::shared_ptr<GroupImpl> group,
                                                          const Call& call);
    void on_repeated_request(const ForwardHeader& header, Call call);
    void restart(const std::shared_ptr<CollectiveDriver>& collective);
    // Fetches the view of a member, and installs it if it is later; then calls `done`, at once or
    // later. Concurrent callers wait for the same reply.
    void fetch_view(const std::shared_ptr<GroupImpl>& group, const Member& from,
                    Function<void()> done);
    // The key, and its distance from the origin's first unacknowledged collective.
    std::pair<CollectiveKey, std::uint16_t> next_key();
    static void cancel_with_scope(core::CallScope& scope, CollectiveDriver& collective);

    core::Context& context_;
    rpc::Server& server_;
    const Connect connect_;
    const RunOnContext run_on_context_;
    const std::size_t reply_bytes_max_;
    std::vector<std::shared_ptr<GroupImpl>> groups_;
    std::vector<std::weak_ptr<GroupImpl>> listened_groups_;
    struct Sweeping : base::Timer {
        Engine* engine = nullptr;
    };
    Sweeping sweeping_;  // Armed while the table has entries.
    // Limit of the collectives of one origin since the first unacknowledged one, which members have
    // to keep. If one lasts longer, the next ones get a new origin.
    static constexpr std::uint64_t unacknowledged_max = 256;
    const OwnClock clock_;
    const std::uint64_t secret_;  // For the client numbers that this rank passes on.
    std::uint64_t origin_;
    std::uint64_t origin_first_ = 0;  // The first sequence number of `origin_`.
    std::uint64_t next_sequence_ = 0;
    std::atomic<CollectiveId> next_id_{1};
    std::map<std::uint64_t, std::shared_ptr<CollectiveDriver>>
        begun_;  // Begun here, without all outcomes.
    std::size_t running_ = 0;
    std::vector<std::weak_ptr<CollectiveDriver>> parents_expected_;
    std::size_t parents_expected_next_ = 64;  // At this size expired ones are dropped.
    const std::shared_ptr<ResourceQuota> quota_ = std::make_shared<ResourceQuota>();
    CollectiveTable<CollectiveDriver> table_;  // Of other origins, with this rank in them.
    ClientKey current_client_;  // Client of the collective with the method in run_here().
    DeferredRequests deferred_requests_{context_};
    MemberCollectives member_collectives_{*this};
};

// A share of the time until a deadline; the rest is kept back for later steps.
TimePoint share_of(TimePoint now, TimePoint deadline);

// For that many ranks and bytes of body.
Tree tree_of(const Topology& topology, const Costs& costs, std::uint32_t ranks, std::size_t bytes);

// Included, or, without `include`, not draining; and not excluded.
inline bool takes_part(const Member& member, const std::optional<RankSet>& include,
                       const RankSet& exclude) {
    const bool is_named = include ? include->contains(member.rank) : !member.draining;
    return is_named && !exclude.contains(member.rank);
}
// Errors: INVALID_ARGUMENT: more ranks than a group has members.
Status validate(const std::optional<RankSet>& include);

// Whether the options are possible, with that many ranks and included nonmembers. Errors:
// INVALID_ARGUMENT.
Status validate_ranges(const GroupCallOptions& options);
Status validate(const GroupCallOptions& options, const Tree& tree, std::uint32_t ranks,
                std::size_t nonmembers, bool runs_here);

// Of a collective that did not begin, or that knows nothing of its ranks.
GroupOutcome failed_outcome(const GroupImpl& group, const Status& why);

// By the policy; `ranks` in order. `quorum`: for Policy::quorum.
Status policy_status(Policy policy, std::uint32_t quorum, const std::vector<RankOutcome>& ranks);

}  // namespace weft::coll
