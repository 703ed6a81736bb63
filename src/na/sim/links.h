// Which host reaches which, and what becomes of a packet between them.
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
    // Draws from `random` only where a link leaves something to chance.
    Links(const weft::sim::Link& all, std::uint64_t seed) : all_(all), chance_(seed) {}

    // The host of this name, from now on.
    HostId host(std::string_view name);

    // For people. Cost: a search.
    std::string name_of(HostId host) const;

    // A host without a name.
    HostId own_host() { return host("#" + std::to_string(hosts_.size())); }

    void set_all(const weft::sim::Link& link);
    void set(HostId from, HostId to, const weft::sim::Link& link) { links_[{from, to}] = link; }
    void cut(HostId from, HostId to) { cuts_.insert({from, to}); }
    void mend(HostId from, HostId to) { cuts_.erase({from, to}); }
    void mend_all() { cuts_.clear(); }
    // The host has stopped: nothing reaches it, and nobody is told.
    void darken(HostId host) { dark_.insert(host); }
    void lighten(HostId host) { dark_.erase(host); }
    bool is_dark(HostId host) const { return !dark_.empty() && dark_.contains(host); }

    const weft::sim::Link& of(HostId from, HostId to) const;
    bool is_cut(HostId from, HostId to) const {
        return (!cuts_.empty() && cuts_.contains({from, to})) || is_dark(to);
    }

    struct Passage {
        Duration takes{};
        bool is_lost = false;
        bool is_damaged = false;
        bool is_repeated = false;
    };
    // Whether a connection ends with its first message, which leaves now and is lost.
    bool hangs_up(HostId from, HostId to) { return base::happens(chance_, of(from, to).hang_up); }
    // Of a packet that leaves now.
    Passage pass(HostId from, HostId to, std::size_t bytes, TimePoint now);

  private:
    using Pair = std::pair<HostId, HostId>;

    Duration up_to(Duration most);

    weft::sim::Link all_;
    base::SeededRandom chance_;
    std::map<std::string, HostId, std::less<>> hosts_;
    std::map<Pair, weft::sim::Link> links_;  // Those that differ from all_.
    std::map<Pair, TimePoint> busy_until_;
    std::set<Pair> cuts_;
    std::set<HostId> dark_;
};

}  // namespace weft::na::sim
