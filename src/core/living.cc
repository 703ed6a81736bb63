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
    std::unordered_map<std::uint64_t, Context*> contexts;
};
All& all() { return base::per_process<All>(); }

}  // namespace

Living::Living(Context& context) : context_(context) {
    const std::lock_guard lock(all().mutex);
    all().contexts.emplace(context.number(), &context);
}

void Living::end() {
    const std::lock_guard lock(all().mutex);
    all().contexts.erase(context_.number());
}

std::shared_ptr<Context> Living::find(std::uint64_t number) {
    const std::lock_guard lock(all().mutex);
    const auto at = all().contexts.find(number);
    if (at == all().contexts.end()) return nullptr;
    Context* const context = at->second;
    const std::shared_ptr<Executor> shared = context->share();
    if (shared.use_count() == 0 && !context->on_thread()) return nullptr;
    return {shared, context};
}

}  // namespace weft::core
