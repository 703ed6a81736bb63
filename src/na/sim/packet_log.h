// The last packets that arrived on a simulated network, or were lost on it, for reports.
#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "na/sim/packet.h"

namespace weft::na::sim {

class PacketLog {
  public:
    void note(TimePoint at, const Packet& packet) {
        events_[noted_++ % events_.size()] = {at,
                                              packet.kind,
                                              packet.code,
                                              packet.delivery,
                                              packet.sequence,
                                              packet.payload.size,
                                              packet.from_host,
                                              packet.to_host};
    }
    // In order of time; at most `most`.
    std::vector<std::pair<TimePoint, std::string>> last(const Links& links, std::size_t most) const;

  private:
    struct Event {
        TimePoint at;
        Kind kind = Kind::message;
        Code code = Code::ok;
        Delivery delivery = Delivery::arrives;
        std::uint64_t sequence = 0;
        std::size_t bytes = 0;
        HostId from = 0;
        HostId to = 0;
    };
    static std::string describe(const Event& event, const Links& links);

    std::array<Event, 48> events_{};
    std::uint64_t noted_ = 0;
};

}  // namespace weft::na::sim
