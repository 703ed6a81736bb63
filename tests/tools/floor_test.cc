#include "perf/floor.h"

#include <sched.h>

#include <algorithm>
#include <chrono>

#include "cli/text.h"
#include "support/catch.h"
#include "support/test_timeout.h"

using namespace weft;
using namespace weft::tool;

namespace {

// Binds the caller to a cpu, as perf/floor.h requires. Otherwise it may share the cpu of its
// partner beside a busy process, and each trip lasts as long as a turn of the scheduler.
class OnCpu {
  public:
    explicit OnCpu(int cpu) {
        REQUIRE(::sched_getaffinity(0, sizeof before_, &before_) == 0);
        REQUIRE(bind_to_cpu(cpu));
    }
    ~OnCpu() { ::sched_setaffinity(0, sizeof before_, &before_); }
    OnCpu(const OnCpu&) = delete;
    OnCpu& operator=(const OnCpu&) = delete;

  private:
    cpu_set_t before_;
};

// A busy machine makes any measure slow: repeats and takes the best, until `is_so`.
template <class Measure, class IsSo>
void measure_until(const Measure& measure, const IsSo& is_so) {
    const auto end = std::chrono::steady_clock::now() + test::test_timeout;
    do measure();
    while (!is_so() && std::chrono::steady_clock::now() < end);
}

}  // namespace

// The bounds are loose, because the machine may be busy. They exclude a measurement of nothing.
TEST_CASE("a cache line makes a round trip in 10 ns to 100 us") {
    const CpuPair cpus = pick_cpus();
    if (!cpus.two()) return;
    const OnCpu bound(cpus.client);
    double trip = 1e18;
    measure_until([&] { trip = std::min(trip, line_round_trip_ns(cpus, 20ms)); },
                  [&] { return trip < 100'000; });
    CHECK(trip > 10);
    CHECK(trip < 100'000);
}

TEST_CASE("copying sixteen times as many bytes takes longer, and both take time") {
    double small = 1e18, large = 1e18;
    measure_until(
        [&] {
            small = std::min(small, copy_ns(64 << 10, 20ms));
            large = std::min(large, copy_ns(1 << 20, 20ms));
        },
        [&] { return large > 4 * small; });
    CHECK(small > 64e3 / 500);  // 500 GB/s
    CHECK(large > 4 * small);
}

TEST_CASE("a raw socket measures round trips and streams") {
    const auto kind = GENERATE(SocketKind::tcp, SocketKind::local);
    const CpuPair cpus = pick_cpus();
    const Result<double> trip = socket_round_trip_ns(kind, {64, 64}, WaitMode::block, cpus, 20ms);
    REQUIRE(trip.ok());
    CHECK(*trip > 500);
    const Result<double> stream =
        socket_stream_ns(kind, 64 << 10, {cpus.server, cpus.client}, 20ms);
    REQUIRE(stream.ok());
    CHECK(*stream > 100);
}

TEST_CASE("bodies that are copied in transit take longer") {
    const CpuPair cpus = pick_cpus();
    if (!cpus.two()) return;
    const OnCpu bound(cpus.client);
    double small = 1e18, shared = 1e18, socket = 1e18;
    measure_until(
        [&] {
            small = std::min(small, shared_round_trip_ns({64, 64, true}, cpus, 20ms));
            shared = std::min(shared, shared_round_trip_ns({4 << 20, 64, true}, cpus, 20ms));
            socket = std::min(socket, socket_round_trip_ns(SocketKind::tcp, {1 << 20, 64, true},
                                                           WaitMode::block, cpus, 20ms)
                                          .value());
        },
        [&] { return shared > 4 * small && socket > 4 * small; });
    CHECK(small > 10);
    CHECK(shared > 4 * small);
    CHECK(socket > 4 * small);
}

TEST_CASE("drift is relative to the smaller floor") {
    CHECK(floor_drift(100, 120) == Approx(0.2));
    CHECK(floor_drift(120, 100) == Approx(0.2));
    CHECK(floor_drift(100, 100) == 0);
}

TEST_CASE("durations are parsed with their units") {
    CHECK(parse_duration("500ms") == 500ms);
    CHECK(parse_duration("1.5s") == 1500ms);
    CHECK(parse_duration("2") == 2s);
    CHECK(parse_duration("20us") == 20us);
    CHECK(parse_duration("3m") == 180s);
    for (const char* bad : {"", "s", "1 s", "-1s", "1x", "nan", "inf", "1e30s"}) {
        CHECK_FALSE(parse_duration(bad).has_value());
    }
}
