// The progress of long work, on a terminal's standard error: a bar, the rate, the remaining time.
// Draws nothing elsewhere, or when it is not wanted (--quiet, --json).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include <weft/time.h>

namespace weft::tool {

class ProgressBar {
  public:
    enum class Unit : std::uint8_t { bytes, seeds, members };
    // `total` 0: unknown, as of a pipe.
    ProgressBar(std::uint64_t total, bool wanted, Unit unit = Unit::bytes);
    ~ProgressBar();

    // Thread: any.
    void add(std::uint64_t more) { done_.fetch_add(more, std::memory_order_relaxed); }

  private:
    void loop();
    void draw() const;
    std::string amount(double of) const;

    const std::uint64_t total_;
    const Unit unit_;
    const TimePoint start_ = std::chrono::steady_clock::now();
    std::atomic<std::uint64_t> done_{0};
    std::mutex mutex_;
    std::condition_variable changed_;
    bool finished_ = false;
    std::thread thread_;
};

}  // namespace weft::tool
