#include "perf/floor.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "cli/median.h"
#include "perf/na.h"

namespace weft::tool {

namespace {

double ns_since(TimePoint start) {
    return static_cast<double>((std::chrono::steady_clock::now() - start).count());
}

// Runs `round` (which returns ns per operation) until the budget is used up, at least three times.
template <class Round>
double median_round(Duration budget, Round&& round) {
    std::vector<double> rounds;
    const TimePoint end = std::chrono::steady_clock::now() + budget;
    while (rounds.size() < 3 || std::chrono::steady_clock::now() < end) rounds.push_back(round());
    return median_of(rounds);
}

struct alignas(4096) Line {
    std::atomic<std::uint64_t> turn{0};
};

constexpr std::uint64_t line_stop = ~std::uint64_t{0};

// Odd values are requests; the next even one is the reply.
void answer_line(Line& line, int cpu) {
    bind_to_cpu(cpu);
    std::uint64_t expected = 1;
    while (true) {
        const std::uint64_t seen = line.turn.load(std::memory_order_acquire);
        if (seen == line_stop) return;
        if (seen != expected) continue;
        line.turn.store(expected + 1, std::memory_order_release);
        expected += 2;
    }
}

// Fails in practice only when ordinary allocations fail.
class SharedPages {
  public:
    explicit SharedPages(std::size_t bytes) : bytes_(std::max<std::size_t>(bytes, 1)) {
        memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (memory_ == MAP_FAILED) throw std::bad_alloc();
    }
    ~SharedPages() { munmap(memory_, bytes_); }
    SharedPages(const SharedPages&) = delete;
    SharedPages& operator=(const SharedPages&) = delete;
    void* get() const { return memory_; }

  private:
    std::size_t bytes_;
    void* memory_;
};

}  // namespace

double line_round_trip_ns(const CpuPair& cpus, Duration budget) {
    Line line;
    std::thread other([&] { answer_line(line, cpus.server); });
    std::uint64_t value = 0;
    auto trip = [&] {
        line.turn.store(value + 1, std::memory_order_release);
        value += 2;
        while (line.turn.load(std::memory_order_acquire) != value) {
        }
    };
    trip();  // Now the other thread runs.
    // 12 us a round, so that the scheduler interrupts few of them.
    constexpr int trips = 100;
    const double median = median_round(budget, [&] {
        const TimePoint start = std::chrono::steady_clock::now();
        for (int i = 0; i < trips; ++i) trip();
        return ns_since(start) / trips;
    });
    line.turn.store(line_stop, std::memory_order_release);
    other.join();
    return median;
}

double shared_round_trip_ns(RoundTrip trip, const CpuPair& cpus, Duration budget) {
    // Each trip uses the next place, as in a ring: memory that the other side has just read is in
    // that side's cache, and costs more to write.
    constexpr std::size_t cycled_bytes = 512 * 1024;
    const std::size_t places =
        std::max<std::size_t>(1, cycled_bytes / std::max<std::size_t>(trip.request, 4096));
    const SharedPages requests(trip.request * places), reply(trip.reply);
    const auto request = [&](std::uint64_t number) {
        return static_cast<std::byte*>(requests.get()) + number / 2 % places * trip.request;
    };
    Line line;
    std::thread other([&] {
        bind_to_cpu(cpus.server);
        std::vector<std::byte> in(trip.request);
        const std::vector<std::byte> body(trip.reply);
        for (std::uint64_t expected = 1;; expected += 2) {
            std::uint64_t seen = 0;
            do seen = line.turn.load(std::memory_order_acquire);
            while (seen != expected && seen != line_stop);
            if (seen == line_stop) return;
            std::memcpy(in.data(), request(expected), in.size());
            std::memcpy(reply.get(), body.data(), body.size());
            line.turn.store(expected + 1, std::memory_order_release);
        }
    });
    const std::vector<std::byte> body(trip.request);
    std::vector<std::byte> in(trip.reply);
    std::uint64_t value = 0;
    const double median = median_round(budget, [&] {
        const TimePoint start = std::chrono::steady_clock::now();
        std::memcpy(request(value + 1), body.data(), body.size());
        line.turn.store(value + 1, std::memory_order_release);
        value += 2;
        while (line.turn.load(std::memory_order_acquire) != value) {
        }
        std::memcpy(in.data(), reply.get(), in.size());
        return ns_since(start);
    });
    line.turn.store(line_stop, std::memory_order_release);
    other.join();
    return median;
}

double copy_ns(std::size_t bytes, Duration budget) {
    const SharedPages from(bytes), to(bytes);
    std::memset(from.get(), 1, bytes);
    std::memset(to.get(), 2, bytes);
    // Rounds of about 20 us and more, so that two readings of the clock are negligible.
    const std::size_t copies = std::max<std::size_t>(1, (std::size_t{1} << 20) / (bytes + 256));
    return median_round(budget, [&] {
        const TimePoint start = std::chrono::steady_clock::now();
        for (std::size_t i = 0; i < copies; ++i) {
            std::memcpy(to.get(), from.get(), bytes);
            // Keeps the compiler from removing a copy.
            asm volatile("" : : "r"(to.get()), "r"(from.get()) : "memory");
        }
        return ns_since(start) / static_cast<double>(copies);
    });
}

static SocketKind socket_kind(const PerfOptions& options) {
    return options.transport == "unix" ? SocketKind::local : SocketKind::tcp;
}

static Result<std::optional<double>> call_floor(const PerfOptions& options, const CpuPair& cpus,
                                                Duration budget) {
    const RoundTrip trip{options.size, options.reply_bytes(), options.copied_floor};
    if (options.transport == "sm") {
        return std::optional(trip.copied ? shared_round_trip_ns(trip, cpus, budget)
                                         : line_round_trip_ns(cpus, budget));
    }
    if (trip.copied || options.transport == "tcp" || options.transport == "unix") {
        Result<double> ns =
            socket_round_trip_ns(socket_kind(options), trip, options.wait, cpus, budget);
        if (!ns) return std::move(ns).status();
        return std::optional(*ns);
    }
    return bare_round_trip_ns(options, cpus, budget);
}

Result<Floor> measure_floor(const PerfOptions& options, const CpuPair& cpus, Duration budget) {
    Floor floor;
    const bool both = options.metric == "floor";
    if (both || !options.is_bulk()) {
        if (cpus.two()) {
            Result<std::optional<double>> trip =
                call_floor(options, cpus, both ? budget / 2 : budget);
            if (!trip) return std::move(trip).status();
            floor.round_trip_ns = *trip;
        }
    }
    if (both || options.is_bulk()) {
        const Duration share = both ? budget / 2 : budget;
        if (options.transport == "sm") {
            floor.copy_ns = copy_ns(options.size, share);
        } else {
            // In the direction of the metric: the bytes of a put flow to the server.
            const StreamCpus ends = options.metric == "put" ? StreamCpus{cpus.client, cpus.server}
                                                            : StreamCpus{cpus.server, cpus.client};
            Result<double> stream =
                socket_stream_ns(socket_kind(options), options.size, ends, share);
            if (!stream) return std::move(stream).status();
            floor.copy_ns = *stream;
        }
    }
    return floor;
}

double floor_drift(double before, double after) {
    const double smaller = std::min(before, after);
    return smaller > 0 ? std::max(before, after) / smaller - 1 : 0;
}

}  // namespace weft::tool
