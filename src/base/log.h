// One log per runtime: spdlog to standard error, or the sink that the user brings.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include <weft/function.h>
#include <weft/log.h>
#include <weft/time.h>

namespace weft::base {

class Log {
  public:
    // An empty sink means standard error.
    explicit Log(LogLevel level = LogLevel::warning, LogSink sink = {});
    ~Log();

    bool enabled(LogLevel level) const { return level >= level_ && level_ != LogLevel::off; }
    // A sink is user code, and a line may be written in the middle of anything. `later`: asked on
    // the thread that writes; true: it sees to it that deliver() follows where user code may run.
    void set_later(Function<bool()> later) { later_ = std::move(later); }
    // Thread: any. Never in the sink: one that is called writes lines itself.
    void write(LogLevel level, std::string_view line);
    // Gives the sink what was written. Nothing where it is being called already: the caller goes on
    // with these lines, or asks `later` once more.
    void deliver() noexcept;
    // Gives the sink what is left, and lets go of it once no thread is in it: it may keep what
    // keeps this log. What is written from here on goes to standard error.
    void end_sink() noexcept;

    // The same for what peers can make happen as often as they like: at most so many lines a
    // second; the first line after says how many were left out.
    static constexpr unsigned peer_lines_per_s = 10;
    void write_of_peer(LogLevel level, TimePoint now, std::string_view line);

    void debug(std::string_view line) { write(LogLevel::debug, line); }
    void info(std::string_view line) { write(LogLevel::info, line); }
    void warning(std::string_view line) { write(LogLevel::warning, line); }
    void error(std::string_view line) { write(LogLevel::error, line); }

  private:
    struct Impl;
    void begin_error();
    struct Line {
        LogLevel level;
        std::string text;
    };
    LogLevel level_;
    LogSink sink_;
    Function<bool()> later_;
    std::mutex mutex_;            // Never held over the sink. Guards these:
    std::deque<Line> lines_;      // For the sink.
    bool is_delivering_ = false;  // One line at a time.
    bool has_ended_sink_ = false;
    std::thread::id deliverer_;
    TimePoint second_{};
    unsigned peer_lines_ = 0;  // Since then.
    std::uint64_t left_out_ = 0;
    std::unique_ptr<Impl> impl_;
};

}  // namespace weft::base
