#include "core/blocked_turn.h"

#include <algorithm>
#include <string>

#include "base/assert.h"
#include "base/fork.h"

namespace weft::core {
namespace {

// A forked child has none of its parent's, whose threads are not there.
struct Waits {
    std::mutex mutex;
    base::IntrusiveList<BlockedTurn> all;
};
Waits& waits() { return base::per_process<Waits>(); }

// Requires: it does not turn, since a thread of the circle is in its turn.
std::string name_of(const Executor& executor) {
    for (const auto& slot : static_cast<const Context&>(executor).endpoints()) {
        const std::string address = slot->endpoint->address();
        if (!address.empty()) return "the runtime at " + address;
    }
    return "a runtime that listens nowhere";
}

}  // namespace

BlockedTurn::BlockedTurn(const char* call, const Context& context, std::mutex& mutex,
                         const bool& is_done)
    : blocked_(Context::entered()), awaited_(context), mutex_(mutex), is_done_(is_done) {
    if (blocked_.empty()) return;
    const base::ForksHeld whole;  // A child finds the lock free.
    const std::lock_guard lock(waits().mutex);
    check_circle(call);
    waits().all.push_back(*this);
}

BlockedTurn::~BlockedTurn() {
    if (blocked_.empty()) return;
    const base::ForksHeld whole;
    const std::lock_guard lock(waits().mutex);
    unlink();
}

// One whose wait is over, and which has not noticed yet, blocks nothing.
bool BlockedTurn::blocks(const Executor& context) const {
    if (std::ranges::find(blocked_, &context) == blocked_.end()) return false;
    const std::lock_guard lock(mutex_);
    return !is_done_;
}

bool BlockedTurn::is_any_of(const Executor& context) {
    const base::ForksHeld whole;
    const std::lock_guard lock(waits().mutex);
    bool is_found = false;
    waits().all.for_each([&](const BlockedTurn& wait) { is_found |= wait.blocks(context); });
    return is_found;
}

// Ends, since each wait that is in the list closed no circle.
void BlockedTurn::check_circle(const char* call) const {
    std::string waits_for;
    const Context* at = &awaited_;
    while (!blocks(*at)) {
        const BlockedTurn* blocker = nullptr;
        waits().all.for_each([&](const BlockedTurn& wait) {
            if (!blocker && wait.blocks(*at)) blocker = &wait;
        });
        if (!blocker) return;
        waits_for += name_of(*at) + ", which waits for ";
        at = &blocker->awaited_;
    }
    const std::string why =
        "called in a turn of " + name_of(*at) + ", it waits for " + waits_for + name_of(*at) +
        ": each would wait for ever. co_await the task in a coroutine there (Runtime::spawn()), or "
        "offload() what waits";
    base::abort_misused(call, why.c_str());
}

}  // namespace weft::core
