#include "api/turns.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <bit>

#include "base/assert.h"
#include "base/wait_for_events.h"

namespace weft::api {

TurnSet TurnSet::all(const Commons& commons) {
    TurnSet set(commons);
    for (const Node* const node : commons.nodes) set.add(*node);
    return set;
}

void TurnSet::add(const Node& node) {
    WEFT_ASSERT(&node.commons == &commons_);
    nodes_ |= std::uint64_t{1} << node.index;
}

template <class F>
void TurnSet::for_each(const F& work) const {
    for (std::uint64_t left = nodes_; left != 0; left &= left - 1)
        work(*commons_.nodes[std::countr_zero(left)]);
}

std::uint32_t TurnSet::turn(TimePoint now) const {
    std::uint32_t events = 0;
    for_each([&](Node& node) { events += node.turn(now); });
    return events;
}

void TurnSet::wait(TimePoint now, Duration longest) const {
    if (longest <= Duration::zero()) return;
    if (std::popcount(nodes_) != 1) return wait_for_several(now, longest);
    for_each([&](Node& node) { node.driver.wait(now, longest); });
}

void TurnSet::wait_for_several(TimePoint now, Duration longest) const {
    std::array<pollfd, na::contexts_max> watched;
    std::size_t armed = 0;
    TimePoint next = saturating_add(now, longest);
    bool may_sleep = commons_.options.wait != WaitMode::spin;
    for_each([&](Node& node) {
        next = std::min(next, node.driver.next_deadline());
        may_sleep = may_sleep && next > now && node.context.arm();
        if (may_sleep) watched[armed++] = {node.driver.wait_fd(), POLLIN, 0};
    });
    if (may_sleep) base::wait_for_any({watched.data(), armed}, next - now);
    for_each([&](Node& node) {
        if (armed == 0) return;
        --armed;
        node.context.disarm();
    });
}

std::uint32_t TurnSet::turn_and_wait(Duration longest) const {
    const TimePoint now = commons_.parts.clock->now();
    const std::uint32_t events = turn(now);
    if (events == 0) wait(now, longest);
    return events;
}

OwnTurns::OwnTurns(const Commons& commons) : set_(commons) {
    for (Node* const node : commons.nodes) {
        if (node->context.has_turned()) {
            if (node->context.on_thread()) set_.add(*node);
            continue;
        }
        borrowed_.emplace_back(node->context);
        if (borrowed_.back()) {
            set_.add(*node);
        } else {
            borrowed_.pop_back();
        }
    }
}

// A lone context is this thread's here.
LoopNotifier::~LoopNotifier() {
    const bool is_lone = commons_.nodes.size() == 1;
    for (Node* const node : commons_.nodes) {
        if (is_lone || !node->context.is_on_other_thread()) node->driver.notify_loop();
    }
}

}  // namespace weft::api
