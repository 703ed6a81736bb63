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
    const auto at = links_.find(member.rank);
    if (at != links_.end() && at->second.uris == member.uris) return at->second.channel;
    const auto has = [&](const GroupView& view) {
        const Member* const known = view.find(member.rank);
        return known && known->uris == member.uris;
    };
    const bool is_by_word = !has(own_view_);
    Result<Channel> channel = engine.connect()(member.uris, is_by_word ? &own_reach() : nullptr);
    // Of members that only a request named no more is kept than what is asked of them.
    if (channel && has(view_here())) links_[member.rank] = {member.uris, *channel, {}, is_by_word};
    return channel;
}

PeerClock* GroupImpl::clock_of(const Member& member) {
    const auto at = links_.find(member.rank);
    return at != links_.end() && at->second.uris == member.uris ? &at->second.clock : nullptr;
}

const core::Reach& GroupImpl::own_reach() {
    if (own_reach_) return *own_reach_;
    own_reach_.emplace();
    for (const Member& member : own_view_.members()) {
        for (const std::string& uri : member.uris) own_reach_->add(uri);
    }
    return *own_reach_;
}

Status GroupImpl::install(const GroupView& later) {
    const GroupView& now = view_here();
    // Also one that a member told first: from here on it is the program's own.
    const bool is_later = later.name() == now.name() && later.epoch() > now.epoch();
    if (is_later || later.digest() == now.digest()) {
        own_view_ = later;
        own_reach_.reset();
        // The next use takes the best address that this view allows. Calls hold their channels.
        std::erase_if(links_, [](const auto& one) { return one.second.is_by_word; });
    }
    return learn(later);
}

Status GroupImpl::learn(const GroupView& later) {
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
    takes_all_.reset();
    std::exchange(encoded_view_, {});
    for (const MemberChange& change : changes_between(before, later)) {
        if (change.cause == MemberChange::Cause::left) links_.erase(change.rank);
        for (const auto& told : told_) {
            engine.context().post([told, change] { (*told)(change); });
        }
    }
    engine.in_turn([&] { engine.meetings().on_view(*this); });
    return {};
}

void GroupImpl::on_change(Function<void(const MemberChange&)> told) {
    if (engine.context().is_closed()) return;
    if (told_.empty()) engine.has_listener(weak_from_this());
    told_.push_back(std::make_shared<Function<void(const MemberChange&)>>(std::move(told)));
}

const std::string& GroupImpl::encoded_view() {
    if (encoded_view_.empty()) encoded_view_ = view_.encode();
    return encoded_view_;
}

bool GroupImpl::takes_all(const GroupView& view) {
    const auto none_drains = [&] {
        return std::none_of(view.members().begin(), view.members().end(),
                            [](const Member& member) { return member.draining; });
    };
    if (view.digest() != view_.digest()) return none_drains();
    if (!takes_all_) takes_all_ = none_drains();
    return *takes_all_;
}

// Sorting by host costs a name for each member: it is done once for a view, for all roots.
std::shared_ptr<const HostOrder> GroupImpl::host_order(const GroupView& view) {
    if (view.digest() != view_.digest()) return std::make_shared<HostOrder>(view);
    if (!host_order_) host_order_ = std::make_shared<HostOrder>(view);
    return host_order_;
}

bool GroupImpl::shares_hosts(const GroupView& view) {
    const std::uint32_t hosts = host_order(view)->hosts();
    return hosts > 1 && hosts < view.size();
}

bool GroupImpl::wait_to_learn(Function<void()> done) {
    learning_.push_back(std::move(done));
    return learning_.size() == 1;
}

void GroupImpl::has_learnt() {
    for (Function<void()>& done : std::exchange(learning_, {})) done();
}

static bool is_same(const Merge& a, const Merge& b) {
    return a.reduction.operation == b.reduction.operation &&
           a.reduction.number == b.reduction.number && a.reduction.ordered == b.reduction.ordered &&
           a.function == b.function;
}

std::shared_ptr<const Roster> GroupImpl::roster(Roster::Parts parts) {
    for (const auto& plan : plans_) {
        if (plan->roster->is_of(parts)) return plan->roster;
    }
    if (parts.by_host) parts.hosts = host_order(parts.view);
    return std::make_shared<Roster>(std::move(parts));
}

std::shared_ptr<const Plan> GroupImpl::plan(std::shared_ptr<const Roster> roster,
                                            std::uint64_t method, const Tree& tree,
                                            const Merge& merge, std::uint8_t flags) {
    const auto fits = [&](const std::shared_ptr<const Plan>& plan) {
        return plan->roster == roster && plan->method == method && plan->tree == tree &&
               plan->flags == flags && is_same(plan->merge, merge);
    };
    const auto at = std::find_if(plans_.begin(), plans_.end(), fits);
    if (at != plans_.end()) {
        std::rotate(plans_.begin(), at, at + 1);
        return plans_.front();
    }
    auto plan = std::make_shared<Plan>();
    plan->view = roster->view().digest();
    plan->group = name_hash;
    plan->name = roster->view().name();
    plan->epoch = roster->view().epoch();
    plan->method = method;
    plan->tree = tree;
    plan->merge = merge;
    plan->flags = flags;
    plan->roster = std::move(roster);
    if (plans_.size() == plans_most) plans_.pop_back();
    plans_.insert(plans_.begin(), plan);
    return plan;
}

}  // namespace weft::coll
