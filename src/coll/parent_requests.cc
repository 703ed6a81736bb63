// The parents of a rank's state: those that wait, and those expected to return.
#include <algorithm>

#include "base/assert.h"
#include "coll/collective_state.h"

namespace weft::coll {

void CollectiveState::on_request(std::uint32_t request, std::uint32_t parent, TimePoint reply_by) {
    // Expected parents at or below this position acted on its behalf: none of them is expected now.
    std::erase_if(parents_,
                  [&](const ParentRequest& one) { return !one.request && one.parent >= parent; });
    WEFT_ASSERT(request != 0 && !is_done());
    parents_.push_back({request, parent, reply_by});
}

// A parent with a partial reply returns for the rest; if it has died, another rank takes over. Each
// expected parent has one entry, for as long as it is expected.
void CollectiveState::on_request_gone(std::uint32_t request, TimePoint now) {
    const auto left = std::find_if(parents_.begin(), parents_.end(), [&](const ParentRequest& one) {
        return one.request == request;
    });
    if (left == parents_.end()) return;
    const std::uint32_t parent = left->parent;
    parents_.erase(left);
    if (parent == no_parent) return;
    std::erase_if(parents_, [&](const ParentRequest& one) {
        return !one.request && (one.parent == parent || one.expires <= now);
    });
    const auto is_expected = [](const ParentRequest& one) { return one.request == 0; };
    if (std::count_if(parents_.begin(), parents_.end(), is_expected) >= expected_parents_max) {
        // The first of them: the others are expected for longer.
        parents_.erase(std::find_if(parents_.begin(), parents_.end(), is_expected));
    }
    parents_.push_back({0, parent, now + orphan_timeout});
}

void CollectiveState::on_parent_cancelled(std::uint32_t parent) {
    std::erase_if(parents_,
                  [&](const ParentRequest& one) { return !one.request && one.parent >= parent; });
    for (ParentRequest& one : parents_) {
        if (one.parent >= parent) one.parent = no_parent;
    }
}

void CollectiveState::send_progress_replies(TimePoint now, Ready& ready) {
    std::vector<std::uint32_t> due;
    for (const ParentRequest& one : parents_) {
        if (one.request && one.expires <= now) due.push_back(one.request);
    }
    if (due.empty()) return;
    const SubtreeReply::Kind kind =
        waits_for_suspects() ? SubtreeReply::Kind::only_suspects : SubtreeReply::Kind::partial;
    for (const std::uint32_t request : due) {
        on_request_gone(request, now);
        ready.replies.push_back({request, kind});
    }
}

std::size_t CollectiveState::waiting_parents() const {
    return static_cast<std::size_t>(
        std::count_if(parents_.begin(), parents_.end(),
                      [](const ParentRequest& one) { return one.request != 0; }));
}

// From when on no parent waits or is expected.
TimePoint CollectiveState::orphaned_at() const {
    if (role_.is_origin || waiting_parents() > 0) return never;
    TimePoint at{};
    for (const ParentRequest& one : parents_) at = std::max(at, one.expires);
    return at;
}

}  // namespace weft::coll
