#include "coll/collective_state.h"

#include <algorithm>
#include <string>

#include "base/assert.h"

namespace weft::coll {

static_assert(sizeof(CollectiveState) <= 192);

CollectiveState::CollectiveState(std::shared_ptr<const Plan> plan, CollectiveKey key,
                                 const Role& role)
    : plan_(std::move(plan)),
      key_(key),
      role_(role),
      outcomes_(plan_->merge),
      may_refresh_(role.is_origin && !role.runs_method) {
    WEFT_ASSERT(role_.subtree.size() > 0);
    WEFT_ASSERT(role_.runs_method || role_.is_origin);
}

void CollectiveState::begin(TimePoint now, Ready& ready) {
    move_to(Phase::running);
    if (now >= role_.deadline) {
        cancelled_ = true;
        outcomes_.add_missing(
            role_.subtree,
            fail(Code::deadline_exceeded, "the collective's deadline expired before it began"));
        return check_completion(ready);
    }
    request_children({role_.subtree.first + (role_.runs_method ? 1u : 0u), role_.subtree.last},
                     false, now, ready);
    ready.run = method_running_ = role_.runs_method;
    check_completion(ready);
}

ForwardHeader CollectiveState::header_for(Interval of, RequestKind kind,
                                          Duration progress_interval) const {
    ForwardHeader header;
    header.view = plan_->view;
    header.group = plan_->group;
    header.epoch = plan_->epoch;
    header.key = key_;
    header.method = plan_->method;
    header.parent = as_parent();
    header.root = plan_->rank_order->root();
    header.first = of.first;
    header.last = of.last;
    header.tree = plan_->tree;
    header.progress_interval_us = static_cast<std::uint32_t>(progress_interval / 1us);
    header.kind = kind;
    header.flags = plan_->flags;
    header.operation = static_cast<std::uint8_t>(plan_->merge.reduction.operation);
    header.number = static_cast<std::uint8_t>(plan_->merge.reduction.number);
    return header;
}

// ---- requests to children ----------------------------------------------------------------------

void CollectiveState::request_children(Interval below, bool is_repeat, TimePoint now,
                                       Ready& ready) {
    WEFT_DCHECK(below.first >= role_.subtree.first && below.last <= role_.subtree.last);
    std::vector<Interval> children = split(below, plan_->tree, plan_->rank_order->hosts());
    if (is_repeat) {
        // Some children are known in part, and others whole.
        outcomes_.mark_effect_unknown(below);
        std::erase_if(children, [&](Interval child) { return outcomes_.contains(child); });
    }
    child_requests_.reserve(children.size());
    for (const Interval child : children)
        start_request(child, RequestKind::all, is_repeat, false, now, ready);
}

void CollectiveState::start_request(Interval of, RequestKind kind, bool is_repeat, bool named,
                                    TimePoint now, Ready& ready) {
    ChildRequest made;
    made.of = of;
    made.kind = kind;
    made.is_repeat = is_repeat;
    made.named = named;
    send(child_requests_.add(made), now, ready);
}

void CollectiveState::send(ChildRequest& request, TimePoint now, Ready& ready) {
    child_requests_.change(request, [&](ChildRequest& sent) {
        sent.move_to(RequestPhase::sent);
        sent.sent_at = now;
    });
    ready.sends.push_back(request);
}

// The positions that the end of this request decides. The ranks below a suspect child were
// contacted directly.
static Interval awaited_by(const ChildRequest& request) {
    return request.is_suspect ? Interval{request.of.first, request.of.first + 1} : request.of;
}

// Removes the request; `why` then claims no more than is certain.
std::optional<ChildRequest> CollectiveState::take_failed(std::uint32_t id, Status& why,
                                                         TimePoint now, Ready& ready) {
    ChildRequest* const found = child_requests_.find(id);
    if (!found) return std::nullopt;
    const ChildRequest request = child_requests_.take(*found);
    resend_stale(now, ready);
    // Another parent, or an earlier request of this rank, may have reached the child.
    const bool may_have_run =
        request.is_repeat || request.is_suspect || request.kind != RequestKind::all;
    if (may_have_run && why.effect() == Effect::none) {
        why = std::move(why).with_effect(Effect::unknown);
    }
    return request;
}

void CollectiveState::on_failure(std::uint32_t id, Status why, TimePoint now, Ready& ready) {
    fail_request(id, std::move(why), now, ready);
    send_queued(now, ready);
    check_completion(ready);
}

void CollectiveState::fail_request(std::uint32_t id, Status why, TimePoint now, Ready& ready) {
    const std::optional<ChildRequest> request = take_failed(id, why, now, ready);
    if (!request) return;
    if (request->is_suspect || request->kind == RequestKind::self_only) {
        outcomes_.add(request->of.first, std::move(why), {});
    } else {
        adopt(*request, std::move(why), now, ready);
    }
}

void CollectiveState::on_subtree_failure(std::uint32_t id, Status why, TimePoint now,
                                         Ready& ready) {
    if (const auto request = take_failed(id, why, now, ready))
        outcomes_.add_missing(awaited_by(*request), why);
    send_queued(now, ready);
    check_completion(ready);
}

// The status of ranks below a failed rank that are not contacted any more.
static Status not_reached(const Member& above, const Status& why) {
    const bool keeps = why.code() == Code::deadline_exceeded ||
                       why.code() == Code::invalid_argument || why.code() == Code::cancelled;
    const Effect effect = why.effect() == Effect::none ? Effect::none : Effect::unknown;
    return fail(keeps ? why.code() : Code::unavailable,
                "the request did not reach this rank, below rank " + std::to_string(above.rank) +
                    " (" + std::string(why.peer()) + "), which failed with " +
                    std::string(name_of(why.code())))
        .with_effect(effect)
        .with_stage(effect == Effect::none ? Stage::queued : Stage::sent);
}

// The failure of the request is the outcome of its child. The ranks below are contacted directly,
// whether or not the child did so, while time is left and a parent waits.
void CollectiveState::adopt(const ChildRequest& request, Status why, TimePoint now, Ready& ready) {
    const Interval below{request.of.first + 1, request.of.last};
    // All ranks below would return these, too.
    const bool applies_to_all =
        why.code() == Code::cancelled || why.code() == Code::invalid_argument;
    const bool continues = !applies_to_all && !cancelled_ && now < role_.deadline;
    if (!continues && below.size() > 0) {
        Member scratch;
        outcomes_.add_missing(below,
                              not_reached(plan_->rank_order->at(request.of.first, scratch), why));
    }
    const bool is_repeat = request.is_repeat || why.effect() != Effect::none;
    outcomes_.add(request.of.first, std::move(why), {});
    if (continues && !outcomes_.contains(below)) request_children(below, is_repeat, now, ready);
}

// Another parent may have sent these requests before, also to an earlier incarnation.
static void mark_effect_unknown(SubtreeReply& reply) {
    for (Outcome& outcome : reply.outcomes) {
        if (outcome.status.ok() || outcome.status.effect() != Effect::none) continue;
        outcome.status = std::move(outcome.status).with_effect(Effect::unknown);
    }
}

void CollectiveState::on_reply(std::uint32_t id, SubtreeReply reply, TimePoint now, Ready& ready) {
    ChildRequest* const request = child_requests_.find(id);
    const bool is_awaited = request && !request->is(RequestPhase::backing_off);
    if (is_awaited && reply.kind == SubtreeReply::Kind::stale) {
        on_stale_view(*request, reply.epoch, now, ready);
    } else if (is_awaited) {
        take_reply(*request, std::move(reply), now, ready);
    }
    send_queued(now, ready);
    check_completion(ready);
}

void CollectiveState::take_reply(ChildRequest& request, SubtreeReply reply, TimePoint now,
                                 Ready& ready) {
    if (request.is_repeat || request.is_suspect) mark_effect_unknown(reply);
    const bool is_all = reply.kind == SubtreeReply::Kind::complete;
    child_requests_.change(request, [&](ChildRequest& changed) {
        changed.awaits_suspects = reply.kind == SubtreeReply::Kind::only_suspects;
        if (is_all) return;
        if (changed.kind == RequestKind::all) changed.kind = RequestKind::resume;
        changed.move_to(RequestPhase::backing_off);
    });
    outcomes_.add(request.of, std::move(reply));
    if (!is_all) {
        const std::uint32_t id = request.id;
        resend_stale(now, ready);
        return resume_request(id, now, ready);
    }
    WEFT_DCHECK(outcomes_.known_count() <= role_.subtree.size());
    const ChildRequest ended = child_requests_.take(request);
    resend_stale(now, ready);
    request_missing(ended, now);
}

// Requests the rest. Not before the back-off: a child with early partial replies would be polled
// without end.
void CollectiveState::resume_request(std::uint32_t id, TimePoint now, Ready& ready) {
    ChildRequest* const request = child_requests_.find(id);
    if (!request || !request->is(RequestPhase::backing_off) || due_of(*request) > now) return;
    child_requests_.change(*request, [](ChildRequest& changed) {
        if (changed.rounds < 255) ++changed.rounds;
    });
    send(*request, now, ready);
}

// The end of the positions from `position` on that other requests decide; `position`: none does.
std::uint32_t CollectiveState::requested_until(std::uint32_t position) const {
    std::uint32_t until = position;
    child_requests_.for_each([&](const ChildRequest& request) {
        const Interval awaited = awaited_by(request);
        if (!request.is(RequestPhase::queued) && awaited.contains(position))
            until = std::max(until, awaited.last);
    });
    return until;
}

// Handles positions that the reply left out or that could not be taken. If a merged reply overlaps
// known outcomes, each remaining rank is requested alone.
void CollectiveState::request_missing(const ChildRequest& request, TimePoint now) {
    if (outcomes_.contains(request.of)) return;
    const bool is_merged = !plan_->merge.is_list() && request.kind != RequestKind::self_only;
    if (is_merged && !cancelled_ && now < role_.deadline) {
        ChildRequest remaining;
        remaining.of = request.of;
        remaining.kind = RequestKind::self_only;
        remaining.is_repeat = true;
        remaining.named = request.named;
        remaining.phase = RequestPhase::queued;
        child_requests_.add(remaining);
        return;
    }
    Member scratch;
    const Status why =
        fail(Code::internal,
             "rank " + std::to_string(plan_->rank_order->at(request.of.first, scratch).rank) +
                 " replied without an outcome for this rank")
            .with_effect(Effect::unknown)
            .with_stage(Stage::sent);
    IntervalSet requested;
    child_requests_.for_each([&](const ChildRequest& other) { requested.add(awaited_by(other)); });
    for (const Interval& open : requested.missing(request.of)) outcomes_.add_missing(open, why);
}

void CollectiveState::send_queued(TimePoint now, Ready& ready) {
    while (!is_done() && child_requests_.self_only() < self_only_max) {
        ChildRequest* const remaining = child_requests_.first_queued();
        if (!remaining) return;
        const std::uint32_t next = outcomes_.first_missing(remaining->of);
        if (next == remaining->of.last) {
            child_requests_.take(*remaining);
            continue;
        }
        // Positions that another request decides are skipped together.
        const std::uint32_t until = requested_until(next);
        remaining->of.first = std::min(std::max(until, next + 1), remaining->of.last);
        if (until == next)
            start_request({next, next + 1}, RequestKind::self_only, true, remaining->named, now,
                          ready);
    }
}

// ---- stale views -------------------------------------------------------------------------------

void CollectiveState::on_stale_view(ChildRequest& request, std::uint64_t epoch, TimePoint now,
                                    Ready& ready) {
    const std::uint32_t id = request.id;
    const bool is_hopeless = epoch == 0 || request.named || request.kind != RequestKind::all;
    if (is_hopeless) {
        return fail_request(
            id,
            rejected(
                Code::failed_precondition,
                epoch == 0
                    ? "this rank serves no group of this name (expected: Runtime::join() there "
                      "before the call, with views of the same name): '" +
                          plan_->name + "'"
                    : "the caller's view has epoch " + std::to_string(plan_->epoch) +
                          ", this rank's has epoch " + std::to_string(epoch)),
            now, ready);
    }
    request.named = true;
    if (!may_refresh_ || epoch <= plan_->epoch) {
        resend_stale(now, ready);
        return send(*child_requests_.find(id), now, ready);
    }
    child_requests_.change(
        request, [](ChildRequest& changed) { changed.move_to(RequestPhase::stale_view); });
    if (child_requests_.all_stale_view()) ready.refresh = {request.of.first, epoch};
}

void CollectiveState::use_own_view(TimePoint now, Ready& ready) { resend_stale(now, ready); }

void CollectiveState::supersede() {
    child_requests_.take_all();
    move_to(Phase::done);
}

// A rank has begun, or no later view can be learnt: sends the refused requests again, with members
// by name.
void CollectiveState::resend_stale(TimePoint now, Ready& ready) {
    if (!std::exchange(may_refresh_, false)) return;
    std::vector<std::uint32_t> stale_view;
    child_requests_.for_each([&](const ChildRequest& request) {
        if (request.is(RequestPhase::stale_view)) stale_view.push_back(request.id);
    });
    for (const std::uint32_t id : stale_view) {
        if (ChildRequest* const request = child_requests_.find(id)) send(*request, now, ready);
    }
}

// ---- the local method --------------------------------------------------------------------------

void CollectiveState::on_method_done(Status status, ByteView reply, Ready& ready) {
    if (!std::exchange(method_running_, false)) return;
    if (role_.subtree.size() > 1 && !role_.is_origin) {  // No rank contacts the origin.
        outcomes_.keep_own(role_.subtree.first, status, reply);
    }
    outcomes_.add(role_.subtree.first, std::move(status), reply);
    check_completion(ready);
}

// ---- time --------------------------------------------------------------------------------------

TimePoint CollectiveState::due() const {
    if (is_done()) return never;
    TimePoint at = std::min({role_.deadline, orphaned_at(), child_requests_.due()});
    for (const ParentRequest& parent : parents_) {
        if (parent.request) at = std::min(at, parent.expires);
    }
    return at;
}

// A child without a reply for its progress interval and `suspect_after` is suspect: this rank
// contacts the ranks below it directly. The child itself may still reply.
void CollectiveState::suspect_overdue(TimePoint now, Ready& ready) {
    std::vector<Interval> below;
    for (const std::uint32_t id : child_requests_.due_by(now)) {
        ChildRequest& request = *child_requests_.find(id);
        if (request.is(RequestPhase::backing_off)) continue;
        child_requests_.change(request, [](ChildRequest& changed) { changed.is_suspect = true; });
        below.push_back({request.of.first + 1, request.of.last});
    }
    if (!below.empty()) resend_stale(now, ready);  // The suspect may have begun.
    for (const Interval& one : below) {
        if (one.size() > 0 && !outcomes_.contains(one)) request_children(one, true, now, ready);
    }
}

void CollectiveState::on_timer(TimePoint now, Ready& ready) {
    if (is_done()) return;
    if (now >= role_.deadline) return expire(ready);
    if (now >= orphaned_at()) {
        return cancel(
            fail(Code::cancelled,
                 "the parent of this rank disconnected, and no other rank waits for its outcome")
                .with_effect(Effect::unknown)
                .with_stage(Stage::executing),
            true, ready);
    }
    suspect_overdue(now, ready);
    for (const std::uint32_t id : child_requests_.due_by(now)) resume_request(id, now, ready);
    send_progress_replies(now, ready);
    send_queued(now, ready);
    check_completion(ready);
}

void CollectiveState::expire(Ready& ready) {
    const Status late = fail(Code::deadline_exceeded, "the rank did not reply before the deadline")
                            .with_effect(Effect::unknown);
    if (method_running_) {
        outcomes_.add(role_.subtree.first, Status(late).with_stage(Stage::executing), {});
    }
    stop(Status(late).with_stage(Stage::sent), false, ready);
}

void CollectiveState::cancel(const Status& why, bool cancels_others, Ready& ready) {
    if (!is_done() && !cancelled_) stop(why, cancels_others, ready);
}

void CollectiveState::stop(const Status& why, bool cancels_others, Ready& ready) {
    cancelled_ = true;
    cancel_requests(cancels_others, ready);
    cancel_method(ready);
    outcomes_.add_missing(role_.subtree, why);
    check_completion(ready);
}

void CollectiveState::cancel_requests(bool cancel_children, Ready& ready) {
    for (const ChildRequest& request : child_requests_.take_all()) {
        const bool awaits_resume = request.is(RequestPhase::backing_off);
        if (request.is(RequestPhase::sent) || (awaits_resume && cancel_children))
            ready.cancels.push_back({request, cancel_children});
    }
}

void CollectiveState::cancel_method(Ready& ready) {
    if (std::exchange(method_running_, false)) ready.cancel_method = true;
}

// ---- completion --------------------------------------------------------------------------------

// At the origin: no outcome that is still missing can change the status.
bool CollectiveState::is_decided() const {
    if (!plan_->merge.is_list() || role_.policy == Policy::all) return false;
    if (role_.policy == Policy::quorum && outcomes_.ok_count() >= role_.quorum) return true;
    const std::uint32_t missing = role_.subtree.size() - outcomes_.known_count();
    // If the quorum can't be met any more, replies of all but suspects are still awaited.
    const bool may_be =
        role_.policy == Policy::quorum && outcomes_.ok_count() + missing >= role_.quorum;
    return !may_be && waits_for_suspects();
}

bool CollectiveState::waits_for_suspects() const {
    return phase_ != Phase::fresh && !method_running_ && child_requests_.all_suspect();
}

void CollectiveState::check_completion(Ready& ready) {
    if (is_done()) return;
    if (outcomes_.known_count() == role_.subtree.size()) return end(ready);
    if (!role_.is_origin || is_delivering() || !is_decided()) return;
    move_to(Phase::delivering);
    ready.report = true;
}

void CollectiveState::on_reported(Ready& ready) {
    WEFT_ASSERT(role_.is_origin && (is_delivering() || is_done()));
    if (!role_.abandons) return;
    cancel(fail(Code::cancelled, "the caller cancelled the collective, and has its outcome")
               .with_effect(Effect::unknown),
           true, ready);
}

void CollectiveState::end(Ready& ready) {
    if (role_.is_origin && !is_delivering()) ready.report = true;
    move_to(Phase::done);
    // No other rank takes over from the origin: it also cancels children that it contacted again,
    // and that another rank has reported meanwhile.
    cancel_requests(role_.is_origin, ready);
    cancel_method(ready);
    WEFT_ASSERT(child_requests_.empty() && !method_running_);
    outcomes_.finish();
    parent_expected_ = !parents_.empty() && waiting_parents() == 0;
    for (const ParentRequest& parent : std::exchange(parents_, {})) {
        if (parent.request) ready.replies.push_back({parent.request, SubtreeReply::Kind::complete});
    }
    ready.done = true;
}

bool CollectiveState::awaits_all() const {
    IntervalSet awaited = outcomes_.known();
    if (method_running_) awaited.add({role_.subtree.first, role_.subtree.first + 1});
    child_requests_.for_each(
        [&](const ChildRequest& request) { awaited.add(awaited_by(request)); });
    return is_done() || awaited.contains(role_.subtree);
}

bool CollectiveState::did_nothing() const {
    return role_.subtree.size() == 1 && outcomes_.exceptions().size() == 1 &&
           !outcomes_.exceptions().front().status.ok() &&
           outcomes_.exceptions().front().status.effect() == Effect::none;
}

void CollectiveState::release() {
    WEFT_ASSERT(is_done() && parents_.empty());
    outcomes_ = Outcomes(plan_->merge);
    // Frees the data that no shared view holds: named members and the order of ranks.
    if (plan_->rank_order->heap_bytes() == 0) return;
    auto plan = std::make_shared<Plan>(*plan_);
    plan->rank_order = std::make_shared<RankOrder>(role_.subtree.first, MemberList(),
                                                   plan_->rank_order->root(), false);
    plan_ = std::move(plan);
}

}  // namespace weft::coll
