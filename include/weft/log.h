// The log of weft, for operators. Nothing is logged on the hot path.
#pragma once

#include <cstdint>
#include <string_view>

#include <weft/callback.h>

namespace weft {

enum class LogLevel : std::uint8_t { trace, debug, info, warning, error, off };

// Thread: called on any thread, one call at a time per runtime. Must neither block nor throw; an
// exception ends the program. Like a completion, a sink may begin calls and transfers and destroy
// channels of its own runtime. Lines that these cause reach the sink in a later call. So a sink
// that sends its lines over a channel must drop lines about that channel, or each line causes
// another, endlessly.
//
// A line of the context's thread reaches the sink in that thread's next turn. Lines left at the end
// of the runtime reach it then, later ones standard error. The sink runs outside of any call,
// whatever the line is about. Lines of other threads, such as the report that the context's thread
// is blocked, reach it at once. The sink is destroyed with its runtime, so objects that it holds, a
// channel say, do not keep the runtime alive.
using LogSink = Callback<void(LogLevel, std::string_view line)>;

}  // namespace weft
