// `weft ping`: checks that a server replies, and measures round trips.
#include <poll.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include <weft/runtime.h>

#include "base/text.h"
#include "cli/median.h"
#include "cli/number.h"
#include "cli/output.h"
#include "cli/text.h"
#include "commands.h"
#include "ping.h"

namespace weft::tool {

namespace {

struct PingOptions {
    std::string uri;
    std::uint32_t count = 5;
    Duration interval = 1s;
    Duration timeout = 2500ms;
};

struct PingTally {
    std::uint32_t sent = 0;
    std::vector<double> trips_ns;
    Status last_failure;
};

// False: the line could not be written.
bool print_one(std::uint32_t number, const Result<Duration>& trip) {
    if (trip) {
        std::printf("%u: %s\n", number, format_ns(static_cast<double>(trip->count())).c_str());
    } else {
        std::printf("%u: %s\n", number, base::printable(trip.status().to_string()).c_str());
    }
    return flush_output().ok();
}

PingTally ping_all(Pinger& pinger, const PingOptions& options, bool quiet) {
    PingTally tally;
    TimePoint next = std::chrono::steady_clock::now();
    while (tally.sent < options.count) {
        const Result<Duration> trip = pinger.ping(options.timeout);
        ++tally.sent;
        const bool is_read = quiet || print_one(tally.sent, trip);
        if (trip) {
            tally.trips_ns.push_back(static_cast<double>(trip->count()));
        } else {
            tally.last_failure = trip.status();
            // No reply now or before: further pings would only take time.
            if (tally.trips_ns.empty()) break;
        }
        if (!is_read) break;
        next = next + options.interval;
        const Duration pause = next - std::chrono::steady_clock::now();
        if (pause > 0ns && tally.sent < options.count) {
            poll(nullptr, 0, static_cast<int>(pause / 1ms));
        }
    }
    std::sort(tally.trips_ns.begin(), tally.trips_ns.end());
    return tally;
}

void print_summary(const PingOptions& options, const PingTally& tally) {
    const auto lost = tally.sent - tally.trips_ns.size();
    std::printf("%s: %u sent, %zu lost", base::printable(options.uri).c_str(), tally.sent, lost);
    if (!tally.trips_ns.empty()) {
        std::printf("; %s least, %s median, %s most", format_ns(tally.trips_ns.front()).c_str(),
                    format_ns(median_of(tally.trips_ns)).c_str(),
                    format_ns(tally.trips_ns.back()).c_str());
    }
    std::printf("\n");
}

Json to_json(const PingOptions& options, const PingTally& tally) {
    const std::vector<double>& trips = tally.trips_ns;
    Json json;
    json["uri"] = options.uri;
    json["sent"] = tally.sent;
    json["lost"] = tally.sent - trips.size();
    json["min_ns"] = trips.empty() ? Json(nullptr) : Json(trips.front());
    json["median_ns"] = trips.empty() ? Json(nullptr) : Json(median_of(trips));
    json["max_ns"] = trips.empty() ? Json(nullptr) : Json(trips.back());
    json["error"] = nullptr;
    return json;
}

void run_and_print(const PingOptions& options, Invocation& invocation) {
    Result<Pinger> pinger = Pinger::connect(options.uri);
    if (!pinger) {
        invocation.status = std::move(pinger).status();
        return;
    }
    const PingTally tally = ping_all(*pinger, options, invocation.json);
    if (invocation.json) {
        invocation.answer = to_json(options, tally);
    } else {
        print_summary(options, tally);
    }
    invocation.status = tally.last_failure;
}

}  // namespace

Result<Pinger> Pinger::connect(const std::string& uri) {
    RuntimeOptions with;
    with.manual = true;
    Result<Runtime> runtime = Runtime::create(with);
    if (!runtime) return std::move(runtime).status();
    Result<Channel> channel = runtime->connect(uri);
    if (!channel) return std::move(channel).status();
    return Pinger(*std::move(runtime), *std::move(channel));
}

Result<Duration> Pinger::ping(Duration timeout) {
    bool done = false;
    Status outcome;
    TimePoint end{};
    const TimePoint start = std::chrono::steady_clock::now();
    channel_.call(ping_method, as_bytes("ping"), {.timeout = timeout},
                  [&](const Status& status, ByteView) {
                      end = std::chrono::steady_clock::now();
                      outcome = status;
                      done = true;
                  });
    runtime_.turn_until([&] { return done; }, Duration::max());
    if (!outcome.ok()) return outcome;
    return end - start;
}

void set_up_ping(CLI::App& command, Invocation& invocation) {
    auto options = std::make_shared<PingOptions>();
    command.description("Check that a server replies, and time its replies");
    command.footer(
        "Stops at a failure when no reply has arrived before. The exit status is the last "
        "failure's.\nExample: weft ping sm://store --count 3 --interval 200ms");
    command.add_option("uri", options->uri, "The server's address")->required();
    command.add_option("--count", options->count, "Number of pings")
        ->transform(whole_number(1, 1'000'000'000))
        ->capture_default_str();
    auto duration = [&](const char* name, Duration& into, Duration least, const char* text,
                        const char* preset) {
        command
            .add_option_function<std::string>(
                name, [options, &into](const std::string& value) { into = *parse_duration(value); },
                text)
            ->check(time_span(least, time_span_max))
            ->default_str(preset);
    };
    duration("--interval", options->interval, 0ns, "Time from one ping to the next", "1s");
    duration("--timeout", options->timeout, 1us, "Limit for each reply", "2.5s");
    command.callback([options, &invocation] { run_and_print(*options, invocation); });
}

}  // namespace weft::tool
