// How a Simulation runs its hosts.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <weft/protobuf_message.h>

#include "base/assert.h"
#include "base/clock_scope.h"
#include "base/manual_clock.h"
#include "base/random.h"
#include "base/state.h"
#include "na/sim/sim.h"
#include "simulator/host.h"
#include "simulator/validate.h"

namespace weft::sim {

class Simulation::Impl {
  public:
    Impl(std::uint64_t seed, const Options& with)
        : seeds_(seed),
          world_(std::make_shared<na::sim::World>(seeds_, options(with), clock_->now())),
          order_(seeds_.next()),
          workload_(seeds_.next()),
          links_(with.links) {
        ++detail::simulations;
    }
    ~Impl() {
        WEFT_ASSERT(running_ == 0 && !in_turn_);
        WEFT_ASSERT(std::ranges::none_of(hosts_, [](const auto& host) { return host->is_up(); }));
        --detail::simulations;
    }

    // While it lives, this thread runs code of the program for the simulation: weft::now() is the
    // virtual time.
    class Running {
      public:
        explicit Running(Impl& of) : of_(of), clock_(*of.clock_) { ++of.running_; }
        ~Running() {
            WEFT_ASSERT(of_.running_ != 0);
            --of_.running_;
        }
        Running(const Running&) = delete;
        Running& operator=(const Running&) = delete;

      private:
        Impl& of_;
        const base::ClockScope clock_;
    };
    // The same in a turn or a host's program, where no time passes and changes are deferred.
    class InTurn {
      public:
        explicit InTurn(Impl& of)
            : running_(of), of_(of), outer_(std::exchange(of.in_turn_, true)) {}
        ~InTurn() {
            WEFT_ASSERT(of_.in_turn_);
            of_.in_turn_ = outer_;
        }
        InTurn(const InTurn&) = delete;
        InTurn& operator=(const InTurn&) = delete;

      private:
        const Running running_;
        Impl& of_;
        const bool outer_;
    };

    // Aborts on another thread than that of the constructor.
    void check_thread(std::string_view call) const;
    void add(const std::string& name, Program program, RuntimeOptions options);
    static void set_options(std::string_view call, Host& host, RuntimeOptions options);
    Host* find(std::string_view name) const;
    // Aborts when no host has that name.
    Host& host(std::string_view call, std::string_view name) const;
    // Aborts unless both are hosts.
    void check_link(std::string_view call, std::string_view from, std::string_view to) const {
        host(call, from);
        host(call, to);
    }
    // `waiter`: the host that runs this in block_on() or turn_until(); nullptr: none.
    bool run(const std::function<bool()>& done, Duration limit, const Host* waiter = nullptr);
    // Calls `what` now, or once no code of a host runs any more: that code might continue in a
    // destroyed host.
    void change(std::function<void()> what);
    // Calls `what` as a turn of this host does.
    void act_as(Host& host, const Callback<void()>& what);
    void start(Host& host);
    void stop(Host& host, bool is_crash);
    void end(Host& host);
    void stop_all();

    // For faults other than those of packets.
    void count_fault() { ++faults_; }
    std::uint64_t faults() const;
    void heal();

  private:
    friend class Simulation;
    struct Event {
        TimePoint at;
        std::uint64_t number;
        std::function<void()> what;
        bool operator<(const Event& other) const {  // For std heaps: the soonest on top.
            return at != other.at ? at > other.at : number > other.number;
        }
    };

    static na::sim::WorldOptions options(const Options& with) {
        na::sim::WorldOptions options;
        options.link = with.links;
        options.rma_checked = with.checks_access;
        options.connect_timeout = 2s;
        return options;
    }
    // In a turn, in a program, in act_as(), or in a call between turns that acts as in a turn
    // (Engine::in_turn()).
    bool is_in_host() const;
    TimePoint last_scheduled() const;
    TimePoint next_instant();
    void advance_clock(TimePoint to);
    void advance(TimePoint to);
    void turn_hosts();
    TimePoint due(Host& host, Unit& unit, TimePoint now);
    void run_changes();
    void schedule(Duration time, std::function<void()> what);
    // Whether an ending host is drained; a turn of the host checks it.
    enum class DrainCheck : std::uint8_t { posted, done, drained };
    friend constexpr bool can_move(DrainCheck from, DrainCheck to) {
        return (from == DrainCheck::posted) != (to == DrainCheck::posted);
    }
    // Of each context. In a round without `may_end`, of several contexts, `drained` is one without
    // work (RuntimeImpl::work_to_drain()).
    struct DrainChecks : std::vector<base::State<DrainCheck>> {
        explicit DrainChecks(std::size_t contexts)
            : vector(contexts, base::State<DrainCheck>(DrainCheck::done)) {}
        bool may_end = false;
    };
    void poll_drain(Host& host, std::uint32_t start_number, TimePoint until,
                    const std::shared_ptr<DrainChecks>& checks);
    void take_down(Host& host);

    // ---- the world
    const std::shared_ptr<bool> is_destroyed_ = std::make_shared<bool>(false);  // Read by runtimes.
    std::shared_ptr<base::ManualClock> clock_ = std::make_shared<base::ManualClock>();
    base::SeededRandom seeds_;
    std::shared_ptr<na::sim::World> world_;
    base::SeededRandom order_;  // One random stream per use.
    base::SeededRandom workload_;
    const Link links_;

    // ---- hosts and what is scheduled
    std::vector<std::unique_ptr<Host>> hosts_;
    std::map<std::string, Host*, std::less<>> names_;
    std::vector<Event> scheduled_;  // A heap.
    std::uint64_t scheduled_count_ = 0;
    std::vector<std::function<void()>> changes_;
    struct DueUnit {
        Host* host;
        std::size_t unit;
        std::uint32_t life;  // Host::starts.
    };
    std::vector<DueUnit> due_;  // A member, for its memory.

    // ---- the run
    const std::thread::id thread_ = std::this_thread::get_id();
    unsigned running_ = 0;  // Nested calls that run code of the program.
    bool in_turn_ = false;
    std::uint64_t state_ = 1;  // Counts changes outside of turns: Host::due().
    std::uint64_t turns_ = 0;
    std::uint64_t faults_ = 0;
};

}  // namespace weft::sim
