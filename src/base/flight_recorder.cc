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

void FlightRecorder::record(TimePoint at, const char* what, std::string_view subject,
                            std::uint64_t number) {
    Event& event = events_[recorded_++ % events_max];
    event.at = at;
    event.what = what;
    event.number = number;
    event.subject_bytes = static_cast<std::uint8_t>(std::min(subject.size(), sizeof event.subject));
    std::memcpy(event.subject, subject.data(), event.subject_bytes);
}

std::string FlightRecorder::last(std::size_t count, TimePoint now) const {
    std::string text;
    const std::uint64_t kept = std::min<std::uint64_t>({recorded_, events_max, count});
    for (std::uint64_t i = recorded_ - kept; i < recorded_; ++i) {
        const Event& event = events_[i % events_max];
        char line[160];
        const double seconds = std::chrono::duration<double>(event.at - now).count();
        const int bytes = std::snprintf(line, sizeof line, "  %+.6f s  %s %.*s", seconds,
                                        event.what, int{event.subject_bytes}, event.subject);
        text.append(line, static_cast<std::size_t>(std::clamp(bytes, 0, int{sizeof line} - 1)));
        if (event.number != 0) text += " (" + std::to_string(event.number) + ")";
        text += '\n';
    }
    return text;
}

void FlightRecorder::print_all() {
    Registry& known = registry();
    // The failing thread may hold the mutex.
    const std::unique_lock lock(known.mutex, std::try_to_lock);
    if (!lock) return;
    known.all.for_each([](FlightRecorder& recorder) {
        if (recorder.recorded_ == 0) return;
        const Event& newest = recorder.events_[(recorder.recorded_ - 1) % events_max];
        const std::string text = recorder.last(events_max, newest.at);
        write_to_standard_error(
            "weft: the last events of a context, relative to the newest one:\n" + text);
    });
}

}  // namespace weft::base
