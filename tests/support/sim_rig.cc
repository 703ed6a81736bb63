#include "support/sim_rig.h"

#include <algorithm>
#include <stdexcept>

namespace weft::test {

Runtime& SimRig::add(const std::string& name, RuntimeOptions options) {
    options.manual = true;
    if (!options.log_sink) options.log_level = LogLevel::off;
    api::RuntimeParts parts;
    parts.clock = clock;
    parts.random = random;
    parts.providers = std::make_shared<na::Registry>();
    parts.providers->add(na::sim::make_sim_provider(world));
    auto node = api::RuntimeImpl::make(std::move(options), std::move(parts));
    runtimes.push_back(
        std::make_unique<Runtime>(Runtime::from_impl(std::move(node).value()).value()));
    if (!name.empty()) {
        Status status = runtimes.back()->listen("sim://" + name);
        if (!status.ok()) throw std::runtime_error(status.to_string());
    }
    return *runtimes.back();
}

bool SimRig::run_until(Function<bool()> done, Duration limit) {
    const TimePoint end = saturating_add(clock->now(), limit);
    while (!done()) {
        bool is_busy = false;
        for (auto& runtime : runtimes) {
            is_busy |= runtime->turn() > 0;
            for (const auto& node : impl_of(*runtime).nodes) is_busy |= node->context.has_work();
        }
        if (is_busy) continue;
        TimePoint next = world->next_event();
        for (auto& runtime : runtimes) {
            for (const auto& node : impl_of(*runtime).nodes)
                next = std::min(next, node->context.next_deadline());
        }
        if (next > end) {
            if (limit > Duration::zero() && end != never) clock->advance(end - clock->now());
            return done();
        }
        if (next > clock->now()) clock->advance(next - clock->now());
        world->advance(clock->now());
    }
    return true;
}

}  // namespace weft::test
