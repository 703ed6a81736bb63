// What weft tells its operators. Nothing is logged on the hot path.
#pragma once

#include <cstdint>
#include <string_view>

#include <weft/callback.h>

namespace weft {

enum class LogLevel : std::uint8_t { trace, debug, info, warning, error, off };

// Thread: called from any context's thread, one call at a time per runtime. Must not block.
using LogSink = Callback<void(LogLevel, std::string_view line)>;

}  // namespace weft
