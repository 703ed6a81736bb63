#include "simulation/stage.h"

#include <algorithm>
#include <cstdio>
#include <iterator>

namespace weft::scenarios {

static constexpr std::size_t notes_max = 24;

ScenarioBase::ScenarioBase(std::uint64_t seed, const SimOptions& options)
    : seed_(seed),
      options_(options),
      contexts_(seed * 2 + 1),
      simulation_(
          std::make_unique<sim::Simulation>(seed, sim::Options{.checks_access = seed % 2 == 0})),
      start_(simulation_->now()) {
    results_.on_first_break([this] { record_flight(); });
}

std::vector<std::string> ScenarioBase::add_hosts(const std::string& role, std::uint32_t count,
                                                 const Program& program, Contexts contexts) {
    static constexpr unsigned counts[] = {1, 2, 5};
    RuntimeOptions with;
    with.log_level = LogLevel::off;
    if (is_limited()) with.handlers_max = 24;
    std::vector<std::string> names;
    for (std::uint32_t i = 0; i < count; ++i) {
        const std::string& name = names.emplace_back(role + std::to_string(i));
        const auto draw = [this, with, contexts] {
            RuntimeOptions drawn = with;
            if (contexts == Contexts::some) drawn.contexts = counts[contexts_.next() % 3];
            return drawn;
        };
        const auto begin = [this, name, program, draw](Runtime& runtime) {
            simulation_->set_options(name, draw());  // Of its next life.
            return program(name, runtime);
        };
        simulation_->add(name, begin, draw());
        hosts_.push_back(name);
    }
    return names;
}

void ScenarioBase::act_on_a_context(const std::string& host, const std::function<void()>& what) {
    simulation_->act_as(host, [&] {
        const api::RuntimeImpl& impl = impl_of(*simulation_->runtime(host));
        if (impl.nodes.size() == 1) return what();
        core::Context& context = impl.nodes[below(impl.nodes.size())]->context;
        const core::Context::EnterGuard scope(context);
        context.refresh_time();
        what();
    });
}

std::uint64_t ScenarioBase::sum(const api::RuntimeImpl& impl,
                                const std::function<std::uint64_t(api::Node&)>& count) {
    std::uint64_t all = 0;
    for (const auto& node : impl.nodes) all += count(*node);
    return all;
}

void ScenarioBase::begin_faults() {
    chaos_ = std::make_unique<Chaos>(*simulation_, hosts_, fault_period,
                                     [this](const std::string& what) { note(what); });
}

void ScenarioBase::stop_all() {
    for (const std::string& name : hosts_) simulation_->crash(name);
}

Duration ScenarioBase::endurance() const {
    static constexpr Duration lengths[] = {45s, 120s, 11min};
    return seed_ % 8 == 5 ? lengths[seed_ / 8 % std::size(lengths)] : 0s;
}

Duration ScenarioBase::random_time(Duration most) {
    const std::uint64_t bits = below(21);
    return std::min(most, Duration(static_cast<std::int64_t>(1000 + below(2000ull << bits))));
}

Conditions ScenarioBase::conditions_of(const Waiting& call) const {
    const Health& health = chaos_->health();
    return {now(), chaos_->running_since(call.client), no_reply_since(call),
            !is_limited() && health.is_sound(Harm::breaks, call),
            !is_limited() && health.is_sound(Harm::slows, call)};
}

TimePoint ScenarioBase::no_reply_since(const Waiting& call) const {
    const TimePoint heard = simulation_->last_received(call.client, call.server);
    const TimePoint apart =
        chaos_->unreachable_since(call.client, call.server, chaos_->health().was_connected(call));
    return apart == never ? never : std::max(apart, heard);
}

static std::string line_of(const sim::Simulation::LoggedEvent& one) {
    char at[32];
    std::snprintf(at, sizeof at, "%11.3f ms  ",
                  static_cast<double>(one.at.time_since_epoch().count()) / 1e6);
    return at + one.what;
}

void ScenarioBase::note(const std::string& what) {
    notes_.push_back({now(), what});
    if (notes_.size() > notes_max) notes_.pop_front();
    if (options_.verbose) std::fprintf(stderr, "%s\n", line_of(notes_.back()).c_str());
}

// Notes of faults and failures among the events of the network, by time.
void ScenarioBase::record_flight() {
    std::vector<sim::Simulation::LoggedEvent> all(notes_.begin(), notes_.end());
    const std::vector<sim::Simulation::LoggedEvent> arrived = simulation_->last_events();
    all.insert(all.end(), arrived.begin(), arrived.end());
    std::stable_sort(all.begin(), all.end(),
                     [](const auto& a, const auto& b) { return a.at < b.at; });
    for (const auto& one : all) flight_.push_back(line_of(one));
}

void ScenarioBase::validate_none_left(
    Rule rule, const std::function<std::uint64_t(api::RuntimeImpl&)>& count) {
    for (const std::string& name : hosts_) {
        const std::uint64_t left = count(impl_of(*simulation_->runtime(name)));
        results_.hold(left == 0, rule, [&] { return std::to_string(left) + " on " + name; });
    }
}

void ScenarioBase::for_each_runtime(
    const std::function<void(const std::string&, api::RuntimeImpl&)>& visit) {
    for (const std::string& name : hosts_) {
        if (Runtime* runtime = simulation_->runtime(name)) visit(name, impl_of(*runtime));
    }
}

void ScenarioBase::validate_bounds() {
    for_each_runtime([this](const std::string& name, api::RuntimeImpl& impl) {
        const std::uint64_t waiting =
            sum(impl, [](api::Node& node) { return node.context.waiting_frames(); });
        const std::uint64_t executing =
            sum(impl, [](api::Node& node) { return node.server.executing(); });
        results_.hold(waiting <= waiting_max && executing <= executing_max, Rule::bounds_hold, [&] {
            return std::to_string(waiting) + " frames and " + std::to_string(executing) +
                   " calls in handlers on " + name;
        });
    });
}

// A host that detects the loss of a connection late keeps its session for ten seconds more.
void ScenarioBase::expire_sessions() {
    simulation_->run_until(
        [this] {
            std::size_t lost = 0;
            for_each_runtime([&](const std::string&, api::RuntimeImpl& impl) {
                lost += sum(impl, [](api::Node& node) { return node.server.lost_sessions(); });
            });
            return lost == 0;
        },
        drain_time);
}

void ScenarioBase::validate_calls() {
    validate_none_left(Rule::calls_are_back, [](api::RuntimeImpl& impl) {
        return sum(impl, [](api::Node& node) { return node.client.in_flight(); });
    });
    validate_none_left(Rule::handlers_are_back, [](api::RuntimeImpl& impl) {
        return sum(impl, [](api::Node& node) { return node.server.executing(); });
    });
    validate_none_left(Rule::slots_are_back, [](api::RuntimeImpl& impl) {
        return sum(impl, [](api::Node& node) { return node.client.in_use(); });
    });
}

void ScenarioBase::validate_rest() {
    for_each_runtime([this](const std::string& name, api::RuntimeImpl& impl) {
        const std::uint64_t malformed =
            sum(impl, [](api::Node& node) { return node.context.counters().malformed_peers; });
        results_.hold(malformed == 0, Rule::no_protocol_violation,
                      [&] { return "a protocol violation of a peer of " + name; });
    });
    validate_none_left(Rule::transfers_are_back, [](api::RuntimeImpl& impl) {
        return sum(impl, [](api::Node& node) {
            return node.bulk.transfers.in_flight() + node.bulk.transfers.quarantined();
        });
    });
    validate_none_left(Rule::queues_are_empty, [](api::RuntimeImpl& impl) {
        return sum(impl, [](api::Node& node) { return node.context.waiting_frames(); });
    });
    // A timer is left while the memory of large bodies is kept for later ones, and another one
    // while collectives are remembered.
    validate_none_left(Rule::timers_are_back, [](api::RuntimeImpl& impl) {
        const std::uint64_t forgetting = impl.collectives.is_sweeping() ? 1 : 0;
        return sum(impl,
                   [](api::Node& node) {
                       const std::uint64_t freeing = node.bulk.rendezvous.bytes_held() > 0 ? 1 : 0;
                       return node.context.timers().armed() - freeing;
                   }) -
               forgetting;
    });
    results_.hold(simulation_->late_accesses() == 0, Rule::no_late_access,
                  [&] { return std::to_string(simulation_->late_accesses()) + " times"; });
    results_.hold(simulation_->unwritten_words() == 0, Rule::no_unwritten_bytes_sent, [&] {
        return std::to_string(simulation_->unwritten_words()) + " words of 8 bytes";
    });
}

SimRun ScenarioBase::report(std::uint64_t calls, std::uint64_t hash) const {
    SimRun run;
    run.seed = seed_;
    run.calls = calls;
    run.faults = simulation_->faults();
    run.trace_hash = simulation_->trace_hash() ^ hash;
    run.virtual_time = now() - start_;
    run.broken = results_.broken();
    run.tallies = results_.tallies();
    run.flight = flight_;
    return run;
}

}  // namespace weft::scenarios
