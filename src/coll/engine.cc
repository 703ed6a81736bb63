#include "coll/engine.h"

#include "base/assert.h"

namespace weft::coll {

std::shared_ptr<GroupState> Engine::make_group(std::shared_ptr<void> owner, GroupView view) {
    return std::make_shared<GroupState>(
        host_, std::move(owner), std::move(view),
        [this](const GroupState& group) { member_collectives_.on_view(group); });
}

Status Engine::join(std::shared_ptr<GroupState> group) { return member_.join(std::move(group)); }

void Engine::on_change(const std::shared_ptr<GroupState>& group,
                       Function<void(const MemberChange&)> listener) {
    if (host_.context().is_closed()) return;
    if (!group->has_listeners()) {
        std::erase_if(listened_groups_, [](const auto& one) { return one.expired(); });
        listened_groups_.push_back(group);
    }
    WEFT_ASSERT(listener);
    group->on_change(std::move(listener));
}

void Engine::shutdown() {
    for (const auto& one : listened_groups_) {
        if (const auto group = one.lock()) group->clear_listeners();
    }
    listened_groups_.clear();
    member_.leave_all();
    host_.deferred_requests().clear();
    member_collectives_.shutdown();
    origin_.shutdown();
    member_.shutdown();
}

std::size_t Engine::parents_expected() {
    return member_.parents_expected() +
           member_collectives_.undelivered(host_.context().clock().now());
}

}  // namespace weft::coll
