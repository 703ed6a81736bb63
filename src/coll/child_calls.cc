// The calls of one collective at one rank to its children, and the handling of their replies.
#include <algorithm>

#include "base/assert.h"
#include "coll/collective_driver.h"
#include "coll/time_budget.h"

namespace weft::coll {

static constexpr Duration cancel_timeout = 2s;

ForwardHeader CollectiveDriver::header_for(Interval of, RequestKind kind,
                                           Duration progress_interval) const {
    ForwardHeader header = state().header_for(of, kind, progress_interval);
    header.time_limit_ns = time_limit_ == Duration::max()
                               ? UINT64_MAX
                               : static_cast<std::uint64_t>(time_limit_.count());
    header.unacknowledged = unacknowledged_;
    header.client = client.number;
    header.flags |= static_cast<std::uint8_t>(priority_ << ForwardHeader::priority_shift);
    return header;
}

std::vector<std::byte> CollectiveDriver::members_of(Interval of) const {
    const RankOrder& rank_order = *state().plan().rank_order;
    if (rank_order.is_named()) {
        const ByteView bytes = rank_order.named(of);
        return {bytes.begin(), bytes.end()};
    }
    WEFT_DCHECK(of.size() > 0);
    std::vector<const Member*> members;
    members.reserve(of.size());
    for (std::uint32_t at = of.first; at < of.last; ++at) {
        members.push_back(&rank_order.at(at));
    }
    return encode_members(members);
}

CallOptions CollectiveDriver::options_for_calls() const {
    CallOptions options;
    // If the parent dies, the rank that adopts this one still waits for the outcomes. At the origin
    // the scope ends the collective, and not its calls one by one.
    options.detached = true;
    options.priority = priority_;
    const TimePoint until = share_of(now(), state().role().deadline);
    options.timeout = until == never ? no_timeout : std::max(until - now(), Duration(1));
    return options;
}

void CollectiveDriver::send_request(const ChildRequest& request) {
    // A collective that began here is bounded by the local program.
    if (state().role().is_origin || host_.deferred_requests().may_send(bytes_of(request)))
        return send_now(request);
    defer({request, Status()});
}

std::size_t CollectiveDriver::bytes_of(const ChildRequest& request) const {
    return request.kind == RequestKind::all ? body_.size() : 0;
}

void CollectiveDriver::defer(DeferredRequest deferred) {
    deferred_.push_back(std::move(deferred));
    if (is_deferred_) return;
    host_.deferred_requests().add(client.peer, shared_from_this());
    is_deferred_ = true;
}

bool CollectiveDriver::run_deferred() {
    WEFT_ASSERT(is_deferred_);
    if (deferred_.empty()) return is_deferred_ = false;
    const DeferredRequest next = std::move(deferred_.back());
    deferred_.pop_back();
    host_.deferred_requests().count(next.why.ok() ? bytes_of(next.request) : 0);
    if (next.why.ok()) {
        send_now(next.request);
    } else {
        advance(next.whole ? &CollectiveState::on_subtree_failure : &CollectiveState::on_failure,
                next.request.id, next.why, now());
    }
    return is_deferred_ = !deferred_.empty();
}

void CollectiveDriver::send_now(const ChildRequest& request) {
    Member scratch;
    const Member& member = state().plan().rank_order->at(request.of.first, scratch);
    Result<Channel> channel = group_->channel(member);
    if (!channel) return defer({request, channel.status()});
    ChildCall child_call;
    child_call.request = request;
    // Later requests have other causes, and some repeat an earlier one: they measure no cost.
    child_call.is_leaf = in_begin_ && request.of.size() == 1;
    child_call.channel = *std::move(channel);
    const PeerClock* const clock = group_->clock_of(member);
    if (!clock && !state().role().is_origin) {
        std::optional<ResourceQuota::NonmemberSlot> slot = host_.quota()->take(client);
        if (!slot) {
            return defer(
                {request,
                 fail(Code::resource_exhausted,
                      "the requests to members outside of this rank's view are at their limit"),
                 request.kind == RequestKind::all});
        }
        child_call.slot = *std::move(slot);
    }
    const bool reads_clock_first = !clock || !is_exact(*clock, began_, time_limit_);
    send(std::move(child_call), reads_clock_first ? PeerClock() : *clock);
}

void CollectiveDriver::send(ChildCall child_call, const PeerClock& clock) {
    try {
        send_or_throw(child_call, clock);
    } catch (const std::bad_alloc&) {
        const ChildRequest request = child_call.request;
        child_calls_.erase(request.id);
        defer({request, no_memory()});
    }
}

void CollectiveDriver::send_or_throw(ChildCall& child_call, const PeerClock& clock) {
    const Plan& plan = state().plan();
    const ChildRequest request = child_call.request;
    const bool begins = request.kind == RequestKind::all;
    child_call.reads_clock = begins && !clock.is_known();
    const bool has_body = begins && !child_call.reads_clock;
    std::vector<std::byte> pieces;
    if (has_body && (plan.flags & ForwardHeader::scatters)) {
        append_pieces(pieces, body_, state().role().subtree, request.of);
    }
    std::vector<std::byte> named;
    if (has_body && (request.named || plan.rank_order->is_named())) named = members_of(request.of);
    ForwardParts parts;
    parts.header =
        header_for(request.of, child_call.reads_clock ? RequestKind::clock : request.kind,
                   progress_interval_of(request));
    if (has_body) parts.header.began = clock.peer_time(began_);
    if (has_body && named.empty()) parts.ranges = plan.rank_order->ranks();
    parts.named = named;
    if (has_body) parts.body = (plan.flags & ForwardHeader::scatters) ? ByteView(pieces) : body_;
    const BodyWriter writer{parts.bytes(), &parts, [](void* object, std::byte* to) {
                                const auto& from = *static_cast<ForwardParts*>(object);
                                encode_forward(from, {to, from.bytes()});
                            }};
    if (child_call.is_leaf && has_body) cost_meter_.on_sent(host_.context().clock().now());
    WEFT_ASSERT(child_calls_.count(request.id) == 0);
    const Channel channel = child_call.channel;
    child_calls_.try_emplace(request.id, std::move(child_call));
    const OperationId call = channel.call_with(
        forward_method, writer, options_for_calls(),
        [self = shared_from_this(), id = request.id](const Status& status, ByteView reply) {
            self->on_reply(id, status, reply);
        });
    // Without memory for its record the call has completed already.
    if (const auto sent = child_calls_.find(request.id); sent != child_calls_.end())
        sent->second.call = call;
}

void CollectiveDriver::on_reply(std::uint32_t request, const Status& status, ByteView reply) {
    const auto at = child_calls_.find(request);
    if (at == child_calls_.end()) return;  // Abandoned.
    ChildCall child_call = std::move(at->second);
    child_calls_.erase(at);
    if (!status.ok()) {
        // A clock request has no effect.
        const Effect effect = child_call.reads_clock ? Effect::none : status.effect();
        advance(&CollectiveState::on_failure, request, Status(status).with_effect(effect), now());
    } else if (Result<SubtreeReply> decoded =
                   decode_subtree_reply(reply, child_call.request.of.size())) {
        if (decoded->kind == SubtreeReply::Kind::expired) {
            return on_expired(std::move(child_call), decoded->clock);
        }
        const std::uint32_t position = child_call.request.of.first;
        Member scratch;
        if (PeerClock* clock = group_->clock_of(state().plan().rank_order->at(position, scratch))) {
            clock->note(decoded->clock, host_.context().clock().now());
        }
        if (decoded->kind == SubtreeReply::Kind::stale && decoded->epoch > state().plan().epoch) {
            on_later_view(position, decoded->epoch);
        }
        if (decoded->kind == SubtreeReply::Kind::complete) {
            if (child_call.is_leaf) cost_meter_.on_reply(host_.context().clock().now());
            cost_meter_.add_reported(decoded->cost);
        }
        advance(&CollectiveState::on_reply, request, *std::move(decoded), now());
    } else {  // The rank ran, with unknown outcomes.
        advance(
            &CollectiveState::on_failure, request,
            std::move(decoded).status().with_effect(Effect::unknown).with_stage(Stage::executing),
            now());
    }
}

// The child did nothing. The request is sent again with the new reading, while it can be in time.
void CollectiveDriver::on_expired(ChildCall child_call, Ticks reading) {
    static constexpr std::uint8_t expired_max = 2;
    Member scratch;
    const Member& member = state().plan().rank_order->at(child_call.request.of.first, scratch);
    const TimePoint arrived = host_.context().clock().now();
    const PeerClock clock(reading, arrived);
    if (PeerClock* const known = group_->clock_of(member)) *known = clock;
    if (!child_call.reads_clock) ++child_call.times_expired;
    if (clock.is_known() && may_begin(arrived - began_, time_limit_) &&
        child_call.times_expired < expired_max) {
        return send(std::move(child_call), clock);
    }
    const Duration within = begin_within(time_limit_);
    advance(&CollectiveState::on_failure, child_call.request.id,
            fail(Code::deadline_exceeded,
                 "rank " + std::to_string(member.rank) + " begins a collective within " +
                     std::to_string(within / 1ms) + " ms of its start, and this one is older")
                .with_stage(Stage::sent)
                .with_peer(child_call.channel.uri()),
            now());
}

void CollectiveDriver::cancel_request(const Ready::Cancel& cancel) {
    deferred_.clear();  // Drops deferred requests as well.
    const ChildRequest& request = cancel.request;
    const bool cancels = cancel.cancel_child && !host_.context().is_closed();
    const auto at = child_calls_.find(request.id);
    if (at == child_calls_.end()) {
        // Either nothing was sent, or the child has sent a partial reply and awaits a request.
        if (!cancels || request.kind == RequestKind::all) return;
        Member scratch;
        const Result<Channel> channel =
            group_->channel(state().plan().rank_order->at(request.of.first, scratch));
        if (channel) send_cancel(*channel);
        return;
    }
    const ChildCall child_call = std::move(at->second);
    child_calls_.erase(at);
    if (cancels) send_cancel(child_call.channel);
    child_call.channel.cancel_call(child_call.call);
}

// Sent ahead of the call's cancel, which alone could mean that this rank died and that another
// parent takes over.
void CollectiveDriver::send_cancel(const Channel& channel) const {
    ForwardParts parts;
    parts.header = header_for({state().role().subtree.first, state().role().subtree.first + 1},
                              RequestKind::cancel, Duration(0));
    std::vector<std::byte> bytes(parts.bytes());
    encode_forward(parts, bytes);
    CallOptions options;
    options.detached = true;
    options.priority = priority_;
    options.timeout = cancel_timeout;
    channel.call(forward_method, bytes, options, [held = channel](const Status&, ByteView) {});
}

}  // namespace weft::coll
