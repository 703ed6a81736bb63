#include "core/blocked_turn.h"

#include <algorithm>
#include <string>

#include "base/assert.h"
#include "base/fork.h"

namespace weft::core {
namespace {

// A forked child starts with an empty one: the threads of its parent do not exist there.
struct WaitGraph {
    base::Mutex mutex;
    base::IntrusiveList<BlockedTurn> all WEFT_GUARDED_BY(mutex);
};
WaitGraph& wait_graph() { return base::per_process<WaitGraph>(); }

// Requires: no other thread turns it, since a thread of the circle is blocked in its turn.
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
    : blocked_(Context::entered_contexts()), awaited_(context), mutex_(mutex), is_done_(is_done) {
    if (blocked_.empty()) return;
    const base::ForkBlocker no_fork;  // A child finds the lock free.
    WaitGraph& waits = wait_graph();
    const base::MutexLock lock(waits.mutex);
    check_deadlock(call, waits.all);
    waits.all.push_back(*this);
}

BlockedTurn::~BlockedTurn() {
    if (blocked_.empty()) return;
    const base::ForkBlocker no_fork;
    const base::MutexLock lock(wait_graph().mutex);
    unlink();
}

// A completed wait blocks nothing, even if its thread has not resumed yet.
bool BlockedTurn::blocks(const Executor& context) const {
    if (std::ranges::find(blocked_, &context) == blocked_.end()) return false;
    const std::lock_guard lock(mutex_);
    return !is_done_;
}

bool BlockedTurn::is_context_blocked(const Executor& context) {
    const base::ForkBlocker no_fork;
    WaitGraph& waits = wait_graph();
    const base::MutexLock lock(waits.mutex);
    bool is_found = false;
    waits.all.for_each([&](const BlockedTurn& wait) { is_found |= wait.blocks(context); });
    return is_found;
}

// Terminates, because no wait in the list has closed a circle.
void BlockedTurn::check_deadlock(const char* call, base::IntrusiveList<BlockedTurn>& all) const {
    std::string waits_for;
    const Context* at = &awaited_;
    while (!blocks(*at)) {
        const BlockedTurn* blocker = nullptr;
        all.for_each([&](const BlockedTurn& wait) {
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
