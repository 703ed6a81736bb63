// The last notable events of one context, for when something goes wrong: a ring that costs nothing
// until then. Not for what happens with every call.
//
// Thread: one at a time for record() and last(); the failure of an assertion prints all recorders
// from wherever it happens, as well as it can.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include <weft/time.h>

#include "base/intrusive_list.h"

namespace weft::base {

class FlightRecorder : private ListNode {
  public:
    static constexpr std::size_t events_max = 512;

    FlightRecorder();
    ~FlightRecorder();

    // `what` is a literal. `who` is cut to what fits.
    void record(TimePoint at, const char* what, std::string_view who, std::uint64_t number = 0);
    // The last `count` events, a line each, the oldest first; times are before `now`.
    std::string last(std::size_t count, TimePoint now) const;
    std::uint64_t recorded() const { return recorded_; }

    // All recorders of the process, to standard error.
    static void print_all();

  private:
    friend class IntrusiveList<FlightRecorder>;
    struct Event {
        TimePoint at;
        const char* what;
        std::uint64_t number;
        std::uint8_t who_bytes;
        char who[39];
    };
    static_assert(sizeof(Event) == 64);

    struct Registry;
    static Registry& registry();

    std::array<Event, events_max> events_;
    std::uint64_t recorded_ = 0;
};

}  // namespace weft::base
