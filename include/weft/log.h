// What weft tells its operators. Nothing is logged on the hot path.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace weft {

enum class LogLevel : std::uint8_t { trace, debug, info, warning, error, off };

// Thread: called from any context's thread, one call at a time per runtime. Must not block.
using LogSink = std::function<void(LogLevel, std::string_view line)>;

}  // namespace weft
