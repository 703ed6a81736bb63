#include "coll/collective_driver.h"

#include <algorithm>

#include "coll/engine.h"

namespace weft::coll {

static constexpr std::size_t own_reply_max = 64 << 10;  // A larger one is not kept.

Status CollectiveDriver::no_memory() const {
    return fail(Code::resource_exhausted, "no memory to forward a collective's request of " +
                                              std::to_string(body.size()) + " bytes");
}

CollectiveDriver::CollectiveDriver(Engine& engine, std::shared_ptr<GroupImpl> with,
                                   std::shared_ptr<const Plan> plan, CollectiveKey key,
                                   std::uint16_t unacknowledged, const CollectiveState::Role& role)
    : StateDriver(std::move(plan), key, role),
      group(std::move(with)),
      engine_(engine),
      context_(engine.context()),
      unacknowledged_(unacknowledged) {
    timer_.of = this;
    timer_.fire = [](base::Timer& timer, TimePoint) {
        CollectiveDriver& of = *static_cast<Timer&>(timer).of;
        of.advance(&CollectiveState::on_timer, of.context_.now());
    };
}

CollectiveDriver::~CollectiveDriver() { cancel_timer(); }

// The context may be destroyed already if no timer is linked.
void CollectiveDriver::cancel_timer() {
    if (timer_.is_linked()) context_.timers().cancel(timer_);
}

bool CollectiveDriver::matches(const ForwardHeader& header) const {
    const Plan& plan = state().plan();
    return header.view == plan.view && header.method == plan.method &&
           header.root == plan.rank_order->root() && header.first == state().role().subtree.first &&
           header.tree == plan.tree && header.plan_flags() == plan.flags &&
           header.operation == static_cast<std::uint8_t>(plan.merge.reduction.operation) &&
           header.number == static_cast<std::uint8_t>(plan.merge.reduction.number);
}

void CollectiveDriver::begin() {
    in_begin_ = true;
    try {  // The time: a handler may have delayed this turn.
        advance(&CollectiveState::begin, context_.clock().now());
    } catch (const std::bad_alloc&) {
        advance(&CollectiveState::cancel, no_memory().with_effect(Effect::unknown), true);
    }
    in_begin_ = false;
}

// An early timer does no harm.
void CollectiveDriver::arm_timer() {
    if (state().is_done() || context_.is_closed()) return cancel_timer();
    const TimePoint due = state().due();
    if (timer_.is_linked() && timer_.deadline <= due) return;
    context_.timers().cancel(timer_);
    context_.timers().arm(timer_, due);
}

void CollectiveDriver::cancel(const Status& why) { advance(&CollectiveState::cancel, why, true); }

void CollectiveDriver::evict() {
    advance(&CollectiveState::cancel,
            fail(Code::resource_exhausted,
                 "this rank evicted the collective to make room for later ones")
                .with_effect(Effect::unknown)
                .with_stage(Stage::sent),
            false);
}

void CollectiveDriver::use_own_view() { advance(&CollectiveState::use_own_view, context_.now()); }

void CollectiveDriver::supersede() {
    deferred_.clear();
    own_state().supersede();
    cancel_timer();
}

void CollectiveDriver::on_parent_cancelled(std::uint32_t parent) {
    own_state().on_parent_cancelled(parent);
    if (state().known_parents() == 0) parent_expected_until = {};
    arm_timer();
}

// ---- the local method --------------------------------------------------------------------------

void CollectiveDriver::run_method() {
    ByteView mine = body;
    if (state().plan().flags & ForwardHeader::scatters) {
        mine = piece_of(body, state().role().subtree.size(), 0).value();
    }
    method_entered_ = true;
    Result<base::SlotId> started =
        engine_.run_here(state().plan().method, mine, state().role().deadline, client,
                         [self = shared_from_this()](Status status, ByteView reply) {
                             self->method_ended_ = true;
                             // The runtime shut down in the middle of the handler.
                             if (status.code() == Code::cancelled) {
                                 status = std::move(status).with_effect(Effect::unknown);
                             }
                             self->on_method_done(std::move(status), reply);
                         });
    if (!started) {
        method_entered_ = false;
        on_method_done(std::move(started).status(), {});
    } else if (!method_ended_) {
        running_method_ = *started;
    }
}

void CollectiveDriver::on_method_done(Status status, ByteView reply) {
    on_method_ended();
    advance(&CollectiveState::on_method_done, std::move(status), reply);
    reply_self_only();
}

// At a member: releases the method's share of the client's quota.
void CollectiveDriver::on_method_ended() {
    if (origin) return;
    awaits_others = true;
    reservation->release_method();
}

// In a later turn: the notified handler may end the operation that cancels it.
void CollectiveDriver::cancel_method() {
    const base::SlotId id = std::exchange(running_method_, {});
    if (!id) return;
    context_.post([&engine = engine_, id, reservation = reservation] {
        engine.cancel_here(id, reservation);
    });
}

// ---- requests of parents -----------------------------------------------------------------------

// Ranks that adopt this one are its ancestors: at most the tree's depth, and again after each
// death.
static constexpr std::size_t parent_requests_max = 64;
// With more running collectives than this, none keeps a request open for suspects only.
static constexpr std::size_t open_requests_max = 256;
// For one peer: a parent sends one request for the subtree, and one for this rank alone.
static constexpr std::ptrdiff_t parent_requests_per_peer_max = 8;

void CollectiveDriver::on_request(const ForwardHeader& header, Call call) {
    const auto refuse = [&](Code code, const char* why) {
        call.fail(fail(code, why).with_effect(Effect::unknown).with_stage(Stage::executing));
    };
    // For this rank only: the same as for all if no rank is below.
    const bool self_only =
        header.kind == RequestKind::self_only && state().role().subtree.size() > 1;
    if (state().is_done()) {
        const std::vector<std::byte>& kept = self_only ? own_reply : subtree_reply;
        // The parent then contacts the children itself.
        if (kept.empty())
            return refuse(Code::aborted, "this rank did not keep the outcomes of the collective");
        parent_expected_until = {};
        return call.reply(kept);
    }
    if (self_only && state().outcomes().own()) {
        return call.reply(encode_subtree_reply(*state().outcomes().own(), call.reply_bytes_max()));
    }
    const SessionKey from = engine_.session_key_of(call);
    const auto of_this = std::count_if(parent_requests_.begin(), parent_requests_.end(),
                                       [&](const ParentRequest& one) { return one.from == from; });
    if (parent_requests_.size() >= parent_requests_max || of_this >= parent_requests_per_peer_max) {
        return refuse(
            Code::resource_exhausted,
            "this rank has too many requests of parents for the outcomes of this collective");
    }
    const std::uint32_t id = next_request_++;
    // An open request takes one of its peer's slots. Many collectives that wait for suspects would
    // leave none for later collectives.
    const bool is_brief = state().waits_for_suspects() && engine_.running() > open_requests_max;
    const Duration progress_interval = is_brief ? Duration(0) : header.progress_interval_us * 1us;
    // This collective owns the call while it is open, so the callback does not outlive `this`.
    call.on_cancel([this, id] { on_parent_gone(id); });
    own_state().on_request(id, header.parent, saturating_add(context_.now(), progress_interval));
    parent_requests_.push_back({id, self_only, from, std::move(call)});
    parent_expected_until = {};
    arm_timer();
}

// Parents that request only this rank's outcome wait for nothing else.
void CollectiveDriver::reply_self_only() {
    const SubtreeReply* const own = state().outcomes().own();
    if (!own || state().is_done()) return;
    for (std::size_t i = 0; i < parent_requests_.size();) {
        if (!parent_requests_[i].self_only) {
            ++i;
            continue;
        }
        ParentRequest request = std::move(parent_requests_[i]);
        parent_requests_.erase(parent_requests_.begin() + static_cast<std::ptrdiff_t>(i));
        request.call.reply(encode_subtree_reply(*own, request.call.reply_bytes_max()));
        own_state().on_request_gone(request.id, context_.now());
    }
    arm_timer();
}

void CollectiveDriver::on_parent_gone(std::uint32_t id) {
    const auto kept = shared_from_this();
    std::erase_if(parent_requests_, [&](const ParentRequest& one) { return one.id == id; });
    own_state().on_request_gone(id, context_.now());
    // Another parent may send a request.
    if (state().known_parents() > 0) engine_.expect_parent(*this);
    arm_timer();
}

void CollectiveDriver::reply(const Ready::Reply& reply) {
    const auto at = std::find_if(parent_requests_.begin(), parent_requests_.end(),
                                 [&](const ParentRequest& one) { return one.id == reply.request; });
    if (at == parent_requests_.end()) return;
    ParentRequest request = std::move(*at);
    parent_requests_.erase(at);
    const std::size_t bytes_max = request.call.reply_bytes_max();
    const SubtreeReply::Kind kind = reply.kind;
    const bool is_complete = kind == SubtreeReply::Kind::complete;
    if (!is_complete) engine_.expect_parent(*this);  // The parent sends another request.
    if (request.self_only) {
        const SubtreeReply* const own = state().outcomes().own();
        return request.call.reply(
            encode_subtree_reply(own ? *own : Outcomes::empty_snapshot(kind), bytes_max));
    }
    if (is_complete && !subtree_reply.empty()) return request.call.reply(subtree_reply);
    SubtreeReply all = is_complete ? complete_reply() : state().outcomes().snapshot(kind);
    // Replies that do not fit now may fit into a later reply; with only_suspects none may follow.
    const bool is_partial = kind == SubtreeReply::Kind::partial;
    if (is_partial && coll::bytes_of(all) > bytes_max) all = Outcomes::empty_snapshot(kind);
    all.clock = engine_.clock_reading();
    std::vector<std::byte> bytes = encode_subtree_reply(std::move(all), bytes_max);
    request.call.reply(bytes);
    if (is_complete) subtree_reply = std::move(bytes);
}

// With the cost of a request, as far as this rank knows it.
SubtreeReply CollectiveDriver::complete_reply() const {
    SubtreeReply all = state().outcomes().snapshot(SubtreeReply::Kind::complete);
    all.cost = cost_meter_.snapshot();
    return all;
}

void CollectiveDriver::on_done() {
    running = false;
    cancel_timer();
    group->costs.note(body.size(), cost_meter_.snapshot());
    body = {};
    std::exchange(own_body, {});  // Frees the memory, too.
    if (origin) return engine_.on_origin_done(*this);
    reservation->release_request();
    if (!method_entered_ || method_ended_)
        on_method_ended();  // Otherwise the handler may still run.
    if (subtree_reply.empty()) {
        subtree_reply = encode_subtree_reply(complete_reply(), engine_.reply_bytes_max());
    }
    if (const SubtreeReply* own = state().outcomes().own();
        own && coll::bytes_of(*own) <= own_reply_max) {
        own_reply = encode_subtree_reply(*own, own_reply_max);
    }
    // From here on only the reply is kept, within the limits of the table.
    did_nothing_ = !method_entered_ && state().did_nothing();
    if (state().parent_expected()) engine_.expect_parent(*this);
    own_state().release();
    engine_.on_member_done(*this);
}

// ---- at the origin -----------------------------------------------------------------------------

void CollectiveDriver::refresh(const Ready::Refresh& refresh) {
    engine_.refresh(shared_from_this(), refresh.position);
}

void CollectiveDriver::report() { engine_.report(*this); }

}  // namespace weft::coll
