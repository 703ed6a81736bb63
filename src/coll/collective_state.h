// One rank's state of one collective, as a pure state machine: which children to contact, which
// parents to answer, and when to stop waiting. Each input (a reply, a failure, a time) appends to a
// Ready (ready.h), which a StateDriver (state_driver.h) carries out.
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
#include "coll/ready.h"
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
    struct Role {
        Interval subtree;         // Positions that it is responsible for.
        bool is_origin = false;   // This rank is the origin.
        bool runs_method = true;  // subtree.first is this rank; else an outside client.
        Policy policy = Policy::all;
        bool abandons = false;  // Ranks missing at the report are cancelled.
        std::uint32_t quorum = 0;
        TimePoint deadline = never;
    };

    // How many ranks are requested alone at a time, without suspect and slow ones.
    static constexpr std::uint32_t self_only_max = 64;
    // Parents with a partial reply that are expected to return: one more replaces the first.
    static constexpr std::ptrdiff_t expected_parents_max = 64;
    // A rank with a dead parent gets a request from another rank within this time: a silent rank is
    // detected in three seconds at most, and so is each further dead ancestor.
    static constexpr Duration orphan_timeout = 15s;

    CollectiveState(std::shared_ptr<const Plan> plan, CollectiveKey key, const Role& role);
    CollectiveState(const CollectiveState&) = delete;
    CollectiveState& operator=(const CollectiveState&) = delete;

    // ---- inputs that make something ready
    void begin(TimePoint now, Ready& ready);
    void on_reply(std::uint32_t request, SubtreeReply reply, TimePoint now, Ready& ready);
    void on_failure(std::uint32_t request, Status why, TimePoint now, Ready& ready);
    // As on_failure(), but no rank of the subtree is contacted: one outcome for all of them.
    void on_subtree_failure(std::uint32_t request, Status why, TimePoint now, Ready& ready);
    void on_method_done(Status status, ByteView reply, Ready& ready);
    // After Ready::refresh: no later view was learnt.
    void use_own_view(TimePoint now, Ready& ready);
    // After Ready::report.
    void on_reported(Ready& ready);
    // At the deadline, or at due().
    void on_timer(TimePoint now, Ready& ready);
    // Stops waiting. Missing outcomes become `why`. `cancels_others`: children with a request are
    // cancelled, too; otherwise they may still run the method.
    void cancel(const Status& why, bool cancels_others, Ready& ready);

    // ---- other inputs
    // A parent's request of that id; `reply_by`: when a reply is due, at least a partial one.
    void on_request(std::uint32_t request, std::uint32_t parent, TimePoint reply_by);
    // The parent of this request does not wait any more.
    void on_request_gone(std::uint32_t request, TimePoint now);
    // No request of `parent`, or of a position at or below it, is expected any more; ancestors keep
    // theirs. Call when a cancel frame arrives.
    void on_parent_cancelled(std::uint32_t parent);
    // After Ready::refresh: another state replaces this one.
    void supersede();

    // When on_timer() must be called. Cost: no walk over the requests under way.
    TimePoint due() const;
    bool is_done() const { return phase_ == Phase::done; }
    // Reported by its policy, and still being delivered to other ranks.
    bool is_delivering() const { return phase_ == Phase::delivering; }
    // Every missing outcome will come from the method or from a request: always so between inputs.
    bool awaits_all() const;
    // It runs, and all missing outcomes are of suspects.
    bool waits_for_suspects() const;
    // Nothing ran, and no rank was contacted: it may be forgotten.
    bool did_nothing() const;
    // At completion, a parent with a partial reply was expected to return, and none waited.
    bool parent_expected() const { return parent_expected_; }
    // Frees outcomes and members. Requires: it has completed.
    void release();
    // One for each position, in order; `missing` is the status of missing ones.
    std::vector<Outcome> outcomes_for_caller(const Status& missing) const {
        return outcomes_.in_order(role_.subtree, missing);
    }

    const Plan& plan() const { return *plan_; }
    const std::shared_ptr<const Plan>& shared_plan() const { return plan_; }
    CollectiveKey key() const { return key_; }
    // This rank as the parent in its requests (ForwardHeader::parent).
    std::uint32_t as_parent() const { return role_.runs_method ? role_.subtree.first + 1 : 0; }
    const Role& role() const { return role_; }
    // Of a request to a child; the driver adds the time limit, the client and the priority.
    ForwardHeader header_for(Interval of, RequestKind kind, Duration progress_interval) const;
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
    // delivering: at the origin, reported, while some ranks do not have it yet.
    enum class Phase : std::uint8_t { fresh, running, delivering, done };
    static constexpr bool can_move(Phase from, Phase to) {
        switch (to) {
            case Phase::fresh: return false;
            case Phase::running: return from == Phase::fresh;
            case Phase::delivering: return from == Phase::running;
            case Phase::done: return from != Phase::done;
        }
        return false;
    }
    void move_to(Phase next) {
        WEFT_ASSERT(can_move(phase_, next));
        phase_ = next;
    }
    static constexpr std::uint32_t no_parent = UINT32_MAX;
    struct ParentRequest {
        std::uint32_t request = 0;  // 0: none is open; this parent or another may return.
        std::uint32_t parent = 0;   // `no_parent`: cancelled; the request ends soon.
        TimePoint expires = never;  // When it is answered, or no longer expected.
    };

    void request_children(Interval below, bool is_repeat, TimePoint now, Ready& ready);
    void start_request(Interval of, RequestKind kind, bool is_repeat, bool named, TimePoint now,
                       Ready& ready);
    void send(ChildRequest& request, TimePoint now, Ready& ready);
    void resume_request(std::uint32_t id, TimePoint now, Ready& ready);
    void take_reply(ChildRequest& request, SubtreeReply reply, TimePoint now, Ready& ready);
    void fail_request(std::uint32_t id, Status why, TimePoint now, Ready& ready);
    std::optional<ChildRequest> take_failed(std::uint32_t id, Status& why, TimePoint now,
                                            Ready& ready);
    void adopt(const ChildRequest& request, Status why, TimePoint now, Ready& ready);
    void on_stale_view(ChildRequest& request, std::uint64_t epoch, TimePoint now, Ready& ready);
    void request_missing(const ChildRequest& request, TimePoint now);
    void send_queued(TimePoint now, Ready& ready);
    void cancel_requests(bool cancel_children, Ready& ready);
    void cancel_method(Ready& ready);
    void stop(const Status& why, bool cancels_others, Ready& ready);
    void expire(Ready& ready);
    void suspect_overdue(TimePoint now, Ready& ready);
    void send_progress_replies(TimePoint now, Ready& ready);
    TimePoint orphaned_at() const;
    std::uint32_t requested_until(std::uint32_t position) const;
    void resend_stale(TimePoint now, Ready& ready);
    void check_completion(Ready& ready);
    bool is_decided() const;
    void end(Ready& ready);

    std::shared_ptr<const Plan> plan_;
    const CollectiveKey key_;
    const Role role_;
    Outcomes outcomes_;
    ChildRequests child_requests_;
    std::vector<ParentRequest> parents_;
    bool method_running_ = false;
    bool cancelled_ = false;  // Failed children are not adopted any more.
    Phase phase_ = Phase::fresh;
    bool parent_expected_ = false;
    bool may_refresh_ = false;  // As far as is known, no rank has begun.
};

}  // namespace weft::coll
