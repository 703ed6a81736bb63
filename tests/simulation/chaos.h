// Faults at random moments, from a seed: at least five kinds in each seed.
//
// On demand one host is paused for longer than any table remembers, while messages to it lie in its
// queues.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <weft/sim.h>

#include "simulation/health.h"

namespace weft::scenarios {

class Chaos {
  public:
    // From now on for `length`. `note` is called for each fault.
    Chaos(sim::Simulation& simulation, std::vector<std::string> hosts, Duration length,
          std::function<void(const std::string&)> note);

    // Pauses one of these for `time`, from a moment within `soon` on.
    void pause_long(const std::vector<std::string>& hosts, Duration soon, Duration time);
    const std::string& enduring() const { return enduring_; }
    bool is_enduring() const { return paused_.contains(enduring_); }

    // Ends all faults and starts hosts that are down.
    void heal();

    // Since when `from` and `to` can't communicate, in one direction or both; `never`: they can. A
    // paused host keeps new connects waiting: that counts only where `was_connected`.
    TimePoint unreachable_since(const std::string& from, const std::string& to,
                                bool was_connected) const;
    // Since when all of the host runs; `never`: it is paused, or a context of it is stalled.
    TimePoint running_since(const std::string& host) const;
    Health& health() { return health_; }
    const Health& health() const { return health_; }

  private:
    enum class Fault : std::uint8_t {
        loss,
        duplicate,
        reorder,
        damage,
        delay,
        narrow,  // Little bandwidth.
        cut_one_way,
        cut,
        kill,
        crash,
        pause,
        slow,
        refuse,
        limit_memory,  // Of memory.
        isolate,       // Cut off from all others, one by one.
        drain,         // Ends in order, and starts again.
        hang_up,       // Connections end with their first message.
        stall,         // One context of a host takes no turn.
    };
    static constexpr std::size_t fault_count = static_cast<std::size_t>(Fault::stall) + 1;
    static constexpr std::size_t kinds_min = 5;

    void plan(Fault fault, Duration length);
    void inject(Fault fault);
    void change_link(Fault fault);
    void slow_down();
    void stall();
    void refuse();
    void limit_memory();
    void isolate();
    void drain();
    void wait_for_drained(const std::string& host, std::uint32_t life, TimePoint end);
    void cut(bool both_ways);
    void cut(const std::string& from, const std::string& to);
    void heal(const std::string& from, const std::string& to);
    void stop(bool is_crash);
    void stop(const std::string& host, bool is_crash, Duration time);
    void start(const std::string& host);
    void pause();
    void pause(const std::string& host, Duration time);
    bool may_stop(const std::string& host) const {
        return simulation_.is_up(host) && !(host == enduring_ && is_enduring());
    }
    std::uint64_t below(std::uint64_t end) { return simulation_.random() % end; }
    Duration between(Duration least, Duration most);
    const std::string& any_host() { return hosts_[below(hosts_.size())]; }

    sim::Simulation& simulation_;
    const std::vector<std::string> hosts_;
    std::function<void(const std::string&)> note_;
    bool healed_ = false;
    Health health_;
    std::map<std::pair<std::string, std::string>, TimePoint> cuts_;
    std::map<std::string, TimePoint> down_;
    std::map<std::string, TimePoint> paused_;
    std::map<std::string, TimePoint> stalled_;  // One of its contexts.
    std::set<std::string> starved_;
    std::set<std::string> draining_;
    std::string enduring_;  // The host with the long pause, which nothing else stops meanwhile.
    std::map<std::string, TimePoint> resumed_;
};

}  // namespace weft::scenarios
