#include "base/log.h"

#include <chrono>
#include <cstdio>
#include <ctime>
#include <utility>

#include <spdlog/details/null_mutex.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include "base/standard_error.h"
#include "base/text.h"

namespace weft::base {

namespace {

// The time of a line in UTC: "2026-02-28T23:59:59.123Z". Computed here, because the functions of
// the C library take a lock that a forked child may inherit locked.
class Stamp final : public spdlog::custom_flag_formatter {
  public:
    void format(const spdlog::details::log_msg& line, const std::tm&,
                spdlog::memory_buf_t& into) override {
        const auto day = std::chrono::floor<std::chrono::days>(line.time);
        const std::chrono::year_month_day date(day);
        const std::chrono::hh_mm_ss time(
            std::chrono::floor<std::chrono::milliseconds>(line.time - day));
        char text[64];
        const int bytes = std::snprintf(
            text, sizeof text, "%04d-%02u-%02uT%02d:%02d:%02d.%03dZ", static_cast<int>(date.year()),
            static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
            static_cast<int>(time.hours().count()), static_cast<int>(time.minutes().count()),
            static_cast<int>(time.seconds().count()), static_cast<int>(time.subseconds().count()));
        into.append(text, text + bytes);
    }
    std::unique_ptr<custom_flag_formatter> clone() const override {
        return std::make_unique<Stamp>();
    }
};

// Never waits: the thread of a context writes to it, and the reader of a pipe may have stopped. A
// line without room is dropped; the next line that fits reports the number of dropped lines.
class StandardError final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
  protected:
    void sink_it_(const spdlog::details::log_msg& line) override {
        if (dropped_ != 0 && !put((is_cut_ ? "\nweft: " : "weft: ") + std::to_string(dropped_) +
                                  " log lines were left out: standard error had no room\n")) {
            ++dropped_;
            return;
        }
        spdlog::memory_buf_t text;
        formatter_->format(line, text);
        dropped_ = put({text.data(), text.size()}) ? 0 : 1;
    }
    void flush_() override {}

  private:
    // False: there was no room for all of it.
    bool put(std::string_view text) {
        const std::size_t bytes = write_to_standard_error(text);
        if (bytes != 0) is_cut_ = bytes < text.size();
        return bytes == text.size();
    }

    std::uint64_t dropped_ = 0;
    bool is_cut_ = false;  // The output ends within a line.
};

}  // namespace

struct Log::Impl {
    // Not registered with spdlog, and without its mutex: all consoles of a process share it, and a
    // forked child may inherit it locked.
    spdlog::logger logger{"weft", std::make_shared<StandardError>()};
};

static spdlog::level::level_enum to_spdlog(LogLevel level) {
    switch (level) {
        case LogLevel::trace: return spdlog::level::trace;
        case LogLevel::debug: return spdlog::level::debug;
        case LogLevel::info: return spdlog::level::info;
        case LogLevel::warning: return spdlog::level::warn;
        case LogLevel::error: return spdlog::level::err;
        case LogLevel::off: return spdlog::level::off;
    }
    return spdlog::level::off;
}

Log::Log(LogLevel level, LogSink sink) : level_(level), sink_(std::move(sink)) {
    if (!sink_ && level_ != LogLevel::off) open_standard_error();
}

void Log::open_standard_error() {
    impl_ = std::make_unique<Impl>();
    impl_->logger.set_level(to_spdlog(level_));
    auto format = std::make_unique<spdlog::pattern_formatter>();
    format->add_flag<Stamp>('*').set_pattern("%* %l weft: %v");
    impl_->logger.set_formatter(std::move(format));
}

Log::~Log() = default;

void Log::write(LogLevel level, std::string_view line) {
    if (!enabled(level)) return;
    const std::string text = printable_lines(line);  // Parts of it may be a peer's.
    {
        const MutexLock lock(mutex_);
        if (!sink_ || has_ended_sink_) {
            if (!impl_) open_standard_error();
            impl_->logger.log(to_spdlog(level), spdlog::string_view_t(text.data(), text.size()));
            return;
        }
        lines_.push_back({level, text});
    }
    if (!defer_delivery_ || !defer_delivery_()) deliver();
}

void Log::deliver() noexcept {
    MutexLock lock(mutex_);
    if (is_delivering_ || !sink_) return;
    is_delivering_ = true;
    deliverer_ = std::this_thread::get_id();
    while (!lines_.empty()) {
        // Lines written meanwhile belong to the next round: a sink may write one for each.
        std::deque<Line> round;
        round.swap(lines_);
        lock.unlock();
        for (const Line& line : round) sink_(line.level, line.text);
        lock.lock();
        if (lines_.empty()) break;
        lock.unlock();
        const bool is_later = defer_delivery_ && defer_delivery_();
        lock.lock();
        if (is_later) break;
    }
    is_delivering_ = false;
}

void Log::end_sink() noexcept {
    LogSink ended;  // Destroyed after the lock is released.
    MutexLock lock(mutex_);
    has_ended_sink_ = true;  // First: deliver() below then passes on all queued lines.
    lock.unlock();
    deliver();
    lock.lock();
    // Another thread may be in the sink.
    while (is_delivering_ && deliverer_ != std::this_thread::get_id()) {
        lock.unlock();
        std::this_thread::yield();
        lock.lock();
    }
    if (!is_delivering_) ended.swap(sink_);
}

void Log::write_rate_limited(LogLevel level, TimePoint now, std::string_view line) {
    if (!enabled(level)) return;
    std::uint64_t dropped = 0;
    {
        const MutexLock lock(mutex_);
        if (now >= window_start_ + 1s) {
            window_start_ = now;
            peer_lines_ = 0;
        }
        if (peer_lines_ == peer_lines_per_s) {
            ++dropped_;
            return;
        }
        ++peer_lines_;
        dropped = std::exchange(dropped_, 0);
    }
    if (dropped == 0) return write(level, printable(line));
    write(level, printable(line) + " (" + std::to_string(dropped) +
                     " lines about peers were left out before)");
}

}  // namespace weft::base
