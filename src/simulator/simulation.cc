// The public interface of Simulation: each call is validated here and executed in impl.cc.
#include <weft/sim.h>

#include <algorithm>

#include "base/exiting.h"
#include "base/fork.h"
#include "base/standard_error.h"
#include "simulator/impl.h"

namespace weft::sim {

Simulation::Simulation(std::uint64_t seed, const Options& options) {
    validate_link("Simulation::Simulation()", options.links);
    impl_ = std::make_unique<Impl>(seed, options);
}

Simulation::~Simulation() {
    static constexpr std::string_view call = "Simulation::~Simulation()";
    if (impl_->running_ > 0 && base::is_exiting()) {
        base::write_fatal_message(
            {"weft: exit() in what a simulation runs that is destroyed with the "
             "program: its hosts end without a word; let run_for() or run_until() "
             "return, and then main()\n"});
        base::keep_forever(std::move(impl_));
        return;
    }
    impl_->check_thread(call);
    if (impl_->running_ > 0) {
        abort_misused(call,
                      "called by what the simulation runs: let run_for() or run_until() "
                      "return first");
    }
    impl_->stop_all();
    *impl_->is_destroyed_ = true;
}

void Simulation::add(const std::string& name, Program program, RuntimeOptions options) {
    impl_->check_thread("Simulation::add()");
    impl_->add(name, std::move(program), std::move(options));
}

Runtime* Simulation::runtime(std::string_view name) const {
    Host& host = impl_->host("Simulation::runtime()", name);
    return host.is_up() ? &*host.process : nullptr;
}
std::uint32_t Simulation::starts(std::string_view name) const {
    return impl_->host("Simulation::starts()", name).starts;
}

TimePoint Simulation::now() const { return impl_->clock_->now(); }
void Simulation::run_for(Duration time) {
    impl_->run([] { return false; }, time);
}
bool Simulation::run_until(const std::function<bool()>& done, Duration limit) {
    if (!done) detail::refuse_empty("Simulation::run_until()");
    return impl_->run(done, limit);
}

void Simulation::in(Duration time, Callback<void()> what) {
    impl_->check_thread("Simulation::in()");
    if (!what) detail::refuse_empty("Simulation::in()");
    impl_->schedule(std::max(time, Duration::zero()), std::move(what));
}

std::uint64_t Simulation::random() {
    impl_->check_thread("Simulation::random()");
    return impl_->workload_.next();
}

void Simulation::kill(const std::string& name) {
    Host& host = impl_->host("Simulation::kill()", name);
    impl_->change([this, &host] {
        impl_->count_fault();
        impl_->stop(host, false);
        impl_->run_changes();
    });
}

void Simulation::crash(const std::string& name) {
    Host& host = impl_->host("Simulation::crash()", name);
    impl_->change([this, &host] {
        impl_->count_fault();
        impl_->stop(host, true);
        impl_->run_changes();
    });
}

void Simulation::end(const std::string& name) {
    Host& host = impl_->host("Simulation::end()", name);
    impl_->change([this, &host] {
        impl_->count_fault();
        impl_->end(host);
    });
}

void Simulation::start(const std::string& name) {
    Host& host = impl_->host("Simulation::start()", name);
    impl_->change([this, &host] { impl_->start(host); });
}

void Simulation::set_options(const std::string& name, RuntimeOptions options) {
    impl_->set_options("Simulation::set_options()", impl_->host("Simulation::set_options()", name),
                       std::move(options));
}

void Simulation::pause(const std::string& name) {
    Host& host = impl_->host("Simulation::pause()", name);
    impl_->count_fault();
    host.is_paused = true;
}
void Simulation::resume(const std::string& name) {
    impl_->host("Simulation::resume()", name).is_paused = false;
}

void Simulation::stall(const std::string& name, unsigned context, Duration time) {
    Host& host = impl_->host("Simulation::stall()", name);
    if (context >= host.units.size()) return;
    impl_->count_fault();
    TimePoint& until = host.units[context].stalled_until;
    until = std::max(until, saturating_add(impl_->clock_->now(), time));
}

void Simulation::slow_down(const std::string& name, unsigned times) {
    Host& host = impl_->host("Simulation::slow_down()", name);
    impl_->count_fault();
    host.slowness = std::max(times, 1u);
}

void Simulation::set_links(const Link& all) {
    impl_->check_thread("Simulation::set_links()");
    validate_link("Simulation::set_links()", all);
    impl_->count_fault();
    impl_->world_->set_links(all);
}
void Simulation::set_link(const std::string& from, const std::string& to, const Link& link) {
    impl_->check_link("Simulation::set_link()", from, to);
    validate_link("Simulation::set_link()", link);
    impl_->count_fault();
    impl_->world_->set_link(from, to, link);
}
void Simulation::cut(const std::string& from, const std::string& to) {
    impl_->check_link("Simulation::cut()", from, to);
    impl_->count_fault();
    impl_->world_->cut(from, to);
}
void Simulation::heal(const std::string& from, const std::string& to) {
    impl_->check_link("Simulation::heal()", from, to);
    impl_->world_->heal(from, to);
}
void Simulation::refuse(double share) {
    impl_->check_thread("Simulation::refuse()");
    validate_share("Simulation::refuse()", "the share", share);
    impl_->world_->refuse(share);
}
void Simulation::heal() {
    impl_->check_thread("Simulation::heal()");
    impl_->heal();
}

void Simulation::limit_memory(const std::string& name, double share) {
    Host& host = impl_->host("Simulation::limit_memory()", name);
    validate_share("Simulation::limit_memory()", "the share", share);
    impl_->count_fault();
    host.resource_faults->set_failure_rate(share);
}
void Simulation::act_as(const std::string& name, const Callback<void()>& what) {
    Host& host = impl_->host("Simulation::act_as()", name);
    if (!what) detail::refuse_empty("Simulation::act_as()");
    impl_->act_as(host, what);
}
bool allocation_fails() noexcept { return na::sim::ResourceFaults::must_fail_here(); }

std::uint64_t Simulation::trace_hash() const { return impl_->world_->trace_hash(); }
std::uint64_t Simulation::events() const { return impl_->world_->events(); }
TimePoint Simulation::last_received(const std::string& by, const std::string& from) const {
    impl_->check_link("Simulation::last_received()", by, from);
    return impl_->world_->last_received(by, from);
}
std::vector<Simulation::LoggedEvent> Simulation::last_events() const {
    std::vector<LoggedEvent> last;
    for (auto& [at, what] : impl_->world_->last_events(48)) last.push_back({at, std::move(what)});
    return last;
}
std::uint64_t Simulation::turns() const { return impl_->turns_; }
std::uint64_t Simulation::faults() const { return impl_->faults(); }
std::uint64_t Simulation::late_accesses() const { return impl_->world_->late_accesses(); }
std::uint64_t Simulation::unwritten_words() const { return impl_->world_->unwritten_words(); }
void Simulation::watch_reads(ReadObserver see) { impl_->world_->watch_reads(std::move(see)); }

}  // namespace weft::sim
