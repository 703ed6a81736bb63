// One collective at one rank: drives its CollectiveState over calls of weft.Collective/Forward, and
// runs the local method. OriginDriver adds the caller, MemberDriver the parents in the tree.
// Alive while a call, the local handler, or the part of the runtime that made it refers to it.
#pragma once

#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include <weft/call.h>

#include "base/slot_table.h"
#include "base/timer_wheel.h"
#include "coll/collective_host.h"
#include "coll/group_state.h"
#include "coll/state_driver.h"

namespace weft::coll {

class CollectiveDriver : public std::enable_shared_from_this<CollectiveDriver>,
                         public StateDriver,
                         public DeferredSender {
  public:
    struct Setup {
        std::shared_ptr<GroupState> group;
        std::shared_ptr<const Plan> plan;
        CollectiveKey key;
        CollectiveState::Role role;
        std::uint16_t unacknowledged = 0;       // As ForwardHeader::unacknowledged.
        std::uint8_t priority = 0;              // Of its messages, at this rank and below.
        ClientKey client;                       // The client that it comes from.
        TimePoint began{};                      // The start by this rank's clock, or earlier.
        Duration time_limit = Duration::max();  // From `began` on.
        // What it holds of the client's quota; nullptr: it began here.
        std::shared_ptr<ResourceQuota::Reservation> reservation;
    };

    void begin();
    // Missing outcomes become `why`, and children with a request are cancelled.
    void cancel(const Status& why) { advance(&CollectiveState::cancel, why, true); }
    // The request that each rank's method gets: owned, or, without ranks below, alive while it is
    // handled. For a scatter, the pieces by position.
    void own_body(std::vector<std::byte> bytes) {
        own_body_ = std::move(bytes);
        body_ = own_body_;
    }
    void refer_to_body(ByteView bytes) { body_ = bytes; }
    ByteView body() const { return body_; }
    bool run_deferred() final;
    // No timer is linked afterwards.
    void cancel_timer();

    const std::shared_ptr<GroupState>& group() const { return group_; }
    Duration time_limit() const { return time_limit_; }

    const ClientKey client;

  protected:
    CollectiveDriver(CollectiveHost& host, Setup setup);
    ~CollectiveDriver();

    // A step, and the timer for the next one.
    template <class Input, class... Args>
    void advance(Input input, Args&&... args) {
        const auto kept = shared_from_this();
        step(input, std::forward<Args>(args)...);
        arm_timer();
    }
    void arm_timer();
    virtual void on_method_done(Status status, ByteView reply);
    // A child has a later view.
    virtual void on_later_view(std::uint32_t, std::uint64_t) {}
    // The end of what all drivers do.
    void on_done() override;
    void drop_deferred() { deferred_.clear(); }
    void release_method();

    CollectiveHost& host() const { return host_; }
    Cost measured() const { return cost_meter_.snapshot(); }
    bool method_entered() const { return method_entered_; }
    TimePoint now() const { return host_.context().now(); }

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

    void send_request(const ChildRequest& request) final;
    void run_method() final;
    void cancel_request(const Ready::Cancel& cancel) final;
    void cancel_method() final;

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
    void send_cancel(const Channel& channel) const;

    // ---- constant
    CollectiveHost& host_;
    const std::shared_ptr<GroupState> group_;
    const TimePoint began_;
    const Duration time_limit_;
    const std::uint16_t unacknowledged_;
    const std::uint8_t priority_;

    // ---- the local method
    bool method_entered_ = false;
    bool method_ended_ = false;
    base::SlotId running_method_;
    std::shared_ptr<ResourceQuota::Reservation> reservation_;
    ByteView body_;
    std::vector<std::byte> own_body_;

    // ---- requests to children
    bool in_begin_ = false;     // Within begin().
    bool is_deferred_ = false;  // In DeferredRequests.
    Timer timer_;               // Armed for the state's due(), or earlier.
    std::unordered_map<std::uint32_t, ChildCall> child_calls_;  // By ChildRequest::id.
    std::vector<DeferredRequest> deferred_;  // Last in, first out: so it stays short.
    CostMeter cost_meter_;
};

}  // namespace weft::coll
