// What every scenario plays on: its hosts, chance, faults and verdict.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <weft/sim.h>

#include "api/node.h"
#include "sim/chaos.h"
#include "sim/ledger.h"
#include "sim/rules.h"
#include "sim/scenario.h"

namespace weft::tool {

// A scenario derives from it and has its own state in members; stop_all() in its destructor, since
// what ends with the hosts uses that state.
class SimStage {
  public:
    using Program = std::function<std::shared_ptr<void>(const std::string& name, Runtime&)>;

    // Even seeds: a transport that judges each access of a transfer.
    SimStage(std::uint64_t seed, const SimOptions& options);
    SimStage(const SimStage&) = delete;
    SimStage& operator=(const SimStage&) = delete;

  protected:
    ~SimStage() = default;

    static constexpr Duration trouble = 1500ms;  // How long faults begin.
    // Who holds what was given up, and does not move, has 10 s.
    static constexpr Duration settle = 12s;
    static constexpr Duration watch_every = 100ms;
    // Of one host: what the library bounds for each peer, which no load here comes near.
    static constexpr std::uint64_t waiting_max = 16384;
    static constexpr std::uint64_t executing_max = 16384;

    // ROLE0, ROLE1, ...
    std::vector<std::string> add_hosts(const std::string& role, std::uint32_t count,
                                       const Program& program);
    const std::vector<std::string>& all_hosts() const { return hosts_; }
    void begin_trouble();
    void stop_all();

    std::uint64_t below(std::uint64_t end) { return simulation_->random() % end; }
    Duration any_moment() { return Duration(static_cast<std::int64_t>(below(trouble.count()))); }
    // From a microsecond up, as many short ones as long ones, by their magnitude.
    Duration random_time(Duration most);

    sim::Simulation& simulation() { return *simulation_; }
    TimePoint now() const { return simulation_->now(); }
    // The same process as when it had lived so often.
    bool is_alive(const std::string& host, std::uint32_t life) const {
        return simulation_->is_up(host) && simulation_->lives(host) == life;
    }
    // And does not stand still.
    bool acts(const std::string& host) const {
        return simulation_->is_up(host) && (!chaos_ || chaos_->awake_since(host) != never);
    }

    // How long one host stands still in this seed: longer than any table remembers. 0: none does.
    Duration endurance() const;
    // Few calls fit into handlers: an answer may be that there is no room.
    bool is_limited() const { return seed_ % 4 == 3; }
    // Of what `client` asked `server` for at `submitted`, now.
    Scene scene_of(const std::string& client, const std::string& server, TimePoint submitted) const;

    // Since when a client that can't talk to its server has heard nothing; `never`: it can, or its
    // operation waits for a listener that stands still: it heard nothing since it was `submitted`.
    TimePoint silent_since(const std::string& client, const std::string& server,
                           TimePoint submitted) const;

    // Remembers it for a while, in case something breaks; tells it on standard error, where that is
    // wanted.
    void note(const std::string& what);
    // Of every host: `count` of it is 0.
    void judge_none_left(Rule rule, const std::function<std::uint64_t(api::Node&)>& count);
    // Now and then: of every host.
    void judge_bounds();
    // Of those that are up.
    void for_each_node(const std::function<void(const std::string&, api::Node&)>& visit);
    // What every scenario judges at its end.
    void let_sessions_go();
    void judge_rest();
    SimRun report(std::uint64_t calls, std::uint64_t hash) const;

    const std::uint64_t seed_;
    Verdict verdict_;
    std::unique_ptr<Chaos> chaos_;  // From begin_trouble() on.

  private:
    void record_flight();

    const SimOptions& options_;
    std::unique_ptr<sim::Simulation> simulation_;
    std::vector<std::string> hosts_;
    const TimePoint start_;
    std::deque<sim::Simulation::Happening> notes_;  // The last ones.
    std::vector<std::string> flight_;               // What happened before the first break.
};

}  // namespace weft::tool
