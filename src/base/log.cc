#include "base/log.h"

#include <utility>

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "base/text.h"

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
    const std::string text = printable_lines(line);  // Parts of it may be a peer's.
    if (sink_) {
        std::lock_guard lock(mutex_);
        sink_(level, text);
    } else if (impl_) {
        impl_->logger.log(to_spdlog(level), spdlog::string_view_t(text.data(), text.size()));
    }
}

void Log::write_of_peer(LogLevel level, TimePoint now, std::string_view line) {
    if (!enabled(level)) return;
    std::uint64_t left_out = 0;
    {
        const std::lock_guard lock(mutex_);
        if (now >= second_ + 1s) {
            second_ = now;
            peer_lines_ = 0;
        }
        if (peer_lines_ == peer_lines_per_s) {
            ++left_out_;
            return;
        }
        ++peer_lines_;
        left_out = std::exchange(left_out_, 0);
    }
    if (left_out == 0) return write(level, printable(line));
    write(level, printable(line) + " (" + std::to_string(left_out) +
                     " lines about peers were left out before)");
}

}  // namespace weft::base
