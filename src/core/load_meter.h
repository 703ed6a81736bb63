// The share of its time that a context works, and its rate of calls. Its thread adds turns with
// events; any thread reads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include <weft/time.h>

namespace weft::core {

// Since the context was made.
struct CallCounts {
    std::uint64_t served = 0;  // Received from its clients.
    std::uint64_t made = 0;
    bool is_whole = true;  // False: calls are left to be counted when it is asked again.
};
// Calls per second.
struct CallRates {
    double served = 0;
    double made = 0;
};

class LoadMeter {
  public:
    // A turn with events. `count` returns the CallCounts of the context; called once a second, and
    // again in the next turns until they are whole. Thread: that of the context.
    template <class Count>
    void add(TimePoint began, TimePoint ended, Count count) {
        const TimePoint since = since_.load(std::memory_order_relaxed);
        if (ended - since > window) {
            const CallCounts counts = count();
            if (counts.is_whole || ended - since > longest_window) on_window(counts, since, ended);
        }
        busy_.store(busy_.load(std::memory_order_relaxed) + (ended - began).count(),
                    std::memory_order_relaxed);
    }
    // Of the last window that has ended; zero when the context has done nothing since. Thread: any.
    CallRates rates(TimePoint now) const {
        if (now - since_.load(std::memory_order_relaxed) > 2 * window) return {};
        return {served_.load(std::memory_order_relaxed), made_.load(std::memory_order_relaxed)};
    }
    // In thousandths, of the last second or less. Thread: any.
    std::uint32_t share(TimePoint now) const {
        const Duration elapsed = now - since_.load(std::memory_order_relaxed);
        const std::int64_t busy = busy_.load(std::memory_order_relaxed);
        // A young window says little, and an old one that nothing came since.
        if (elapsed < window / 4) return last_share_.load(std::memory_order_relaxed);
        return share_of(busy, elapsed);
    }

  private:
    static constexpr Duration window = 1s;
    // In too few turns to count all calls: those that are left belong to the next window.
    static constexpr Duration longest_window = window + window / 4;
    void on_window(const CallCounts& counts, TimePoint since, TimePoint now) {
        last_share_.store(share_of(busy_.load(std::memory_order_relaxed), now - since),
                          std::memory_order_relaxed);
        busy_.store(0, std::memory_order_relaxed);
        since_.store(now, std::memory_order_relaxed);
        const double seconds = std::chrono::duration<double>(now - counted_at_).count();
        const bool has_before = counted_at_ != TimePoint{} && seconds > 0;
        const auto rate = [&](std::uint64_t after, std::uint64_t before) {
            return has_before ? static_cast<double>(after - before) / seconds : 0;
        };
        served_.store(rate(counts.served, counts_.served), std::memory_order_relaxed);
        made_.store(rate(counts.made, counts_.made), std::memory_order_relaxed);
        counts_ = counts;
        counted_at_ = now;
    }
    static std::uint32_t share_of(std::int64_t busy, Duration of) {
        if (of <= Duration::zero()) return 0;
        return static_cast<std::uint32_t>(
            std::clamp<std::int64_t>(busy / std::max<std::int64_t>(of.count() / 1000, 1), 0, 1000));
    }

    // ---- of the context's thread
    CallCounts counts_;  // At the end of the last window.
    TimePoint counted_at_{};

    // ---- of any thread
    std::atomic<TimePoint> since_{TimePoint{}};
    std::atomic<std::int64_t> busy_{0};  // Nanoseconds since then.
    std::atomic<std::uint32_t> last_share_{0};
    std::atomic<double> served_{0}, made_{0};  // Calls per second.
};

}  // namespace weft::core
