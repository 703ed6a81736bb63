#include "core/living.h"

#include <mutex>
#include <unordered_map>

#include "base/fork.h"
#include "core/context.h"

namespace weft::core {
namespace {

// A forked child knows none of its parent's.
struct All {
    std::mutex mutex;
    std::unordered_map<const Executor*, Context*> contexts;
};
All& all() { return base::per_process<All>(); }

}  // namespace

Living::Living(Context& context) : context_(context) {
    const std::lock_guard lock(all().mutex);
    all().contexts.emplace(&context, &context);
}

void Living::end() {
    const std::lock_guard lock(all().mutex);
    all().contexts.erase(&context_);
}

Context* Living::of_this_thread(const Executor* address) {
    const std::lock_guard lock(all().mutex);
    const auto at = all().contexts.find(address);
    return at != all().contexts.end() && at->second->on_thread() ? at->second : nullptr;
}

}  // namespace weft::core
