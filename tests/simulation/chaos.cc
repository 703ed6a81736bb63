#include "simulation/chaos.h"

#include <algorithm>

namespace weft::scenarios {

static constexpr Duration spacing = 150ms;  // Between two faults of a kind, on average.

static std::string in_ms(Duration time) { return std::to_string(time / 1ms) + " ms"; }

Chaos::Chaos(sim::Simulation& simulation, std::vector<std::string> hosts, Duration length,
             std::function<void(const std::string&)> note)
    : simulation_(simulation), hosts_(std::move(hosts)), note_(std::move(note)) {
    std::array<Fault, fault_count> order;
    for (std::size_t i = 0; i < fault_count; ++i) order[i] = static_cast<Fault>(i);
    for (std::size_t i = fault_count - 1; i > 0; --i) std::swap(order[i], order[below(i + 1)]);
    for (std::size_t i = 0; i < fault_count; ++i) {
        if (i < kinds_min || below(2) != 0) plan(order[i], length);
    }
}

Duration Chaos::between(Duration least, Duration most) {
    return least + Duration(static_cast<std::int64_t>(
                       below(static_cast<std::uint64_t>((most - least).count()) + 1)));
}

void Chaos::plan(Fault fault, Duration length) {
    for (Duration at = between(1ms, spacing); at < length; at += between(1ms, 2 * spacing)) {
        simulation_.in(at, [this, fault] {
            if (!healed_) inject(fault);
        });
    }
}

void Chaos::inject(Fault fault) {
    switch (fault) {
        case Fault::loss:
        case Fault::duplicate:
        case Fault::reorder:
        case Fault::damage:
        case Fault::delay:
        case Fault::hang_up:
        case Fault::narrow: return change_link(fault);
        case Fault::cut_one_way: return cut(false);
        case Fault::cut: return cut(true);
        case Fault::kill: return stop(false);
        case Fault::crash: return stop(true);
        case Fault::pause: return pause();
        case Fault::slow: return slow_down();
        case Fault::refuse: return refuse();
        case Fault::stall: return stall();
        case Fault::limit_memory: return limit_memory();
        case Fault::isolate: return isolate();
        case Fault::drain: return drain();
    }
}

void Chaos::slow_down() {
    const std::string host = any_host();
    note_(host + " is slow");
    health_.begin(Harm::slows, host);
    simulation_.slow_down(host, 100);
    simulation_.in(between(1ms, 300ms), [this, host] {
        if (healed_) return;
        simulation_.slow_down(host, 1);
        health_.end(Harm::slows, host, simulation_.now());
    });
}

void Chaos::stall() {
    static constexpr unsigned contexts_max = 5;
    const std::string host = any_host();
    const auto context = static_cast<unsigned>(below(contexts_max));
    if (!simulation_.is_up(host) || paused_.contains(host) || stalled_.contains(host)) return;
    const Duration time = between(1ms, below(8) == 0 ? 4s : 300ms);
    note_("context " + std::to_string(context) + " of " + host + " is stalled for " + in_ms(time));
    stalled_[host] = simulation_.now();
    health_.begin(Harm::breaks, host);
    simulation_.stall(host, context, time);
    simulation_.in(time, [this, host, life = simulation_.starts(host)] {
        if (simulation_.starts(host) != life || stalled_.erase(host) == 0) return;
        resumed_[host] = simulation_.now();
        health_.end(Harm::breaks, host, simulation_.now());
    });
}

void Chaos::refuse() {
    note_("transports refuse");
    health_.begin_everywhere(Harm::slows);
    simulation_.refuse(0.3);
    simulation_.in(between(1ms, 100ms), [this] {
        if (healed_) return;
        simulation_.refuse(0);
        health_.end_everywhere(Harm::slows, simulation_.now());
    });
}

void Chaos::limit_memory() {
    const std::string host = any_host();
    if (!starved_.insert(host).second) return;
    note_(host + " is short of memory");
    health_.begin(Harm::breaks, host);
    simulation_.limit_memory(host, below(2) == 0 ? 1 : 0.2);
    simulation_.in(between(100us, 50ms), [this, host] {
        if (healed_) return;
        starved_.erase(host);
        simulation_.limit_memory(host, 0);
        health_.end(Harm::breaks, host, simulation_.now());
    });
}

// All messages from it, or to it, or both; the first link may be mended before the last is cut.
void Chaos::isolate() {
    const std::string host = any_host();
    const std::uint64_t ways = 1 + below(3);
    const Duration time = between(1ms, below(4) == 0 ? 4s : 300ms);
    note_(host +
          (ways == 3   ? " is cut off for "
           : ways == 2 ? " receives nothing for "
                       : " sends nothing for ") +
          in_ms(time));
    for (const std::string& other : hosts_) {
        if (other == host) continue;
        for (const bool says : {true, false}) {
            if ((ways & (says ? 1 : 2)) == 0) continue;
            const std::string from = says ? host : other, to = says ? other : host;
            const Duration begin = between(0ms, 20ms);
            simulation_.in(begin, [this, from, to] {
                if (!healed_ && !cuts_.contains({from, to})) cut(from, to);
            });
            simulation_.in(begin + between(time / 2, time), [this, from, to] { heal(from, to); });
        }
    }
}

// The host takes no more calls, replies to those that it has, and ends.
void Chaos::drain() {
    const std::string host = any_host();
    if (!may_stop(host) || !draining_.insert(host).second) return;
    note_(host + " drains");
    health_.begin(Harm::breaks, host);
    simulation_.end(host);
    wait_for_drained(host, simulation_.starts(host), simulation_.now() + 500ms);
}

void Chaos::wait_for_drained(const std::string& host, std::uint32_t life, TimePoint end) {
    simulation_.in(1ms, [this, host, life, end] {
        if (!draining_.contains(host) || simulation_.starts(host) != life) return;
        const bool is_up = simulation_.is_up(host);
        if (is_up && simulation_.now() < end) return wait_for_drained(host, life, end);
        note_(host + (is_up ? " is killed while it drains" : " has drained"));
        stop(host, false, between(1ms, 100ms));
    });
}

// From one host to another, for a while.
void Chaos::change_link(Fault fault) {
    const std::string from = any_host(), to = any_host();
    sim::Link link;
    std::string what;
    switch (fault) {
        case Fault::loss: link.loss = 0.3, what = "loses packets"; break;
        case Fault::duplicate: link.duplicate = 0.5, what = "repeats packets"; break;
        case Fault::reorder: link.reorder = 0.5, what = "reorders packets"; break;
        case Fault::damage: link.damage = 0.01, what = "damages packets"; break;
        case Fault::hang_up: link.hang_up = 0.7, what = "hangs up"; break;
        case Fault::delay:
            link.latency = between(100us, 50ms);
            link.jitter = link.latency;
            what = "is late";
            break;
        default: link.bytes_per_second = 1e6, what = "is narrow"; break;
    }
    note_(from + " -> " + to + " " + what);
    const bool is_lossy = fault == Fault::damage || fault == Fault::hang_up;
    const Harm harm = is_lossy ? Harm::breaks : Harm::slows;
    health_.begin(harm, from, to);
    simulation_.set_link(from, to, link);
    simulation_.in(between(10ms, 500ms), [this, harm, from, to] {
        if (healed_) return;
        simulation_.set_link(from, to, sim::Link());
        health_.end(harm, from, to, simulation_.now());
    });
}

void Chaos::cut(bool both_ways) {
    const std::string from = any_host(), to = any_host();
    if (from == to || cuts_.contains({from, to}) || cuts_.contains({to, from})) return;
    const Duration time = between(1ms, below(4) == 0 ? 4s : 300ms);
    note_(from + (both_ways ? " <-> " : " -> ") + to + " is cut for " + in_ms(time));
    cut(from, to);
    if (both_ways) cut(to, from);
    simulation_.in(time, [this, from, to] {
        heal(from, to);
        heal(to, from);
    });
}

void Chaos::cut(const std::string& from, const std::string& to) {
    cuts_[{from, to}] = simulation_.now();
    health_.begin(Harm::breaks, from, to);
    simulation_.cut(from, to);
}

void Chaos::heal(const std::string& from, const std::string& to) {
    if (cuts_.erase({from, to}) == 0) return;
    simulation_.heal(from, to);
    health_.end(Harm::breaks, from, to, simulation_.now());
}

void Chaos::stop(bool is_crash) {
    const std::string host = any_host();
    if (!may_stop(host)) return;
    const Duration time = between(1ms, below(8) == 0 ? 4s : 500ms);
    note_(host + (is_crash ? " crashes for " : " is killed for ") + in_ms(time));
    stop(host, is_crash, time);
}

void Chaos::stop(const std::string& host, bool is_crash, Duration time) {
    if (draining_.erase(host) != 0) health_.end(Harm::breaks, host, simulation_.now());
    down_[host] = simulation_.now();
    health_.begin(Harm::breaks, host);
    for (auto* const stopped : {&paused_, &stalled_}) {
        if (stopped->erase(host) != 0) health_.end(Harm::breaks, host, simulation_.now());
    }
    if (is_crash) {
        simulation_.crash(host);
    } else {
        simulation_.kill(host);
    }
    simulation_.in(time, [this, host] {
        if (healed_ || simulation_.is_up(host)) return;
        start(host);
    });
}

void Chaos::start(const std::string& host) {
    down_.erase(host);
    resumed_[host] = simulation_.now();
    simulation_.start(host);
    health_.end(Harm::breaks, host, simulation_.now());
}

void Chaos::pause() {
    const std::string host = any_host();
    if (!simulation_.is_up(host) || paused_.contains(host)) return;
    pause(host, between(1ms, below(8) == 0 ? 6s : 200ms));
}

void Chaos::pause_long(const std::vector<std::string>& hosts, Duration soon, Duration time) {
    simulation_.in(between(0ms, soon), [this, hosts, time] {
        const std::string& host = hosts[below(hosts.size())];
        if (healed_) return;
        const bool is_well =
            simulation_.is_up(host) && !paused_.contains(host) && !draining_.contains(host);
        if (!is_well) return pause_long(hosts, 10ms, time);  // Another host, or later.
        enduring_ = host;
        pause(host, time);
    });
}

void Chaos::pause(const std::string& host, Duration time) {
    note_(host + " is paused for " + in_ms(time));
    paused_[host] = simulation_.now();
    health_.begin(Harm::breaks, host);
    simulation_.pause(host);
    simulation_.in(time, [this, host, life = simulation_.starts(host)] {
        if (simulation_.starts(host) != life || paused_.erase(host) == 0) return;
        resumed_[host] = simulation_.now();
        simulation_.resume(host);
        health_.end(Harm::breaks, host, simulation_.now());
    });
}

void Chaos::heal() {
    healed_ = true;
    note_("all faults are healed");
    simulation_.heal();
    cuts_.clear();
    down_.clear();
    for (const auto* const stopped : {&paused_, &stalled_}) {
        for (const auto& [host, since] : *stopped) resumed_[host] = simulation_.now();
    }
    paused_.clear();
    stalled_.clear();
    // Draining hosts end, and start again.
    for (const std::string& host : std::exchange(draining_, {})) simulation_.kill(host);
    for (const std::string& host : hosts_) {
        if (simulation_.is_up(host)) continue;
        resumed_[host] = simulation_.now();
        simulation_.start(host);
    }
    health_.end_all(simulation_.now());
}

TimePoint Chaos::unreachable_since(const std::string& from, const std::string& to,
                                   bool was_connected) const {
    TimePoint since = never;
    const auto consider = [&](const auto& map, const auto& key) {
        if (const auto found = map.find(key); found != map.end()) {
            since = std::min(since, found->second);
        }
    };
    consider(cuts_, std::pair(from, to));
    consider(cuts_, std::pair(to, from));
    consider(down_, to);
    if (was_connected) consider(paused_, to);
    if (was_connected) consider(stalled_, to);
    return since;
}

TimePoint Chaos::running_since(const std::string& host) const {
    if (paused_.contains(host) || stalled_.contains(host)) return never;
    const auto found = resumed_.find(host);
    return found == resumed_.end() ? TimePoint::min() : found->second;
}

}  // namespace weft::scenarios
