#include "base/flight_recorder.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "base/fork.h"
#include "base/standard_error.h"

namespace weft::base {

struct FlightRecorder::Registry {
    std::mutex mutex;
    IntrusiveList<FlightRecorder> all;
};

// Never destroyed: an assertion may fail after the end of main().
FlightRecorder::Registry& FlightRecorder::registry() { return per_process<Registry>(); }

FlightRecorder::FlightRecorder() {
    Registry& known = registry();
    const std::lock_guard lock(known.mutex);
    known.all.push_back(*this);
}

FlightRecorder::~FlightRecorder() {
    const std::lock_guard lock(registry().mutex);
    unlink();
}

void FlightRecorder::record(TimePoint at, const char* what, std::string_view who,
                            std::uint64_t number) {
    Event& event = events_[recorded_++ % events_max];
    event.at = at;
    event.what = what;
    event.number = number;
    event.who_bytes = static_cast<std::uint8_t>(std::min(who.size(), sizeof event.who));
    std::memcpy(event.who, who.data(), event.who_bytes);
}

std::string FlightRecorder::last(std::size_t count, TimePoint now) const {
    std::string text;
    const std::uint64_t kept = std::min<std::uint64_t>({recorded_, events_max, count});
    for (std::uint64_t i = recorded_ - kept; i < recorded_; ++i) {
        const Event& event = events_[i % events_max];
        char line[160];
        const double seconds = std::chrono::duration<double>(event.at - now).count();
        const int bytes = std::snprintf(line, sizeof line, "  %+.6f s  %s %.*s", seconds,
                                        event.what, int{event.who_bytes}, event.who);
        text.append(line, static_cast<std::size_t>(std::clamp(bytes, 0, int{sizeof line} - 1)));
        if (event.number != 0) text += " (" + std::to_string(event.number) + ")";
        text += '\n';
    }
    return text;
}

void FlightRecorder::print_all() {
    Registry& known = registry();
    // It may be held by the thread that fails.
    const std::unique_lock lock(known.mutex, std::try_to_lock);
    if (!lock) return;
    known.all.for_each([](FlightRecorder& recorder) {
        if (recorder.recorded_ == 0) return;
        const Event& newest = recorder.events_[(recorder.recorded_ - 1) % events_max];
        const std::string text = recorder.last(events_max, newest.at);
        put_to_standard_error("weft: the last events of a context, before the newest of them:\n" +
                              text);
    });
}

}  // namespace weft::base
