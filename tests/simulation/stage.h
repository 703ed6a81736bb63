// The base of every scenario: its hosts, random numbers, faults and results.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <weft/sim.h>

#include "api/runtime_impl.h"
#include "simulation/chaos.h"
#include "simulation/ledger.h"
#include "simulation/rules.h"
#include "simulation/scenario.h"

namespace weft::scenarios {

// A scenario derives from it and has its own state in members. Its destructor calls stop_all(),
// since code that ends with the hosts uses that state.
class ScenarioBase {
  public:
    using Program = std::function<std::shared_ptr<void>(const std::string& name, Runtime&)>;

    // In even seeds the transport checks each access of a transfer.
    ScenarioBase(std::uint64_t seed, const SimOptions& options);
    ScenarioBase(const ScenarioBase&) = delete;
    ScenarioBase& operator=(const ScenarioBase&) = delete;

  protected:
    ~ScenarioBase() = default;

    static constexpr Duration fault_period = 1500ms;  // New faults begin within it.
    // A stalled holder of cancelled operations has 10 s.
    static constexpr Duration drain_time = 12s;
    static constexpr Duration watch_every = 100ms;
    // For one host: the library's bound for each peer, which no load here approaches.
    static constexpr std::uint64_t waiting_max = 16384;
    static constexpr std::uint64_t executing_max = 16384;

    enum class Contexts : std::uint8_t { one, some };  // `some`: 1, 2 or 5, drawn for each life.
    // ROLE0, ROLE1, ...
    std::vector<std::string> add_hosts(const std::string& role, std::uint32_t count,
                                       const Program& program, Contexts contexts = Contexts::one);
    // As Simulation::act_as(), in one of the host's contexts.
    void act_on_a_context(const std::string& host, const std::function<void()>& what);
    // The sum over the contexts of a runtime.
    static std::uint64_t sum(const api::RuntimeImpl& impl,
                             const std::function<std::uint64_t(api::Node&)>& count);
    const std::vector<std::string>& all_hosts() const { return hosts_; }
    void begin_faults();
    void stop_all();

    std::uint64_t below(std::uint64_t end) { return simulation_->random() % end; }
    Duration any_moment() {
        return Duration(static_cast<std::int64_t>(below(fault_period.count())));
    }
    // From a microsecond up, short and long times equally often, by their magnitude.
    Duration random_time(Duration most);

    sim::Simulation& simulation() { return *simulation_; }
    TimePoint now() const { return simulation_->now(); }
    // Whether the host is up, in that life.
    bool is_alive(const std::string& host, std::uint32_t life) const {
        return simulation_->is_up(host) && simulation_->starts(host) == life;
    }
    // Whether it is up and not paused.
    bool is_acting(const std::string& host) const {
        return simulation_->is_up(host) && (!chaos_ || chaos_->running_since(host) != never);
    }

    // How long one host is paused in this seed: longer than any table remembers. 0: none is.
    Duration endurance() const;
    // Few calls fit into handlers: a call may fail for want of room.
    bool is_limited() const { return seed_ % 4 == 3; }
    // The present conditions of a call.
    Conditions conditions_of(const Waiting& call) const;
    // The context of the host that runs now; 0 outside of its turns.
    unsigned context_here(const std::string& host) const {
        return impl_of(*simulation_->runtime(host)).current().index;
    }

    // Since when a client that can't reach its server has received nothing; `never`: it can, or its
    // call waits for a paused listener to accept.
    TimePoint no_reply_since(const Waiting& call) const;

    // Keeps it for a while, for the report of a violation; prints it to standard error if verbose.
    void note(const std::string& what);
    // Checks that `count` is 0 at every host.
    void validate_none_left(Rule rule,
                            const std::function<std::uint64_t(api::RuntimeImpl&)>& count);
    // Checks every host. To be called now and then.
    void validate_bounds();
    // Visits the hosts that are up.
    void for_each_runtime(const std::function<void(const std::string&, api::RuntimeImpl&)>& visit);
    // The checks of every scenario at its end.
    void expire_sessions();
    void validate_calls();  // Where calls are made.
    void validate_rest();
    SimRun report(std::uint64_t calls, std::uint64_t hash) const;

    const std::uint64_t seed_;
    RuleResults results_;
    std::unique_ptr<Chaos> chaos_;  // From begin_faults() on.

  private:
    void record_flight();

    const SimOptions& options_;
    base::SeededRandom contexts_;  // Of hosts.
    std::unique_ptr<sim::Simulation> simulation_;
    std::vector<std::string> hosts_;
    const TimePoint start_;
    std::deque<sim::Simulation::LoggedEvent> notes_;  // The last ones.
    std::vector<std::string> flight_;                 // Events before the first violation.
};

}  // namespace weft::scenarios
