// The share of its time that a context works. Its thread adds turns with events; any thread reads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include <weft/time.h>

namespace weft::core {

class LoadMeter {
  public:
    // A turn with events. Thread: that of the context.
    void add(TimePoint began, TimePoint ended) {
        const TimePoint since = since_.load(std::memory_order_relaxed);
        if (ended - since > window) {
            last_share_.store(share_of(busy_.load(std::memory_order_relaxed), ended - since),
                              std::memory_order_relaxed);
            busy_.store(0, std::memory_order_relaxed);
            since_.store(ended, std::memory_order_relaxed);
        }
        busy_.store(busy_.load(std::memory_order_relaxed) + (ended - began).count(),
                    std::memory_order_relaxed);
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
    static std::uint32_t share_of(std::int64_t busy, Duration of) {
        if (of <= Duration::zero()) return 0;
        return static_cast<std::uint32_t>(
            std::clamp<std::int64_t>(busy / std::max<std::int64_t>(of.count() / 1000, 1), 0, 1000));
    }

    std::atomic<TimePoint> since_{TimePoint{}};
    std::atomic<std::int64_t> busy_{0};  // Nanoseconds since then.
    std::atomic<std::uint32_t> last_share_{0};
};

}  // namespace weft::core
