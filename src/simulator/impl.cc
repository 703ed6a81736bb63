#include "simulator/impl.h"

#include <algorithm>

#include "base/assert.h"
#include "na/registry.h"

namespace weft::sim {

static constexpr Duration turn_time = 1us;
static constexpr Duration wake_up_max = 5us;           // Of a context by another one.
static constexpr Duration drain_check_interval = 1ms;  // Between two checks of the remaining work.

void Simulation::Impl::check_thread(std::string_view call) const {
    if (std::this_thread::get_id() == thread_) return;
    abort_misused(call,
                  "called on another thread than the one that made the simulation: all of it runs "
                  "on that one");
}

void Simulation::Impl::add(const std::string& name, Program program, RuntimeOptions options) {
    static constexpr std::string_view call = "Simulation::add()";
    if (!program) detail::refuse_empty(call.data());
    validate_name(call, name);
    if (find(name)) {
        abort_misused(
            call, "host '" + name + "' is there already: start() starts it again when it is down");
    }
    auto added = std::make_unique<Host>();
    added->name = name;
    added->program = std::move(program);
    set_options(call, *added, std::move(options));
    added->resource_faults = &world_->resource_faults(name);
    added->seeds = base::SeededRandom(seeds_.next());
    names_[name] = added.get();
    hosts_.push_back(std::move(added));
    change([this, &host = *hosts_.back()] { start(host); });
}

void Simulation::Impl::set_options(std::string_view call, Host& host, RuntimeOptions options) {
    validate_options(call, host.name, options);
    host.options = std::move(options);
    host.options.manual = true;
}

Host* Simulation::Impl::find(std::string_view name) const {
    const auto found = names_.find(name);
    return found == names_.end() ? nullptr : found->second;
}

Host& Simulation::Impl::host(std::string_view call, std::string_view name) const {
    check_thread(call);
    if (Host* found = find(name)) return *found;
    std::vector<std::string_view> known;
    for (const auto& host : hosts_) known.push_back(host->name);
    refuse_unknown(call, name, known);
}

void Simulation::Impl::start(Host& host) {
    WEFT_ASSERT(!is_in_host());
    host.restart_pending = host.is_up();
    if (host.is_up()) return;
    WEFT_ASSERT(!host.state);
    ++host.starts;
    api::RuntimeParts parts;
    parts.clock = clock_;
    parts.random = std::make_shared<base::SeededRandom>(host.seeds.next());
    parts.more_random = [&host] { return std::make_shared<base::SeededRandom>(host.seeds.next()); };
    parts.providers = std::make_shared<na::Registry>();
    parts.providers->add(na::sim::make_sim_provider(world_, host.name));
    parts.advance_time = [this, &host, is_destroyed = is_destroyed_](
                             const std::function<bool()>& done, Duration limit) {
        return *is_destroyed ? done() : run(done, limit, &host);
    };
    Result<std::shared_ptr<api::RuntimeImpl>> runtime_impl =
        api::RuntimeImpl::make(host.options, std::move(parts));
    host.begin_life(std::move(runtime_impl).value(), clock_->now());  // Or throws.
    Runtime process = Runtime::from_impl(host.runtime_impl).value();
    if (host.process) {
        *host.process = std::move(process);
    } else {
        host.process.emplace(std::move(process));
    }
    host.is_paused = false;
    // Its changes of hosts, itself among them, are made afterwards, as after a turn.
    try {
        const InTurn turn(*this);
        host.state = host.program(*host.process);
    } catch (...) {
        stop(host, false);
        throw;
    }
    run_changes();
}

void Simulation::Impl::stop(Host& host, bool is_crash) {
    host.restart_pending = false;
    if (!host.is_up()) return;
    world_->stop_host(host.name, !is_crash);
    take_down(host);
}

void Simulation::Impl::take_down(Host& host) {
    WEFT_ASSERT(host.is_up() && host.process);
    host.is_paused = false;
    host.units.clear();
    // Objects that end with the host can't see it any more. Their changes of hosts are made
    // afterwards, as after a turn.
    const InTurn turn(*this);
    const std::shared_ptr<void> state = std::move(host.state);  // Destroyed last.
    const std::shared_ptr<api::RuntimeImpl> runtime_impl = std::move(host.runtime_impl);
    runtime_impl->shutdown();
    const Runtime process = *std::move(host.process);  // Until here ending objects could use it.
}

void Simulation::Impl::stop_all() {
    const InTurn turn(*this);  // Nothing that ends with the hosts starts one again.
    for (std::size_t i = 0; i < hosts_.size(); ++i) stop(*hosts_[i], false);
}

void Simulation::Impl::end(Host& host) {
    WEFT_ASSERT(!is_in_host());
    host.restart_pending = false;
    if (!host.is_up()) return;
    api::RuntimeImpl& impl = *host.runtime_impl;
    for (const Unit& unit : host.units)
        unit.context().post([&impl, &node = *unit.node] { impl.begin_drain(node); });
    const TimePoint until = saturating_add(clock_->now(), host.options.drain_timeout);
    poll_drain(host, host.starts, until, std::make_shared<DrainChecks>(host.units.size()));
}

void Simulation::Impl::poll_drain(Host& host, std::uint32_t start_number, TimePoint until,
                                  const std::shared_ptr<DrainChecks>& checks) {
    schedule(drain_check_interval, [this, &host, start_number, until, checks] {
        if (!host.is_up() || host.starts != start_number) return;
        const auto are_all = [&](DrainCheck state) {
            return std::ranges::all_of(*checks, [&](const auto& one) { return one == state; });
        };
        const bool is_drained = are_all(DrainCheck::drained);
        if (host.is_paused || (!(is_drained && checks->may_end) && clock_->now() < until)) {
            // A context that takes no turn gets one check for all intervals. All are checked anew
            // together: one that was drained may have got work of another.
            const bool is_answered = std::ranges::none_of(
                *checks, [](const auto& one) { return one == DrainCheck::posted; });
            if (is_answered) checks->may_end = is_drained || checks->size() == 1;
            for (std::size_t i = 0; is_answered && i < checks->size(); ++i) {
                (*checks)[i].move_to(DrainCheck::posted);
                host.units[i].context().post(
                    [&impl = *host.runtime_impl, &node = *host.units[i].node, checks, i] {
                        const auto [left, leaving] =
                            checks->may_end ? impl.left_to_drain(node) : impl.work_to_drain(node);
                        (*checks)[i].move_to(left == 0 && leaving == 0 ? DrainCheck::drained
                                                                       : DrainCheck::done);
                    });
            }
            return poll_drain(host, start_number, until, checks);
        }
        const bool restart_pending = host.restart_pending;
        take_down(host);
        world_->stop_host(host.name, true);  // Ends what others still hold of its runtime, too.
        run_changes();
        if (restart_pending) start(host);
    });
}

void Simulation::Impl::schedule(Duration time, std::function<void()> what) {
    WEFT_ASSERT(time >= Duration::zero() && what);
    scheduled_.push_back(
        {saturating_add(clock_->now(), time), scheduled_count_++, std::move(what)});
    std::push_heap(scheduled_.begin(), scheduled_.end());
}

bool Simulation::Impl::is_in_host() const {
    if (in_turn_) return true;
    return core::Context::is_any_entered() &&
           std::any_of(hosts_.begin(), hosts_.end(), [](const auto& host) {
               return host->is_up() && host->runtime_impl->is_entered();
           });
}

void Simulation::Impl::change(std::function<void()> what) {
    if (is_in_host()) return changes_.push_back(std::move(what));
    const Running running(*this);
    run_changes();  // Those of an earlier call of the program: in their order.
    what();
}

void Simulation::Impl::act_as(Host& host, const Callback<void()>& what) {
    WEFT_ASSERT(host.resource_faults && what);
    {
        const InTurn turn(*this);
        const na::sim::ResourceFaults::HostScope scope(*host.resource_faults);
        what();
    }
    const Running running(*this);
    run_changes();
}

void Simulation::Impl::run_changes() {
    if (changes_.empty() || is_in_host()) return;  // They are run at its end.
    std::vector<std::function<void()>> due;
    due.swap(changes_);
    std::size_t next = 0;
    ++state_;
    try {
        while (next < due.size()) due[next++]();
    } catch (...) {  // Thrown by a host's program; the other changes are made with the next ones.
        const auto left = due.begin() + static_cast<std::ptrdiff_t>(next);
        changes_.insert(changes_.begin(), std::move_iterator(left), std::move_iterator(due.end()));
        ++state_;
        throw;
    }
    ++state_;
}

TimePoint Simulation::Impl::next_instant() {
    TimePoint next = world_->next_event();
    if (!scheduled_.empty()) next = std::min(next, scheduled_.front().at);
    const TimePoint now = clock_->now();
    for (const auto& host : hosts_) {
        for (Unit& unit : host->units) next = std::min(next, due(*host, unit, now));
    }
    return std::max(next, now);
}

// A nested run may have advanced the clock further.
void Simulation::Impl::advance_clock(TimePoint to) {
    if (to > clock_->now()) clock_->advance(to - clock_->now());
}

void Simulation::Impl::advance(TimePoint to) {
    WEFT_ASSERT(to != never && !is_in_host());
    advance_clock(to);
    world_->advance(to);
    while (!scheduled_.empty() && scheduled_.front().at <= to) {
        std::pop_heap(scheduled_.begin(), scheduled_.end());
        const std::function<void()> what = std::move(scheduled_.back().what);
        scheduled_.pop_back();
        ++state_;
        what();
        run_changes();
        ++state_;
    }
    turn_hosts();
}

void Simulation::Impl::turn_hosts() {
    const TimePoint now = clock_->now();
    due_.clear();
    for (const auto& host : hosts_) {
        for (std::size_t i = 0; i < host->units.size(); ++i) {
            if (due(*host, host->units[i], now) <= now)
                due_.push_back({host.get(), i, host->starts});
        }
    }
    // Fisher and Yates; the turn of one may leave another one without work.
    for (std::size_t left = due_.size(); left > 0; --left) {
        if (left > 1) std::swap(due_[left - 1], due_[order_.next() % left]);
        const DueUnit next = due_[left - 1];
        Host& host = *next.host;
        // A change after another turn may have ended the host.
        if (host.starts != next.life || next.unit >= host.units.size()) continue;
        if (due(host, host.units[next.unit], now) > now) continue;
        {
            WEFT_ASSERT(!host.is_idle());
            const InTurn turn(*this);
            const na::sim::ResourceFaults::HostScope scope(*host.resource_faults);
            host.units[next.unit].context().turn(now);
        }
        ++turns_;
        Unit& turned = host.units[next.unit];  // Changes are made below.
        turned.timer_read_in = 0;
        turned.work_due = never;
        turned.busy_until = now + turn_time * host.slowness;
        run_changes();
    }
}

TimePoint Simulation::Impl::due(Host& host, Unit& unit, TimePoint now) {
    if (host.is_idle()) return never;
    if (host.runtime_impl->is_down()) abort_runtime_taken(host.name);
    return unit.due(now, state_, [&]() -> Duration {
        if (host.units.size() == 1) return Duration::zero();
        return Duration(static_cast<std::int64_t>(order_.next() % (wake_up_max.count() + 1)));
    });
}

static constexpr Duration pause_timeout = 1h;

[[noreturn]] static void refuse_paused(const std::string& host) {
    abort_misused("Runtime::block_on() or turn_until()",
                  "of host '" + host +
                      "' of a simulation, which is paused, and which nothing has resumed within an "
                      "hour of virtual time after the last function of Simulation::in() that was "
                      "due: call Simulation::resume() first, or in a function of in()");
}

TimePoint Simulation::Impl::last_scheduled() const {
    TimePoint last = clock_->now();
    for (const Event& event : scheduled_) last = std::max(last, event.at);
    return last;
}

bool Simulation::Impl::run(const std::function<bool()>& done, Duration limit, const Host* waiter) {
    static constexpr std::string_view calls =
        "Simulation::run_for(), run_until(), or block_on(), turn_until() or another operation of a "
        "host's runtime";
    check_thread(calls);
    if (is_in_host()) {
        abort_misused(calls,
                      "called in a turn or the program of a host, or in act_as(), where no time "
                      "passes: co_await what is waited for, in a coroutine (Runtime::spawn())");
    }
    WEFT_ASSERT(done);
    const Running running(*this);
    run_changes();  // Left by a run that ended in an exception.
    const TimePoint end = saturating_add(clock_->now(), std::max(limit, Duration::zero()));
    ++state_;                      // Hosts may have changed before.
    TimePoint resumed_by = never;  // Of a waiter that is paused.
    while (true) {
        const bool is_done = done();
        run_changes();
        if (is_done) return true;
        const TimePoint next = next_instant();
        if (end != never || !waiter || !waiter->is_paused) {
            resumed_by = never;
        } else if (resumed_by == never) {
            resumed_by = saturating_add(last_scheduled(), pause_timeout);
        }
        if (resumed_by != never && next > resumed_by) refuse_paused(waiter->name);
        if (next > end || next == never) {
            if (end != never) advance_clock(end);
            return false;
        }
        advance(next);
    }
}

std::uint64_t Simulation::Impl::faults() const {
    const na::sim::NetworkFaults& packets = world_->faults();
    std::uint64_t all = faults_ + packets.repeated + packets.resent + packets.damaged +
                        packets.given_up + packets.refused + packets.hung_up;
    for (const auto& host : hosts_) all += host->resource_faults->failures();
    return all;
}

void Simulation::Impl::heal() {
    world_->set_links(links_);
    world_->mend_all();
    world_->refuse(0);
    for (const auto& host : hosts_) {
        host->is_paused = false;
        host->slowness = 1;
        for (Unit& unit : host->units) unit.stalled_until = TimePoint::min();
        host->resource_faults->set_failure_rate(0);
    }
}

}  // namespace weft::sim
