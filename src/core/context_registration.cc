#include "core/context_registration.h"

#include <mutex>
#include <unordered_map>

#include "base/fork.h"
#include "core/context.h"

namespace weft::core {
namespace {

// A forked child starts with an empty one.
struct Registry {
    std::mutex mutex;
    std::unordered_map<std::uint64_t, Context*> contexts;
};
Registry& registry() { return base::per_process<Registry>(); }

}  // namespace

ContextRegistration::ContextRegistration(Context& context) : number_(context.number()) {
    const std::lock_guard lock(registry().mutex);
    registry().contexts.emplace(number_, &context);
}

void ContextRegistration::end() {
    const std::lock_guard lock(registry().mutex);
    registry().contexts.erase(number_);
}

std::shared_ptr<Context> ContextRegistration::find(std::uint64_t number) {
    const std::lock_guard lock(registry().mutex);
    const auto at = registry().contexts.find(number);
    if (at == registry().contexts.end()) return nullptr;
    Context* const context = at->second;
    const std::shared_ptr<Executor> shared = context->share();
    if (shared.use_count() == 0 && !context->on_thread()) return nullptr;
    return {shared, context};
}

}  // namespace weft::core
