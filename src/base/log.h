// One log per runtime: spdlog to standard error, or the sink of the user.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include <weft/function.h>
#include <weft/log.h>
#include <weft/time.h>

#include "base/thread_annotations.h"

namespace weft::base {

class Log {
  public:
    // An empty sink means standard error.
    explicit Log(LogLevel level = LogLevel::warning, LogSink sink = {});
    ~Log();

    bool enabled(LogLevel level) const { return level >= level_ && level_ != LogLevel::off; }
    // A sink is user code, and a line may be written where no user code may run. `defer` is called
    // on the writing thread. It returns true when it has arranged a later deliver() where user code
    // may run.
    void set_defer_delivery(Function<bool()> defer) { defer_delivery_ = std::move(defer); }
    // Thread: any. The sink is never re-entered: lines that it writes itself are queued.
    void write(LogLevel level, std::string_view line);
    // Passes the queued lines to the sink. Does nothing during another deliver(), which passes on
    // these lines, too, or calls `defer` again.
    void deliver() noexcept;
    // Passes the remaining lines to the sink, and destroys the sink once no thread is in it: it may
    // own the owner of this log. Later lines are written to standard error.
    void end_sink() noexcept;

    // For lines that peers can cause at any rate: writes at most `peer_lines_per_s` a second; the
    // first line afterwards carries the number of dropped lines.
    static constexpr unsigned peer_lines_per_s = 10;
    void write_rate_limited(LogLevel level, TimePoint now, std::string_view line);

    void debug(std::string_view line) { write(LogLevel::debug, line); }
    void info(std::string_view line) { write(LogLevel::info, line); }
    void warning(std::string_view line) { write(LogLevel::warning, line); }
    void error(std::string_view line) { write(LogLevel::error, line); }

  private:
    struct Impl;
    void open_standard_error();
    struct Line {
        LogLevel level;
        std::string text;
    };
    // ---- of the thread that uses it first
    LogLevel level_;
    LogSink sink_;
    Function<bool()> defer_delivery_;
    std::unique_ptr<Impl> impl_;

    // ---- lines for the sink
    Mutex mutex_;  // Never held while the sink runs.
    std::deque<Line> lines_ WEFT_GUARDED_BY(mutex_);
    bool is_delivering_ WEFT_GUARDED_BY(mutex_) = false;  // One line at a time.
    bool has_ended_sink_ WEFT_GUARDED_BY(mutex_) = false;
    std::thread::id deliverer_ WEFT_GUARDED_BY(mutex_);

    // ---- the limit of lines that peers cause
    TimePoint window_start_ WEFT_GUARDED_BY(mutex_){};
    unsigned peer_lines_ WEFT_GUARDED_BY(mutex_) = 0;  // Since `window_start_`.
    std::uint64_t dropped_ WEFT_GUARDED_BY(mutex_) = 0;
};

}  // namespace weft::base
