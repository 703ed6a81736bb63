// Which host reaches which, and the fate of a packet between them.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include <weft/sim/link.h>

#include "base/random.h"

namespace weft::na::sim {

using HostId = std::uint32_t;

class Links {
  public:
    // Draws random numbers only where a link leaves an outcome to chance.
    Links(const weft::sim::Link& all, std::uint64_t seed) : all_(all), chance_(seed) {}

    // The host of this name, created on first use.
    HostId host(std::string_view name);

    // For reports. Cost: a search.
    std::string name_of(HostId host) const;

    // A host without a name.
    HostId own_host() { return host("#" + std::to_string(hosts_.size())); }

    void set_all(const weft::sim::Link& link);
    void set(HostId from, HostId to, const weft::sim::Link& link) { links_[{from, to}] = link; }
    void cut(HostId from, HostId to) { cuts_.insert({from, to}); }
    void heal(HostId from, HostId to) { cuts_.erase({from, to}); }
    void mend_all() { cuts_.clear(); }
    // The host has stopped: packets to it are lost, and no peer is notified.
    void set_unreachable(HostId host) { unreachable_.insert(host); }
    void set_reachable(HostId host) { unreachable_.erase(host); }
    bool is_unreachable(HostId host) const {
        return !unreachable_.empty() && unreachable_.contains(host);
    }

    const weft::sim::Link& of(HostId from, HostId to) const;
    bool is_cut(HostId from, HostId to) const {
        return (!cuts_.empty() && cuts_.contains({from, to})) || is_unreachable(to);
    }

    struct Transit {
        Duration takes{};
        bool is_lost = false;
        bool is_damaged = false;
        bool is_repeated = false;
    };
    // Whether a connection ends with its first message, which leaves now and is lost.
    bool hangs_up(HostId from, HostId to) { return base::bernoulli(chance_, of(from, to).hang_up); }
    // The fate of a packet that leaves now.
    Transit pass(HostId from, HostId to, std::size_t bytes, TimePoint now);

  private:
    using Pair = std::pair<HostId, HostId>;

    Duration up_to(Duration most);

    weft::sim::Link all_;
    base::SeededRandom chance_;
    std::map<std::string, HostId, std::less<>> hosts_;
    std::map<Pair, weft::sim::Link> links_;  // Links that differ from all_.
    std::map<Pair, TimePoint> busy_until_;
    std::set<Pair> cuts_;
    std::set<HostId> unreachable_;
};

}  // namespace weft::na::sim
