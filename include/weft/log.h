// What weft tells its operators. Nothing is logged on the hot path.
#pragma once

#include <cstdint>
#include <string_view>

#include <weft/callback.h>

namespace weft {

enum class LogLevel : std::uint8_t { trace, debug, info, warning, error, off };

// Thread: called from any, one call at a time per runtime. Must neither block nor throw, which ends
// the program. It may use its own runtime as a completion may: begin calls and transfers, let go of
// channels. What these cause to be logged is given to it in a later call: a sink that sends its
// lines away drops those about its own channel, or it never comes to rest.
//
// A line that is written on the context's thread reaches it in that thread's next turn, and what is
// left at the end of the runtime reaches it then, what comes later standard error; it runs for no
// call's sake, whatever the line is about. Lines of other threads, as those which say that the
// context's is blocked, reach it at once. It is destroyed with its runtime, so what it holds, a
// channel say, does not keep that.
using LogSink = Callback<void(LogLevel, std::string_view line)>;

}  // namespace weft
