// One rank's state of one collective, as a pure state machine: which children to contact, which
// parents to answer, and when to stop waiting. Time, messages and the method come through a Port.
//
// It forwards first and then runs the method. A child replies within the progress interval of its
// request, with the outcomes known by then. Another request for the rest follows, but not before
// half of that interval: so a silent rank differs from one with a slow handler. The parent of a
// failed or suspect child contacts the ranks below directly. They may know the collective from
// earlier requests, and then join the new request to it.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <weft/group_options.h>
#include <weft/time.h>

#include "coll/child_requests.h"
#include "coll/collective_table.h"
#include "coll/outcomes.h"
#include "coll/rank_order.h"
#include "coll/tree.h"
#include "coll/wire.h"

namespace weft::coll {

// The data that all ranks of a collective share; one for all collectives that differ in their key
// only.
struct Plan {
    std::shared_ptr<const RankOrder> rank_order;
    std::uint64_t view = 0;  // Digest of the origin's view.
    std::uint64_t group = 0;
    std::string name;  // Of the group.
    std::uint64_t epoch = 0;
    std::uint64_t method = 0;
    Tree tree;
    Merge merge;
    std::uint8_t flags = 0;  // Of ForwardHeader.
};

class CollectiveState {
  public:
    using ChildRequest = coll::ChildRequest;

    // A rank's surroundings. Each function may be called from within those of CollectiveState, and
    // may call on_reply(), on_failure() and on_method_done() at once.
    class Port {
      public:
        // Sends the request; one of on_reply(), on_failure() follows once, unless it is cancelled.
        virtual void send_request(CollectiveState& state, const ChildRequest& request) = 0;
        // Drops a request under way; all others are dropped, too, and no reply follows.
        // `cancel_child`: also sends a cancel to the child, even if the child sent a partial reply
        // and awaits a request for the rest.
        virtual void cancel_request(CollectiveState& state, const ChildRequest& request,
                                    bool cancel_child) = 0;
        // Runs the method here; on_method_done() follows, unless it is cancelled.
        virtual void run(CollectiveState& state) = 0;
        virtual void cancel_method(CollectiveState& state) = 0;
        // Replies to a parent with outcomes(), complete or partial; the parent is then forgotten.
        virtual void reply_to(CollectiveState& state, std::uint32_t request,
                              SubtreeReply::Kind kind) = 0;
        // At an origin outside of the group: no rank has begun, since this position has a later
        // view. The collective restarts as another state, or use_own_view() follows.
        virtual void refresh(CollectiveState& state, std::uint32_t position,
                             std::uint64_t epoch) = 0;
        // At the origin: the outcome can be reported, though some ranks may still be missing. Once.
        virtual void report(CollectiveState& state) = 0;
        // The collective has completed. Once; no other call follows.
        virtual void done(CollectiveState& state) = 0;

      protected:
        ~Port() = default;
    };

    struct Role {
        Interval subtree;         // Positions that it is responsible for.
        bool is_origin = false;   // This rank is the origin.
        bool runs_method = true;  // subtree.first is this rank; else an outside client.
        Policy policy = Policy::all;
        bool abandons = false;  // Ranks missing at the report are cancelled.
        std::uint32_t quorum = 0;
        TimePoint deadline = never;
    };

    // A child must reply, at least partially, within the progress interval; it is suspect if
    // `suspect_after` passes on top. Higher levels have more time, so that their replies include
    // those from below.
    static constexpr Duration progress_interval_min = 120ms;
    static constexpr Duration progress_interval_per_level = 10ms;
    static constexpr Duration progress_interval_max = 2s;
    static constexpr Duration suspect_after = 500ms;
    // How many ranks are requested alone at a time, without suspect and slow ones.
    static constexpr std::uint32_t self_only_max = 64;
    // Parents with a partial reply that are expected to return: one more replaces the first.
    static constexpr std::ptrdiff_t expected_parents_max = 64;
    // A rank with a dead parent gets a request from another rank within this time: a silent rank is
    // detected in three seconds at most, and so is each further dead ancestor.
    static constexpr Duration orphan_timeout = 15s;

    CollectiveState(Port& port, std::shared_ptr<const Plan> plan, CollectiveKey key,
                    const Role& role);
    CollectiveState(const CollectiveState&) = delete;
    CollectiveState& operator=(const CollectiveState&) = delete;

    void begin(TimePoint now);
    // A parent's request of that id; `reply_by`: when a reply is due, at least a partial one.
    void on_request(std::uint32_t request, std::uint32_t parent, TimePoint reply_by);
    // The parent of this request does not wait any more.
    void on_request_gone(std::uint32_t request, TimePoint now);
    // No request of `parent`, or of a position at or below it, is expected any more; ancestors keep
    // theirs. Call when a cancel frame arrives.
    void on_parent_cancelled(std::uint32_t parent);

    void on_reply(std::uint32_t request, SubtreeReply reply, TimePoint now);
    void on_failure(std::uint32_t request, Status why, TimePoint now);
    // As on_failure(), but no rank of the subtree is contacted: one outcome for all of them.
    void on_subtree_failure(std::uint32_t request, Status why, TimePoint now);
    void on_method_done(Status status, ByteView reply);
    // After refresh(): no later view was learnt; or another state replaces this one.
    void use_own_view(TimePoint now);
    void supersede();
    // At the deadline, or at due().
    void on_timer(TimePoint now);
    // Stops waiting. Missing outcomes become `why`. `cancels_others`: children with a request are
    // cancelled, too; otherwise they may still run the method.
    void cancel(const Status& why, bool cancels_others = true);

    // The time within which the child of this request must reply.
    static Duration progress_interval_of(const ChildRequest& request);
    // When on_timer() must be called. Cost: no walk over the requests under way.
    TimePoint due() const;
    bool is_done() const { return done_; }
    // Reported by its policy, and still being delivered to other ranks.
    bool is_delivering() const { return reported_ && !done_; }
    // Every missing outcome will come from the method or from a request: always so between calls.
    bool awaits_all() const;
    // All missing outcomes are of suspects.
    bool waits_for_suspects() const;
    // Nothing ran, and no rank was contacted: it may be forgotten.
    bool did_nothing() const;
    // At completion, a parent with a partial reply was expected to return, and none waited.
    bool parent_expected() const { return parent_expected_; }
    // Frees outcomes and members. Requires: it has completed.
    void release();
    // One for each position, in order; `missing` is the status of missing ones.
    std::vector<Outcome> outcomes_for_caller(const Status& missing) const;

    const Plan& plan() const { return *plan_; }
    const std::shared_ptr<const Plan>& shared_plan() const { return plan_; }
    CollectiveKey key() const { return key_; }
    // This rank as the parent in its requests (ForwardHeader::parent).
    std::uint32_t as_parent() const { return role_.runs_method ? role_.subtree.first + 1 : 0; }
    const Role& role() const { return role_; }
    const Outcomes& outcomes() const { return outcomes_; }
    std::size_t child_requests() const { return child_requests_.size(); }
    std::uint64_t requests_visited() const { return child_requests_.visited(); }
    std::size_t waiting_parents() const;  // With an open request.
    // Including parents that are expected to return.
    std::size_t known_parents() const { return parents_.size(); }
    // All memory of this state, but for the texts of failures.
    std::size_t state_bytes() const {
        return sizeof *this + outcomes_.heap_bytes() + child_requests_.heap_bytes() +
               parents_.capacity() * sizeof(ParentRequest);
    }

  private:
    static constexpr std::uint32_t no_parent = UINT32_MAX;
    struct ParentRequest {
        std::uint32_t request = 0;  // 0: none is open; this parent or another may return.
        std::uint32_t parent = 0;   // `no_parent`: cancelled; the request ends soon.
        TimePoint expires = never;  // When it is answered, or no longer expected.
    };

    void request_children(Interval below, bool is_repeat, TimePoint now);
    void start_request(Interval of, RequestKind kind, bool is_repeat, bool named, TimePoint now);
    void send(ChildRequest& request, TimePoint now);
    void resume_request(std::uint32_t id, TimePoint now);
    void resume_backed_off(TimePoint now);
    std::optional<ChildRequest> take_failed(std::uint32_t id, Status& why, TimePoint now);
    void adopt(const ChildRequest& request, Status why, TimePoint now);
    void on_stale_view(std::uint32_t id, std::uint64_t epoch, TimePoint now);
    void request_missing(const ChildRequest& request, TimePoint now);
    void send_queued(TimePoint now);
    void cancel_requests(bool cancel_children);
    void suspect_overdue(TimePoint now);
    void send_progress_replies(TimePoint now);
    TimePoint orphaned_at() const;
    std::uint32_t requested_until(std::uint32_t position) const;
    void resend_stale(TimePoint now);
    void check_completion();
    bool is_decided() const;
    void end();

    // Around functions that may complete the collective, or free a slot for queued requests.
    class DepthGuard {
      public:
        // Without a time no queued request is sent.
        explicit DepthGuard(CollectiveState& state, std::optional<TimePoint> now = {})
            : state_(state), now_(now) {
            ++state_.depth_;
        }
        DepthGuard(const DepthGuard&) = delete;
        DepthGuard& operator=(const DepthGuard&) = delete;
        ~DepthGuard() {
            if (state_.depth_ == 1 && now_) state_.send_queued(*now_);
            if (--state_.depth_ == 0) state_.check_completion();
        }

      private:
        CollectiveState& state_;
        std::optional<TimePoint> now_;
    };

    Port& port_;
    std::shared_ptr<const Plan> plan_;
    const CollectiveKey key_;
    const Role role_;
    Outcomes outcomes_;
    ChildRequests child_requests_;
    std::vector<ParentRequest> parents_;
    bool method_running_ = false;
    bool cancelled_ = false;  // Failed children are not adopted any more.
    bool reported_ = false;
    bool done_ = false;
    bool parent_expected_ = false;
    bool may_refresh_ = false;  // As far as is known, no rank has begun.
    std::uint8_t depth_ = 0;  // Nesting of its functions: the end of the outermost makes progress.
};

}  // namespace weft::coll
