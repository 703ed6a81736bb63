#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace weft::base {

struct Log::Impl {
    // Not registered with spdlog: nothing of ours is process-global.
    spdlog::logger logger{"weft", std::make_shared<spdlog::sinks::stderr_color_sink_mt>()};
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
    if (sink_ || level_ == LogLevel::off) return;
    impl_ = std::make_unique<Impl>();
    impl_->logger.set_level(to_spdlog(level_));
    impl_->logger.set_pattern("%Y-%m-%dT%H:%M:%S.%e %l weft: %v");
}

Log::~Log() = default;

void Log::write(LogLevel level, std::string_view line) {
    if (!enabled(level)) return;
    if (sink_) {
        std::lock_guard lock(mutex_);
        sink_(level, line);
    } else if (impl_) {
        impl_->logger.log(to_spdlog(level), spdlog::string_view_t(line.data(), line.size()));
    }
}

}  // namespace weft::base
