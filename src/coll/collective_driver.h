// One collective at one rank: drives its CollectiveState over calls of weft.Collective/Forward.
// Alive while a call, the local handler, its engine or the CollectiveTable refers to it.
#pragma once

#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include <weft/call.h>

#include "base/slot_table.h"
#include "base/timer_wheel.h"
#include "coll/group_impl.h"
#include "coll/resource_quota.h"
#include "coll/state_driver.h"
#include "core/context.h"

namespace weft::coll {

class CollectiveDriver final : public std::enable_shared_from_this<CollectiveDriver>,
                               public StateDriver {
  public:
    // At the origin.
    struct ScopeHook : core::ScopedOperation {
        CollectiveDriver* of = nullptr;
    };
    struct Origin {
        CollectiveId id = 0;
        GroupCallOptions options;
        std::optional<RankSet> include;  // The options' set.
        RankSet exclude;
        std::vector<std::uint32_t> nonmembers;  // Included, but not members.
        // Bodies for these ranks, which may be members of a later view.
        std::vector<std::pair<std::uint32_t, std::vector<std::byte>>> spare_bodies;
        bool delivers_rest = true;  // As Engine::CollectiveRequest::delivers_rest.
        ScopeHook scope_hook;       // The scope of the completion, which also cancels it.
        GroupCompletion done;
        std::uint32_t later_at = 0;     // The position of a rank with a later view,
        std::uint64_t later_epoch = 0;  // and its epoch; 0: no such rank.
    };

    CollectiveDriver(Engine& engine, std::shared_ptr<GroupImpl> group,
                     std::shared_ptr<const Plan> plan, CollectiveKey key,
                     std::uint16_t unacknowledged, const CollectiveState::Role& role);
    ~CollectiveDriver();

    void begin();
    // A parent requests the outcomes of the subtree or of this rank only. Requires: it is the same
    // collective.
    void on_request(const ForwardHeader& header, Call call);
    // As CollectiveState::on_parent_cancelled().
    void on_parent_cancelled(std::uint32_t parent);
    // Missing outcomes become `why`, and children with a request are cancelled.
    void cancel(const Status& why);
    // As CollectiveState::use_own_view(), supersede().
    void use_own_view();
    void supersede();
    // Frees room: stops waiting for missing outcomes. Children with a request may still run the
    // method.
    void evict();
    // Sends one of the deferred requests, or concludes its failure. False: none is left.
    bool run_deferred();
    // No timer is linked afterwards.
    void cancel_timer();
    // Whether the header has the same plan and subtree.
    bool matches(const ForwardHeader& header) const;

    // It has completed, the method was not entered here, and no child was contacted.
    bool did_nothing() const { return did_nothing_; }

    const std::shared_ptr<GroupImpl> group;
    std::unique_ptr<Origin> origin;         // nullptr: it began elsewhere.
    std::uint8_t priority = 0;              // Of its messages, at this rank and below.
    ClientKey client;                       // The client that it comes from.
    TimePoint began{};                      // The start by this rank's clock, or earlier.
    Duration time_limit = Duration::max();  // From `began` on.
    TimePoint known_since{};                // When this rank learnt of it.
    TimePoint parent_expected_until{};      // A parent with a partial reply may return until then.
    bool in_expected_list = false;          // In the engine's list of expected parents.
    bool running = true;                    // Read by CollectiveTable, as some members below.
    bool awaits_others = false;             // The local method has ended: waits for other ranks.
    std::shared_ptr<ResourceQuota::Reservation> reservation;  // At a member.
    // The body that each rank's method gets: in `own_body`; or, without ranks below, in the request
    // while it is handled. For a scatter, the pieces by position.
    ByteView body;
    std::vector<std::byte> own_body;

    std::vector<std::byte> subtree_reply;  // Set at completion: for peers that repeat a request.
    std::vector<std::byte> own_reply;      // The same, of this rank only.
    TimePoint keep_until = never;          // Peers may repeat requests until then.

  private:
    struct Timer : base::Timer {
        CollectiveDriver* of = nullptr;
    };
    struct ChildCall {
        ChildRequest request;
        bool is_leaf = false;               // A leaf that was contacted in begin().
        bool reads_clock = false;           // Reads the child's clock, to translate `began`.
        std::uint8_t times_expired = 0;     // How often the child replied `expired`.
        ResourceQuota::NonmemberSlot slot;  // For a member of no local view.
        Channel channel;
        OperationId call;
    };
    // A request for a later turn: to be sent, or failed at once.
    struct DeferredRequest {
        ChildRequest request;
        Status why;          // OK: to be sent.
        bool whole = false;  // The failure is that of the whole subtree.
    };
    struct ParentRequest {
        std::uint32_t id = 0;
        bool self_only = false;
        SessionKey from;
        Call call;
    };

    void send_request(const ChildRequest& request) override;
    void run_method() override;
    void cancel_request(const Ready::Cancel& cancel) override;
    void cancel_method() override;
    void refresh(const Ready::Refresh& refresh) override;
    void report() override;
    void reply(const Ready::Reply& reply) override;
    void on_done() override;

    // A step, and the timer for the next one.
    template <class Input, class... Args>
    void advance(Input input, Args&&... args) {
        const auto kept = shared_from_this();
        step(input, std::forward<Args>(args)...);
        arm_timer();
    }
    ForwardHeader header_for(Interval of, RequestKind kind, Duration progress_interval) const;
    void send_now(const ChildRequest& request);
    void defer(DeferredRequest deferred);
    std::size_t bytes_of(const ChildRequest& request) const;
    Status no_memory() const;
    // Without memory to send it, the request fails in a later turn, unsent.
    void send(ChildCall child_call, const PeerClock& clock);
    void send_or_throw(ChildCall& child_call, const PeerClock& clock);
    std::vector<std::byte> members_of(Interval of) const;
    CallOptions options_for_calls() const;
    void on_reply(std::uint32_t request, const Status& status, ByteView reply);
    void on_expired(ChildCall child_call, Ticks reading);
    void reply_self_only();
    void on_parent_gone(std::uint32_t id);
    void send_cancel(const Channel& channel) const;
    SubtreeReply complete_reply() const;
    void on_method_done(Status status, ByteView reply);
    void on_method_ended();
    void arm_timer();

    Engine& engine_;
    core::Context& context_;
    const std::uint16_t unacknowledged_;
    Timer timer_;  // Armed for the state's due(), or earlier.
    std::unordered_map<std::uint32_t, ChildCall> child_calls_;  // By ChildRequest::id.
    std::vector<DeferredRequest> deferred_;  // Last in, first out: so it stays short.
    CostMeter cost_meter_;
    std::vector<ParentRequest> parent_requests_;
    std::uint32_t next_request_ = 1;
    base::SlotId running_method_;
    bool method_ended_ = false;
    bool method_entered_ = false;
    bool did_nothing_ = false;
    bool in_begin_ = false;     // Within begin().
    bool is_deferred_ = false;  // In DeferredRequests.
};

}  // namespace weft::coll
