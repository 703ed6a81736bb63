#include "base/counter_line.h"

#include "base/random.h"
#include "support/catch.h"

using namespace weft;
using base::CounterLine;

namespace {

// A machine with a counter that runs at `ns_per_tick`; its pairs are off by up to `pair_error`.
struct Machine {
    double ns_per_tick;
    std::int64_t pair_error;
    std::int64_t boot = 1'000'000'000;
    base::SeededRandom random{7};
    std::int64_t real = 0;

    std::uint64_t ticks() const {
        return 1'000'000 + static_cast<std::uint64_t>(static_cast<double>(real) / ns_per_tick);
    }
    TimePoint kernel() const { return TimePoint(Duration(boot + real)); }
    std::int64_t noise() {
        if (pair_error == 0) return 0;
        const auto span = static_cast<std::uint64_t>(2 * pair_error + 1);
        return static_cast<std::int64_t>(random.next() % span) - pair_error;
    }
    TimePoint read(CounterLine& line) {
        if (line.covers(ticks())) return line.at(ticks());
        return line.pass(ticks(), kernel() + Duration(noise()));
    }
};

struct Accuracy {
    Duration worst = Duration::zero();
    bool monotonic = true;
};

// Reads every `step` ns for `readings` times.
Accuracy measure(Machine& machine, CounterLine& line, int readings, std::int64_t step) {
    Accuracy accuracy;
    TimePoint last{};
    for (int i = 0; i < readings; ++i) {
        machine.real += step;
        const TimePoint reading = machine.read(line);
        accuracy.monotonic = accuracy.monotonic && reading >= last;
        last = reading;
        accuracy.worst = std::max(accuracy.worst, std::chrono::abs(reading - machine.kernel()));
    }
    return accuracy;
}

}  // namespace

TEST_CASE("a counter line without pair errors is right to 5 ns") {
    for (const double ns_per_tick : {0.1 + 0.01, 0.25, 0.4347826, 1.0, 3.3}) {
        Machine machine{ns_per_tick, 0};
        CounterLine line;
        const Accuracy accuracy = measure(machine, line, 200'000, 1000);
        INFO(ns_per_tick);
        CHECK(accuracy.monotonic);
        CHECK(accuracy.worst <= 5ns);
    }
}

TEST_CASE("a counter line does not drift from noisy pairs, however long it is read") {
    Machine machine{0.4347826, 400};
    CounterLine line;
    // A million windows without a gap: their errors must not add up.
    const Accuracy accuracy = measure(machine, line, 4'000'000, 250'000);
    CHECK(accuracy.monotonic);
    CHECK(accuracy.worst <= 2 * 400ns + 1us);
}

TEST_CASE("a counter line is right after a pause of any length") {
    Machine machine{0.4347826, 400};
    CounterLine line;
    for (const std::int64_t silence :
         {2'000'000L, 500'000'000L, 30'000'000'000L, 86'400'000'000'000L}) {
        (void)measure(machine, line, 10'000, 1000);
        machine.real += silence;
        CHECK(measure(machine, line, 10'000, 1000).worst <= 2 * 400ns + 1us);
    }
}

TEST_CASE("a counter line measures anew when the counter's rate changes") {
    Machine machine{0.4347826, 100};
    CounterLine line;
    (void)measure(machine, line, 3'000'000, 1000);
    // The virtual machine is migrated: another counter under the same kernel time.
    Machine moved{0.4, 100, machine.boot, base::SeededRandom{8}, machine.real};
    (void)measure(moved, line, 20'000, 250'000);  // The new rate is measured within two stretches.
    CHECK(measure(moved, line, 100'000, 1000).worst <= 1200ns);
}

TEST_CASE("a counter line covers no time before its first measurement") {
    CounterLine line;
    CHECK_FALSE(line.covers(0));
    CHECK_FALSE(line.covers(1'000'000));
    const TimePoint start(1s);
    CHECK(line.pass(1'000'000, start) == start);
    CHECK_FALSE(line.covers(1'000'001));
    // A tick of 10 s is implausible, and so is one of a picosecond.
    CHECK(line.pass(1'000'001, start + 10s) == start + 10s);
    CHECK_FALSE(line.covers(1'000'002));
    CHECK(line.pass(1'000'000'000'000, start + 11s) == start + 11s);
    CHECK_FALSE(line.covers(1'000'000'000'001));
}

TEST_CASE("a counter line repeats its last time when the kernel returns an earlier one") {
    Machine machine{0.5, 0};
    CounterLine line;
    (void)measure(machine, line, 20'000, 1000);
    machine.real += 2'000'000;
    const TimePoint reading = line.pass(machine.ticks(), machine.kernel());
    // The kernel's time never goes back, but a pair may be off.
    CHECK(line.pass(machine.ticks() + 2, reading - 500ns) >= reading);
    CHECK(line.floor(machine.ticks() + 2) >= reading);
}

TEST_CASE("a counter line does not advance when its counter steps back a little") {
    Machine machine{0.4, 0};
    CounterLine line;
    (void)measure(machine, line, 50'000, 1000);
    for (const std::uint64_t back : {1ull, 10ull, 1000ull, 100'000ull}) {
        machine.real += 2'000'000;
        const TimePoint reading = line.pass(machine.ticks(), machine.kernel());
        CHECK(reading == machine.kernel());
        CHECK_FALSE(line.covers(machine.ticks() - back));
        CHECK(line.floor(machine.ticks() - back) == reading);
        CHECK(line.pass(machine.ticks() - back, machine.kernel() + 20ns) <= reading + 3us);
    }
}
