#include "coll/group_impl.h"

#include <algorithm>
#include <mutex>

#include "coll/engine.h"

namespace weft::coll {

GroupImpl::GroupImpl(Engine& of, std::shared_ptr<void> owner, GroupView with)
    : engine(of),
      name_hash(method_hash(with.name())),
      owner_(std::move(owner)),
      view_(std::move(with)),
      own_view_(view_) {}

GroupView GroupImpl::view() const {
    const std::lock_guard lock(mutex_);
    return view_;
}

Result<Channel> GroupImpl::channel(std::uint32_t rank) {
    const GroupView& now = view_here();
    const Member* const member = now.find(rank);
    if (member) return channel(*member);
    return fail(Code::out_of_range, "group '" + now.name() + "' has no rank " +
                                        std::to_string(rank) + " in epoch " +
                                        std::to_string(now.epoch()));
}

Result<Channel> GroupImpl::channel(const Member& member) {
    const auto at = member_channels_.find(member.rank);
    if (at != member_channels_.end() && at->second.uris == member.uris) return at->second.channel;
    const auto has = [&](const GroupView& view) {
        const Member* const known = view.find(member.rank);
        return known && known->uris == member.uris;
    };
    const bool is_from_peer = !has(own_view_);
    Result<Channel> channel = engine.connect()(member.uris, is_from_peer ? &own_reach() : nullptr);
    // The channel of a member that only a request named is not kept.
    if (channel && has(view_here()))
        member_channels_[member.rank] = {member.uris, *channel, {}, is_from_peer};
    return channel;
}

PeerClock* GroupImpl::clock_of(const Member& member) {
    const auto at = member_channels_.find(member.rank);
    return at != member_channels_.end() && at->second.uris == member.uris ? &at->second.clock
                                                                          : nullptr;
}

const core::ConnectPolicy& GroupImpl::own_reach() {
    if (own_reach_) return *own_reach_;
    own_reach_.emplace();
    for (const Member& member : own_view_.members()) {
        for (const std::string& uri : member.uris) own_reach_->add(uri);
    }
    return *own_reach_;
}

Status GroupImpl::install(const GroupView& later) {
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

Status GroupImpl::install_from_peer(const GroupView& later) {
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
            engine.context().post([listener, change] { (*listener)(change); });
        }
    }
    engine.in_turn([&] { engine.member_collectives().on_view(*this); });
    return {};
}

void GroupImpl::on_change(Function<void(const MemberChange&)> listener) {
    if (engine.context().is_closed()) return;
    if (listeners_.empty()) engine.add_listener(weak_from_this());
    listeners_.push_back(
        std::make_shared<Function<void(const MemberChange&)>>(std::move(listener)));
}

const std::string& GroupImpl::encoded_view() {
    if (encoded_view_.empty()) encoded_view_ = view_.encode();
    return encoded_view_;
}

bool GroupImpl::all_participate(const GroupView& view) {
    const auto no_member_drains = [&] {
        return std::none_of(view.members().begin(), view.members().end(),
                            [](const Member& member) { return member.draining; });
    };
    if (view.digest() != view_.digest()) return no_member_drains();
    if (!all_participate_) all_participate_ = no_member_drains();
    return *all_participate_;
}

// Sorting by host needs the host name of each member: it is done once for a view, for all roots.
std::shared_ptr<const HostOrder> GroupImpl::host_order(const GroupView& view) {
    if (view.digest() != view_.digest()) return std::make_shared<HostOrder>(view);
    if (!host_order_) host_order_ = std::make_shared<HostOrder>(view);
    return host_order_;
}

bool GroupImpl::shares_hosts(const GroupView& view) {
    const std::uint32_t hosts = host_order(view)->hosts();
    return hosts > 1 && hosts < view.size();
}

bool GroupImpl::wait_for_view(Function<void()> done) {
    view_waiters_.push_back(std::move(done));
    return view_waiters_.size() == 1;
}

void GroupImpl::on_view_fetched() {
    for (Function<void()>& done : std::exchange(view_waiters_, {})) done();
}

static bool is_same(const Merge& a, const Merge& b) {
    return a.reduction.operation == b.reduction.operation &&
           a.reduction.number == b.reduction.number && a.reduction.ordered == b.reduction.ordered &&
           a.function == b.function;
}

std::shared_ptr<const RankOrder> GroupImpl::rank_order(RankOrder::Params params) {
    for (const auto& plan : plans_) {
        if (plan->rank_order->matches(params)) return plan->rank_order;
    }
    if (params.by_host) params.hosts = host_order(params.view);
    return std::make_shared<RankOrder>(std::move(params));
}

std::shared_ptr<const Plan> GroupImpl::plan(std::shared_ptr<const RankOrder> rank_order,
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
    plan->view = rank_order->view().digest();
    plan->group = name_hash;
    plan->name = rank_order->view().name();
    plan->epoch = rank_order->view().epoch();
    plan->method = method;
    plan->tree = tree;
    plan->merge = merge;
    plan->flags = flags;
    plan->rank_order = std::move(rank_order);
    if (plans_.size() == plans_max) plans_.pop_back();
    plans_.insert(plans_.begin(), plan);
    return plan;
}

}  // namespace weft::coll
