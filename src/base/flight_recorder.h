// The last notable events of one context, in a ring, for diagnosis after a failure. Not for events
// of every call.
//
// Thread: one at a time for record() and last(); a failed assertion prints all recorders from its
// own thread, unsynchronized, as a best effort.
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

    // `what` is a literal. `subject` is truncated to what fits.
    void record(TimePoint at, const char* what, std::string_view subject, std::uint64_t number = 0);
    // The last `count` events, a line each, the oldest first; times are relative to `now`.
    std::string last(std::size_t count, TimePoint now) const;

    // Writes all recorders of the process to standard error.
    static void print_all();

  private:
    friend class IntrusiveList<FlightRecorder>;
    friend struct FlightRecorderPeer;  // Of its test.
    struct Event {
        TimePoint at;
        const char* what;
        std::uint64_t number;
        std::uint8_t subject_bytes;
        char subject[39];
    };
    static_assert(sizeof(Event) == 64);

    struct Registry;
    static Registry& registry();

    std::array<Event, events_max> events_;
    std::uint64_t recorded_ = 0;
};

}  // namespace weft::base
