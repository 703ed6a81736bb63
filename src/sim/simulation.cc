#include <weft/sim.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/assert.h"
#include "base/manual_clock.h"
#include "base/random.h"
#include "na/registry.h"
#include "na/sim/sim.h"
#include "sim/host.h"

namespace weft::sim {

static constexpr Duration turn_time = 1us;
static constexpr Duration connect_timeout = 2s;
static constexpr Duration drain_look = 1ms;  // Between two looks at what is left.

class Simulation::Impl {
  public:
    Impl(std::uint64_t seed, const Options& with)
        : seeds_(seed),
          world_(std::make_shared<na::sim::World>(seeds_, options(with), clock_->now())),
          order_(seeds_.next()),
          workload_(seeds_.next()),
          links_(with.links) {}

    void add(const std::string& name, Program program, RuntimeOptions options);
    Host* find(std::string_view name) const;
    Host& host(std::string_view name) const;
    bool run(const std::function<bool()>& done, Duration limit);
    // Now, or at the end of the turn that is running.
    void change(std::function<void()> what);
    void start(Host& host);
    void stop(Host& host, bool is_crash);
    void end(Host& host);
    void stop_all() {
        for (auto& host : hosts_) stop(*host, false);
    }

    // Of faults that are no packet's.
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
        options.rma_checked = with.judges_access;
        options.connect_timeout = connect_timeout;
        return options;
    }
    TimePoint next_instant();
    void pass(TimePoint to);
    void turn_hosts();
    void run_changes();
    void script(Duration time, std::function<void()> what);
    void watch_end(Host& host, std::uint32_t life, TimePoint until,
                   const std::shared_ptr<bool>& drains);
    void take_down(Host& host);

    std::shared_ptr<base::ManualClock> clock_ = std::make_shared<base::ManualClock>();
    base::SeededRandom seeds_;
    std::shared_ptr<na::sim::World> world_;
    base::SeededRandom order_;  // One stream of chance per use.
    base::SeededRandom workload_;
    const Link links_;
    std::vector<std::unique_ptr<Host>> hosts_;
    std::map<std::string, Host*, std::less<>> names_;
    std::vector<Event> script_;  // A heap.
    std::uint64_t scripted_ = 0;
    std::vector<std::function<void()>> changes_;
    std::vector<Host*> due_;  // Kept, for its memory.
    bool in_turn_ = false;
    std::uint64_t state_ = 1;  // Of what is not done in turns: Host::due().
    std::uint64_t turns_ = 0;
    std::uint64_t faults_ = 0;
};

void Simulation::Impl::add(const std::string& name, Program program, RuntimeOptions options) {
    WEFT_ASSERT(!find(name));
    if (!program) detail::refuse_empty("Simulation::add()");
    auto added = std::make_unique<Host>();
    added->name = name;
    added->program = std::move(program);
    added->options = std::move(options);
    added->options.manual = true;
    added->scarcity = &world_->scarcity(name);
    added->seeds = base::SeededRandom(seeds_.next());
    names_[name] = added.get();
    hosts_.push_back(std::move(added));
    start(*hosts_.back());
}

Host* Simulation::Impl::find(std::string_view name) const {
    const auto found = names_.find(name);
    return found == names_.end() ? nullptr : found->second;
}

Host& Simulation::Impl::host(std::string_view name) const {
    Host* found = find(name);
    WEFT_ASSERT(found != nullptr);
    return *found;
}

void Simulation::Impl::start(Host& host) {
    if (host.process) return;
    ++host.lives;
    api::NodeParts parts;
    parts.clock = clock_;
    parts.random = std::make_shared<base::SeededRandom>(host.seeds.next());
    parts.providers = std::make_shared<na::Registry>();
    parts.providers->add(na::sim::make_sim_provider(world_, host.name));
    parts.pass_time = [this](const std::function<bool()>& done, Duration limit) {
        return run(done, limit);
    };
    Result<std::shared_ptr<api::Node>> node = api::Node::make(host.options, std::move(parts));
    host.process = std::make_unique<Runtime>(Runtime::from_node(std::move(node).value()).value());
    host.busy_until = clock_->now();
    host.is_paused = false;
    // What it does to hosts, itself among them, comes after, as after a turn.
    const bool was_in_turn = std::exchange(in_turn_, true);
    host.state = host.program(*host.process);
    in_turn_ = was_in_turn;
    run_changes();
}

void Simulation::Impl::stop(Host& host, bool is_crash) {
    if (!host.process) return;
    world_->stop_host(host.name, !is_crash);
    take_down(host);
}

void Simulation::Impl::take_down(Host& host) {
    host.is_paused = false;
    // What ends with it can't see it any more. What that changes comes after, as after a turn.
    const std::shared_ptr<void> state = std::move(host.state);  // Goes last.
    const std::unique_ptr<Runtime> process = std::move(host.process);
    const bool was_in_turn = std::exchange(in_turn_, true);
    process->node().shutdown();
    in_turn_ = was_in_turn;
}

static bool is_drained(api::Node& node) {
    const auto [left, leaving] = node.left_to_drain();
    return left == 0 && leaving == 0;
}

void Simulation::Impl::end(Host& host) {
    if (!host.process) return;
    host.context().post([&node = host.process->node()] { node.begin_drain(); });
    const TimePoint until = saturating_add(clock_->now(), host.options.drain_timeout);
    watch_end(host, host.lives, until, std::make_shared<bool>(false));
}

void Simulation::Impl::watch_end(Host& host, std::uint32_t life, TimePoint until,
                                 const std::shared_ptr<bool>& drained) {
    script(drain_look, [this, &host, life, until, drained] {
        if (!host.process || host.lives != life) return;
        if (host.is_paused || (!*drained && clock_->now() < until)) {
            host.context().post(
                [&node = host.process->node(), drained] { *drained = is_drained(node); });
            return watch_end(host, life, until, drained);
        }
        take_down(host);
        world_->stop_host(host.name, true);  // What others still hold of its runtime is over, too.
        run_changes();
    });
}

void Simulation::Impl::script(Duration time, std::function<void()> what) {
    script_.push_back({saturating_add(clock_->now(), time), scripted_++, std::move(what)});
    std::push_heap(script_.begin(), script_.end());
}

void Simulation::Impl::change(std::function<void()> what) {
    if (in_turn_) {
        changes_.push_back(std::move(what));
    } else {
        what();
    }
}

void Simulation::Impl::run_changes() {
    if (in_turn_) return;  // Its end comes.
    std::vector<std::function<void()>> due;
    due.swap(changes_);
    for (auto& what : due) what();
    ++state_;
}

TimePoint Simulation::Impl::next_instant() {
    TimePoint next = world_->next_event();
    if (!script_.empty()) next = std::min(next, script_.front().at);
    const TimePoint now = clock_->now();
    for (const auto& host : hosts_) next = std::min(next, host->due(now, state_));
    return std::max(next, now);
}

void Simulation::Impl::pass(TimePoint to) {
    clock_->advance(to - clock_->now());
    world_->advance(to);
    while (!script_.empty() && script_.front().at <= to) {
        std::pop_heap(script_.begin(), script_.end());
        const std::function<void()> what = std::move(script_.back().what);
        script_.pop_back();
        what();
        ++state_;
    }
    turn_hosts();
}

void Simulation::Impl::turn_hosts() {
    const TimePoint now = clock_->now();
    due_.clear();
    for (const auto& host : hosts_) {
        if (host->due(now, state_) <= now) due_.push_back(host.get());
    }
    // Fisher and Yates; what one does may leave another without anything to do.
    for (std::size_t left = due_.size(); left > 0; --left) {
        if (left > 1) std::swap(due_[left - 1], due_[order_.next() % left]);
        Host& host = *due_[left - 1];
        if (host.due(now, state_) > now) continue;
        in_turn_ = true;
        {
            const na::sim::Scarcity::Scope scope(*host.scarcity);
            host.context().turn(now);
        }
        in_turn_ = false;
        host.timer_known_in = 0;
        ++turns_;
        host.busy_until = now + turn_time * host.slowness;
        if (!changes_.empty()) run_changes();
    }
}

bool Simulation::Impl::run(const std::function<bool()>& done, Duration limit) {
    if (in_turn_) {
        base::abort_misused(
            "Simulation::run_for(), run_until(), or block_on() and turn_until() of "
            "a host's runtime",
            "called in a turn or the program of a host, where no time passes: "
            "co_await what is waited for, in a coroutine (Runtime::spawn())");
    }
    const TimePoint end = saturating_add(clock_->now(), std::max(limit, Duration::zero()));
    ++state_;  // Anything may have been done before.
    while (!done()) {
        const TimePoint next = next_instant();
        if (next > end || next == never) {
            if (end != never) clock_->advance(end - clock_->now());
            return false;
        }
        pass(next);
    }
    return true;
}

std::uint64_t Simulation::Impl::faults() const {
    const na::sim::World::Faults& packets = world_->faults();
    std::uint64_t all = faults_ + packets.repeated + packets.resent + packets.damaged +
                        packets.given_up + packets.refused + packets.hung_up;
    for (const auto& host : hosts_) all += host->scarcity->struck();
    return all;
}

void Simulation::Impl::heal() {
    world_->set_links(links_);
    world_->mend_all();
    world_->refuse(0);
    for (const auto& host : hosts_) {
        host->is_paused = false;
        host->slowness = 1;
        host->scarcity->set_share(0);
    }
}

// ---- what users see ----------------------------------------------------------------------------

Simulation::Simulation(std::uint64_t seed, const Options& options)
    : impl_(std::make_unique<Impl>(seed, options)) {}
Simulation::~Simulation() { impl_->stop_all(); }

void Simulation::add(const std::string& name, Program program, RuntimeOptions options) {
    impl_->add(name, std::move(program), std::move(options));
}

Runtime* Simulation::runtime(std::string_view name) const {
    return impl_->host(name).process.get();
}
std::uint32_t Simulation::lives(std::string_view name) const { return impl_->host(name).lives; }

TimePoint Simulation::now() const { return impl_->clock_->now(); }
void Simulation::run_for(Duration time) {
    impl_->run([] { return false; }, time);
}
bool Simulation::run_until(const std::function<bool()>& done, Duration limit) {
    if (!done) detail::refuse_empty("Simulation::run_until()");
    return impl_->run(done, limit);
}

void Simulation::in(Duration time, std::function<void()> what) {
    if (!what) detail::refuse_empty("Simulation::in()");
    impl_->script(std::max(time, Duration::zero()), std::move(what));
}

std::uint64_t Simulation::random() { return impl_->workload_.next(); }

void Simulation::kill(const std::string& name) {
    impl_->change([this, name] {
        impl_->count_fault();
        impl_->stop(impl_->host(name), false);
        impl_->run_changes();
    });
}

void Simulation::crash(const std::string& name) {
    impl_->change([this, name] {
        impl_->count_fault();
        impl_->stop(impl_->host(name), true);
        impl_->run_changes();
    });
}

void Simulation::end(const std::string& name) {
    impl_->change([this, name] {
        impl_->count_fault();
        impl_->end(impl_->host(name));
    });
}

void Simulation::start(const std::string& name) {
    impl_->change([this, name] { impl_->start(impl_->host(name)); });
}

void Simulation::pause(const std::string& name) {
    impl_->count_fault();
    impl_->host(name).is_paused = true;
}
void Simulation::resume(const std::string& name) { impl_->host(name).is_paused = false; }

void Simulation::slow_down(const std::string& name, unsigned times) {
    impl_->count_fault();
    impl_->host(name).slowness = std::max(times, 1u);
}

void Simulation::set_links(const Link& all) {
    impl_->count_fault();
    impl_->world_->set_links(all);
}
void Simulation::set_link(const std::string& from, const std::string& to, const Link& link) {
    impl_->count_fault();
    impl_->world_->set_link(from, to, link);
}
void Simulation::cut(const std::string& from, const std::string& to) {
    impl_->count_fault();
    impl_->world_->cut(from, to);
}
void Simulation::mend(const std::string& from, const std::string& to) {
    impl_->world_->mend(from, to);
}
void Simulation::refuse(double share) { impl_->world_->refuse(share); }
void Simulation::heal() { impl_->heal(); }

void Simulation::starve(const std::string& name, double share) {
    impl_->count_fault();
    impl_->host(name).scarcity->set_share(share);
}
void Simulation::act_as(const std::string& name, const std::function<void()>& what) {
    const na::sim::Scarcity::Scope scope(*impl_->host(name).scarcity);
    what();
}
bool allocation_fails() noexcept { return na::sim::Scarcity::strikes_here(); }

std::uint64_t Simulation::trace_hash() const { return impl_->world_->trace_hash(); }
std::uint64_t Simulation::events() const { return impl_->world_->events(); }
TimePoint Simulation::last_heard(const std::string& by, const std::string& from) const {
    return impl_->world_->last_heard(by, from);
}
std::vector<Simulation::Happening> Simulation::last_events() const {
    std::vector<Happening> last;
    for (auto& [at, what] : impl_->world_->last_events(48)) last.push_back({at, std::move(what)});
    return last;
}
std::uint64_t Simulation::turns() const { return impl_->turns_; }
std::uint64_t Simulation::faults() const { return impl_->faults(); }
std::uint64_t Simulation::late_accesses() const { return impl_->world_->late_accesses(); }
std::uint64_t Simulation::unwritten_words() const { return impl_->world_->unwritten_words(); }
void Simulation::watch_reads(Witness see) { impl_->world_->watch_reads(std::move(see)); }

}  // namespace weft::sim
