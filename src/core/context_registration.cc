#include "core/context_registration.h"

#include <algorithm>
#include <unordered_map>

#include "base/assert.h"
#include "base/fork.h"
#include "base/thread_annotations.h"
#include "core/context.h"

namespace weft::core {
namespace {

// A forked child starts with an empty one.
struct Registry {
    base::Mutex mutex;
    std::unordered_map<std::uint64_t, Context*> contexts WEFT_GUARDED_BY(mutex);
};
Registry& registry() { return base::per_process<Registry>(); }

}  // namespace

ContextRegistration::ContextRegistration(Context& context) : number_(context.number()) {
    Registry& all = registry();
    const base::MutexLock lock(all.mutex);
    const bool is_new = all.contexts.emplace(number_, &context).second;
    WEFT_ASSERT(is_new);
}

void ContextRegistration::end() {
    Registry& all = registry();
    const base::MutexLock lock(all.mutex);
    all.contexts.erase(number_);
}

std::shared_ptr<Context> ContextRegistration::find(std::uint64_t number) {
    Registry& all = registry();
    const base::MutexLock lock(all.mutex);
    const auto at = all.contexts.find(number);
    if (at == all.contexts.end()) return nullptr;
    Context* const context = at->second;
    const std::shared_ptr<Executor> shared = context->share();
    if (shared.use_count() == 0 && !context->on_thread()) return nullptr;
    return {shared, context};
}

bool ContextRegistration::is_running(const Executor* context) {
    Registry& all = registry();
    const base::MutexLock lock(all.mutex);
    return std::any_of(all.contexts.begin(), all.contexts.end(), [&](const auto& entry) {
        return static_cast<const Executor*>(entry.second) == context && !entry.second->has_ended();
    });
}

}  // namespace weft::core
