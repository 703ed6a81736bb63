// The last packets that arrived on a simulated network, or should have, for people.
#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "na/sim/cargo.h"

namespace weft::na::sim {

class Flight {
  public:
    void note(TimePoint at, const Cargo& cargo) {
        events_[noted_++ % events_.size()] = {at,
                                              cargo.kind,
                                              cargo.code,
                                              cargo.fate,
                                              cargo.sequence,
                                              cargo.parcel.size,
                                              cargo.from_host,
                                              cargo.to_host};
    }
    // In order of time; at most `most`.
    std::vector<std::pair<TimePoint, std::string>> last(const Links& links, std::size_t most) const;

  private:
    struct Event {
        TimePoint at;
        Kind kind = Kind::message;
        Code code = Code::ok;
        Fate fate = Fate::arrives;
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
