#include "coll/group_state.h"

#include <algorithm>
#include <mutex>

#include "base/assert.h"
#include "coll/collective_host.h"

namespace weft::coll {

GroupState::GroupState(CollectiveHost& host, std::shared_ptr<void> owner, GroupView with,
                       OnLaterView on_later_view)
    : name_hash(method_hash(with.name())),
      host_(host),
      owner_(std::move(owner)),
      on_later_view_(std::move(on_later_view)),
      view_(std::move(with)),
      own_view_(view_) {}

GroupView GroupState::view() const {
    const std::lock_guard lock(mutex_);
    return view_;
}

Result<Channel> GroupState::channel(std::uint32_t rank) {
    const GroupView& now = view_here();
    const Member* const member = now.find(rank);
    if (member) return channel(*member);
    return fail(Code::out_of_range, "group '" + now.name() + "' has no rank " +
                                        std::to_string(rank) + " in epoch " +
                                        std::to_string(now.epoch()));
}

Result<Channel> GroupState::channel(const Member& member) {
    const auto at = member_channels_.find(member.rank);
    if (at != member_channels_.end() && at->second.uris == member.uris) return at->second.channel;
    const auto has = [&](const GroupView& view) {
        const Member* const known = view.find(member.rank);
        return known && known->uris == member.uris;
    };
    const bool is_from_peer = !has(own_view_);
    Result<Channel> channel = host_.connect()(member.uris, is_from_peer ? &own_reach() : nullptr);
    // The channel of a member that only a request named is not kept.
    if (channel && has(view_here()))
        member_channels_[member.rank] = {member.uris, *channel, {}, is_from_peer};
    return channel;
}

PeerClock* GroupState::clock_of(const Member& member) {
    const auto at = member_channels_.find(member.rank);
    return at != member_channels_.end() && at->second.uris == member.uris ? &at->second.clock
                                                                          : nullptr;
}

const core::ConnectPolicy& GroupState::own_reach() {
    if (own_reach_) return *own_reach_;
    own_reach_.emplace();
    for (const Member& member : own_view_.members()) {
        for (const std::string& uri : member.uris) own_reach_->add(uri);
    }
    return *own_reach_;
}

Status GroupState::install(const GroupView& later) {
    const GroupView& now = view_here();
    // Also a view that a member reported first: from here on it is the program's own.
    const bool is_later = later.name() == now.name() && later.epoch() > now.epoch();
    if (is_later || later.digest() == now.digest()) {
        own_view_ = later;
        own_reach_.reset();
        // The next use takes the best address that this view allows. Calls hold their channels.
        std::erase_if(member_channels_, [](const auto& one) { return one.second.is_from_peer; });
    }
    return install_from_peer(later);
}

Status GroupState::install_from_peer(const GroupView& later) {
    const GroupView before = view_here();
    if (later.name() != before.name()) {
        return fail(Code::invalid_argument,
                    "a view of group '" + later.name() + "' for group '" + before.name() + "'");
    }
    if (later.epoch() <= before.epoch()) {
        return fail(Code::aborted, "group '" + before.name() + "' is in epoch " +
                                       std::to_string(before.epoch()) + " already, not before " +
                                       std::to_string(later.epoch()));
    }
    {
        const std::lock_guard lock(mutex_);
        view_ = later;
    }
    plans_.clear();
    host_order_.reset();
    all_participate_.reset();
    std::exchange(encoded_view_, {});
    for (const MemberChange& change : changes_between(before, later)) {
        if (change.cause == MemberChange::Cause::left) member_channels_.erase(change.rank);
        for (const auto& listener : listeners_) {
            host_.context().post([listener, change] { (*listener)(change); });
        }
    }
    host_.in_turn([&] { on_later_view_(*this); });
    return {};
}

void GroupState::on_change(Function<void(const MemberChange&)> listener) {
    listeners_.push_back(
        std::make_shared<Function<void(const MemberChange&)>>(std::move(listener)));
}

const std::string& GroupState::encoded_view() {
    if (encoded_view_.empty()) encoded_view_ = view_.encode();
    return encoded_view_;
}

bool GroupState::all_participate(const GroupView& view) {
    const auto no_member_drains = [&] {
        return std::none_of(view.members().begin(), view.members().end(),
                            [](const Member& member) { return member.draining; });
    };
    if (view.digest() != view_.digest()) return no_member_drains();
    if (!all_participate_) all_participate_ = no_member_drains();
    return *all_participate_;
}

// Sorting by host needs the host name of each member: it is done once for a view, for all roots.
std::shared_ptr<const HostOrder> GroupState::host_order(const GroupView& view) {
    if (view.digest() != view_.digest()) return std::make_shared<HostOrder>(view);
    if (!host_order_) host_order_ = std::make_shared<HostOrder>(view);
    return host_order_;
}

bool GroupState::shares_hosts(const GroupView& view) {
    const std::uint32_t hosts = host_order(view)->hosts();
    return hosts > 1 && hosts < view.size();
}

bool GroupState::wait_for_view(Function<void()> done) {
    view_waiters_.push_back(std::move(done));
    return view_waiters_.size() == 1;
}

void GroupState::on_view_fetched() {
    for (Function<void()>& done : std::exchange(view_waiters_, {})) done();
}

static bool is_same(const Merge& a, const Merge& b) {
    return a.reduction.operation == b.reduction.operation &&
           a.reduction.number == b.reduction.number && a.reduction.ordered == b.reduction.ordered &&
           a.function == b.function;
}

std::shared_ptr<const RankOrder> GroupState::rank_order(RankOrder::Params params) {
    for (const auto& plan : plans_) {
        if (plan->rank_order->matches(params)) return plan->rank_order;
    }
    if (params.by_host) params.hosts = host_order(params.view);
    return std::make_shared<RankOrder>(std::move(params));
}

std::shared_ptr<const Plan> GroupState::plan(std::shared_ptr<const RankOrder> rank_order,
                                             std::uint64_t method, const Tree& tree,
                                             const Merge& merge, std::uint8_t flags) {
    const auto fits = [&](const std::shared_ptr<const Plan>& plan) {
        return plan->rank_order == rank_order && plan->method == method && plan->tree == tree &&
               plan->flags == flags && is_same(plan->merge, merge);
    };
    const auto at = std::find_if(plans_.begin(), plans_.end(), fits);
    if (at != plans_.end()) {
        std::rotate(plans_.begin(), at, at + 1);
        return plans_.front();
    }
    auto plan = std::make_shared<Plan>();
    WEFT_DCHECK(!rank_order->is_named());
    plan->view = rank_order->view().digest();
    plan->group = name_hash;
    plan->name = rank_order->view().name();
    plan->epoch = rank_order->view().epoch();
    plan->method = method;
    plan->tree = tree;
    plan->merge = merge;
    plan->flags = flags;
    plan->rank_order = std::move(rank_order);
    WEFT_ASSERT(plans_.size() <= plans_max);
    if (plans_.size() == plans_max) plans_.pop_back();
    plans_.insert(plans_.begin(), plan);
    return plan;
}

}  // namespace weft::coll
