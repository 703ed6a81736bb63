// One log per runtime: spdlog to standard error, or the sink that the user brings.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include <weft/log.h>

namespace weft::base {

class Log {
  public:
    // An empty sink means standard error.
    explicit Log(LogLevel level = LogLevel::warning, LogSink sink = {});
    ~Log();

    bool enabled(LogLevel level) const { return level >= level_ && level_ != LogLevel::off; }
    // Thread: any.
    void write(LogLevel level, std::string_view line);

    void debug(std::string_view line) { write(LogLevel::debug, line); }
    void info(std::string_view line) { write(LogLevel::info, line); }
    void warning(std::string_view line) { write(LogLevel::warning, line); }
    void error(std::string_view line) { write(LogLevel::error, line); }

  private:
    struct Impl;
    LogLevel level_;
    LogSink sink_;
    std::mutex mutex_;  // One line at a time into the user's sink.
    std::unique_ptr<Impl> impl_;
};

}  // namespace weft::base
