#include "coll/member_driver.h"

#include <algorithm>

#include "base/assert.h"

namespace weft::coll {

static constexpr std::size_t own_reply_max = 64 << 10;  // A larger one is not kept.

bool MemberDriver::matches(const ForwardHeader& header) const {
    WEFT_DCHECK(header.key.sequence == state().key().sequence);
    const Plan& plan = state().plan();
    return header.view == plan.view && header.method == plan.method &&
           header.root == plan.rank_order->root() && header.first == state().role().subtree.first &&
           header.tree == plan.tree && header.plan_flags() == plan.flags &&
           header.operation == static_cast<std::uint8_t>(plan.merge.reduction.operation) &&
           header.number == static_cast<std::uint8_t>(plan.merge.reduction.number);
}

void MemberDriver::evict() {
    advance(&CollectiveState::cancel,
            fail(Code::resource_exhausted,
                 "this rank evicted the collective to make room for later ones")
                .with_effect(Effect::unknown)
                .with_stage(Stage::sent),
            false);
}

void MemberDriver::on_parent_cancelled(std::uint32_t parent) {
    own_state().on_parent_cancelled(parent);
    if (state().known_parents() == 0) parent_expected_until_ = {};
    arm_timer();
}

void MemberDriver::on_method_done(Status status, ByteView reply) {
    awaits_others = true;
    CollectiveDriver::on_method_done(std::move(status), reply);
    reply_self_only();
}

// ---- requests of parents -----------------------------------------------------------------------

// Ranks that adopt this one are its ancestors: at most the tree's depth, and again after each
// death.
static constexpr std::size_t parent_requests_max = 64;
// With more running collectives than this, none keeps a request open for suspects only.
static constexpr std::size_t open_requests_max = 256;
// For one peer: a parent sends one request for the subtree, and one for this rank alone.
static constexpr std::ptrdiff_t parent_requests_per_peer_max = 8;

void MemberDriver::on_request(const ForwardHeader& header, Call call) {
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
        parent_expected_until_ = {};
        return call.reply(kept);
    }
    if (self_only && state().outcomes().own()) {
        return call.reply(encode_subtree_reply(*state().outcomes().own(), call.reply_bytes_max()));
    }
    const SessionKey from = host().session_key_of(call);
    const auto of_this = std::count_if(parent_requests_.begin(), parent_requests_.end(),
                                       [&](const ParentRequest& one) { return one.from == from; });
    if (parent_requests_.size() >= parent_requests_max || of_this >= parent_requests_per_peer_max) {
        return refuse(
            Code::resource_exhausted,
            "this rank has too many requests of parents for the outcomes of this collective");
    }
    WEFT_ASSERT(running);
    const std::uint32_t id = next_request_++;
    // An open request takes one of its peer's slots. Many collectives that wait for suspects would
    // leave none for later collectives.
    const bool is_brief = state().waits_for_suspects() && host().running() > open_requests_max;
    const Duration progress_interval = is_brief ? Duration(0) : header.progress_interval_us * 1us;
    // This collective owns the call while it is open, so the callback does not outlive `this`.
    call.on_cancel([this, id] { on_parent_gone(id); });
    own_state().on_request(id, header.parent, saturating_add(now(), progress_interval));
    parent_requests_.push_back({id, self_only, from, std::move(call)});
    parent_expected_until_ = {};
    arm_timer();
}

// Parents that request only this rank's outcome wait for nothing else.
void MemberDriver::reply_self_only() {
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
        own_state().on_request_gone(request.id, now());
    }
    arm_timer();
}

std::optional<MemberDriver::ParentRequest> MemberDriver::take_request(std::uint32_t id) {
    const auto at = std::find_if(parent_requests_.begin(), parent_requests_.end(),
                                 [&](const ParentRequest& one) { return one.id == id; });
    if (at == parent_requests_.end()) return std::nullopt;
    std::optional<ParentRequest> taken = std::move(*at);
    parent_requests_.erase(at);
    return taken;
}

void MemberDriver::on_parent_gone(std::uint32_t id) {
    const auto kept = shared_from_this();
    (void)take_request(id);
    own_state().on_request_gone(id, now());
    // Another parent may send a request.
    if (state().known_parents() > 0) owner_.expect_parent(*this);
    arm_timer();
}

void MemberDriver::reply(const Ready::Reply& reply) {
    std::optional<ParentRequest> taken = take_request(reply.request);
    if (!taken) return;
    ParentRequest& request = *taken;
    const std::size_t bytes_max = request.call.reply_bytes_max();
    const SubtreeReply::Kind kind = reply.kind;
    const bool is_complete = kind == SubtreeReply::Kind::complete;
    if (!is_complete) owner_.expect_parent(*this);  // The parent sends another request.
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
    all.clock = host().clock_reading();
    std::vector<std::byte> bytes = encode_subtree_reply(std::move(all), bytes_max);
    request.call.reply(bytes);
    if (is_complete) subtree_reply = std::move(bytes);
}

// With the cost of a request, as far as this rank knows it.
SubtreeReply MemberDriver::complete_reply() const {
    WEFT_DCHECK(state().is_done());
    SubtreeReply all = state().outcomes().snapshot(SubtreeReply::Kind::complete);
    all.cost = measured();
    return all;
}

void MemberDriver::on_done() {
    WEFT_ASSERT(running && parent_requests_.empty());
    running = false;
    CollectiveDriver::on_done();
    if (subtree_reply.empty()) {
        subtree_reply = encode_subtree_reply(complete_reply(), host().reply_bytes_max());
    }
    if (const SubtreeReply* own = state().outcomes().own();
        own && coll::bytes_of(*own) <= own_reply_max) {
        own_reply = encode_subtree_reply(*own, own_reply_max);
    }
    // From here on only the reply is kept, within the limits of the table.
    did_nothing_ = !method_entered() && state().did_nothing();
    if (state().parent_expected()) owner_.expect_parent(*this);
    own_state().release();
    owner_.on_done(*this);
}

}  // namespace weft::coll
