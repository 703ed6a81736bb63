#include "cli/progress_bar.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <system_error>

#include "cli/text.h"

namespace weft::tool {

ProgressBar::ProgressBar(std::uint64_t total, bool wanted, Unit unit) : total_(total), unit_(unit) {
    if (!wanted || !isatty(STDERR_FILENO)) return;
    try {
        thread_ = std::thread([this] { loop(); });
    } catch (const std::system_error&) {
        // Without a thread nothing is drawn.
    }
}

ProgressBar::~ProgressBar() {
    if (!thread_.joinable()) return;
    {
        std::lock_guard lock(mutex_);
        finished_ = true;
    }
    changed_.notify_one();
    thread_.join();
    std::fprintf(stderr, "\r\033[K");  // The summary replaces the bar.
}

void ProgressBar::loop() {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, 100ms, [this] { return finished_; })) draw();
}

std::string ProgressBar::amount(double of) const {
    switch (unit_) {
        case Unit::bytes: return format_bytes(of);
        case Unit::seeds: return format_count(of) + " seeds";
        case Unit::members: return format_count(of) + " members";
    }
    return format_count(of);
}

void ProgressBar::draw() const {
    constexpr int cells = 30;
    const auto done = static_cast<double>(done_.load(std::memory_order_relaxed));
    const auto total = static_cast<double>(total_);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    const double rate = done / seconds;
    std::string line = "\r";
    if (total_ > 0) {
        const double share = std::min(done / total, 1.0);
        const int filled = static_cast<int>(share * cells);
        line += "[" + std::string(static_cast<std::size_t>(filled), '#') +
                std::string(static_cast<std::size_t>(cells - filled), '.') + "] " +
                std::to_string(static_cast<int>(share * 100)) + " %  ";
    }
    line += amount(done) + "  " + amount(rate) + "/s";
    if (total_ > 0 && rate > 0) line += "  " + format_ns((total - done) / rate * 1e9) + " left";
    std::fprintf(stderr, "%s\033[K", line.c_str());
}

}  // namespace weft::tool
