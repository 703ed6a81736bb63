#include "na/sim/links.h"

#include <algorithm>

namespace weft::na::sim {

HostId Links::host(std::string_view name) {
    const auto next = static_cast<HostId>(hosts_.size());
    return hosts_.try_emplace(std::string(name), next).first->second;
}

std::string Links::name_of(HostId host) const {
    for (const auto& [name, id] : hosts_) {
        if (id == host) return name;
    }
    return "unknown host";
}

void Links::set_all(const weft::sim::Link& link) {
    all_ = link;
    links_.clear();
}

const weft::sim::Link& Links::of(HostId from, HostId to) const {
    if (links_.empty()) return all_;
    const auto found = links_.find({from, to});
    return found == links_.end() ? all_ : found->second;
}

Duration Links::up_to(Duration most) {
    if (most <= Duration::zero()) return {};
    const auto span = static_cast<std::uint64_t>(most.count()) + 1;
    return Duration(static_cast<std::int64_t>(chance_.next() % span));
}

Links::Transit Links::pass(HostId from, HostId to, std::size_t bytes, TimePoint now) {
    const weft::sim::Link& link = of(from, to);
    Transit transit;
    transit.takes = link.latency + up_to(link.jitter);
    if (link.bytes_per_second > 0) {
        TimePoint& busy_until = busy_until_[{from, to}];
        const Duration sending(
            static_cast<std::int64_t>(static_cast<double>(bytes) * 1e9 / link.bytes_per_second));
        busy_until = saturating_add(std::max(busy_until, now), sending);
        transit.takes += busy_until - now;
    }
    transit.is_lost = base::bernoulli(chance_, link.loss);
    transit.is_damaged = base::bernoulli(chance_, link.damage);
    transit.is_repeated = base::bernoulli(chance_, link.duplicate);
    if (base::bernoulli(chance_, link.reorder)) transit.takes += up_to(link.reorder_by);
    return transit;
}

}  // namespace weft::na::sim
