#include "sim/stage.h"

#include <algorithm>
#include <cstdio>

namespace weft::tool {

Stage::Stage(std::uint64_t seed, const SimOptions& options)
    : seed_(seed),
      options_(options),
      simulation_(
          std::make_unique<sim::Simulation>(seed, sim::Options{.judges_access = seed % 2 == 0})),
      start_(simulation_->now()) {}

std::vector<std::string> Stage::add_hosts(const std::string& role, std::uint32_t count,
                                          const Program& program) {
    RuntimeOptions with;
    with.log_level = LogLevel::off;
    std::vector<std::string> names;
    for (std::uint32_t i = 0; i < count; ++i) {
        const std::string& name = names.emplace_back(role + std::to_string(i));
        simulation_->add(
            name, [name, program](Runtime& runtime) { return program(name, runtime); }, with);
        hosts_.push_back(name);
    }
    return names;
}

void Stage::begin_trouble() {
    chaos_ = std::make_unique<Chaos>(*simulation_, hosts_, trouble,
                                     [this](const std::string& what) { note(what); });
}

void Stage::stop_all() {
    for (const std::string& name : hosts_) simulation_->crash(name);
}

Duration Stage::random_time(Duration most) {
    const std::uint64_t bits = below(21);
    return std::min(most, Duration(static_cast<std::int64_t>(1000 + below(2000ull << bits))));
}

Scene Stage::scene_of(const std::string& client, const std::string& server,
                      TimePoint submitted) const {
    const Health& health = chaos_->health();
    return {now(), chaos_->awake_since(client), chaos_->apart_since(client, server),
            health.is_sound(Harm::breaks, client, server, submitted),
            health.is_sound(Harm::slows, client, server, submitted)};
}

void Stage::note(const std::string& what) const {
    if (!options_.verbose) return;
    std::fprintf(stderr, "%9.3f ms  %s\n",
                 static_cast<double>(now().time_since_epoch().count()) / 1e6, what.c_str());
}

void Stage::judge_none_left(Rule rule, const std::function<std::uint64_t(api::Node&)>& count) {
    for (const std::string& name : hosts_) {
        const std::uint64_t left = count(simulation_->runtime(name)->node());
        verdict_.hold(left == 0, rule, [&] { return std::to_string(left) + " on " + name; });
    }
}

void Stage::judge_bounds() {
    for (const std::string& name : hosts_) {
        const Runtime* runtime = simulation_->runtime(name);
        if (!runtime) continue;
        api::Node& node = simulation_->runtime(name)->node();
        const std::uint64_t waiting = node.context.waiting_frames();
        const std::uint64_t executing = node.server.executing();
        verdict_.hold(waiting <= waiting_max && executing <= executing_max, Rule::bounds_hold, [&] {
            return std::to_string(waiting) + " frames and " + std::to_string(executing) +
                   " calls in handlers on " + name;
        });
    }
}

void Stage::judge_rest() {
    judge_none_left(Rule::transfers_are_back, [](api::Node& node) {
        return node.bulk.transfers.in_flight() + node.bulk.transfers.quarantined();
    });
    judge_none_left(Rule::queues_are_empty,
                    [](api::Node& node) { return node.context.waiting_frames(); });
    // While large bodies' memory is kept for the next ones there is a timer that will free it.
    judge_none_left(Rule::timers_are_back, [](api::Node& node) {
        const std::uint32_t freeing = node.bulk.staging.bytes_held() > 0 ? 1 : 0;
        return node.context.timers().armed() - freeing;
    });
    verdict_.hold(simulation_->late_accesses() == 0, Rule::no_late_access,
                  [&] { return std::to_string(simulation_->late_accesses()) + " times"; });
}

SimRun Stage::report(std::uint64_t calls, std::uint64_t hash) const {
    SimRun run;
    run.seed = seed_;
    run.calls = calls;
    run.faults = simulation_->faults();
    run.trace_hash = simulation_->trace_hash() ^ hash;
    run.virtual_time = now() - start_;
    run.broken = verdict_.broken();
    run.tallies = verdict_.tallies();
    return run;
}

}  // namespace weft::tool
